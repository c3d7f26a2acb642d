//! Items that stay over a restart (`-e`), over the wire and through the program: stopped, killed, with other settings,
//! and with files that are something else.

use std::path::{Path, PathBuf};

use nuthatch_testkit::{Conn, Launch, Signal, Spawned, spawn::other_server};
use tempfile::TempDir;

fn launch(file: &Path, args: &[&str]) -> Launch {
    Launch::debug().arg("-e").arg(file).args(args)
}

fn start(file: &Path, args: &[&str]) -> Spawned {
    launch(file, args).start()
}

fn set(conn: &mut Conn, key: &str, flags: u32, exptime: u32, value: &str) {
    conn.send(format!("set {key} {flags} {exptime} {}\r\n{value}\r\n", value.len()));
    conn.expect("STORED");
}

fn get(conn: &mut Conn, key: &str) -> Option<String> {
    conn.send(format!("get {key}\r\n"));
    let lines = conn.lines_until("END");
    lines.into_iter().nth(1)
}

/// Ends a server by a signal, and says what it wrote.
fn stop(server: Spawned, signal: Signal) -> String {
    server.signal(signal);
    let exit = server.wait();
    assert_eq!(exit.status.code(), Some(0), "{}", exit.stderr);
    exit.stderr
}

/// A directory, in memory where there is one, which is what memory files are for, and the place of one in it. None when another
/// server is tested, which has no such files.
fn place() -> Option<(TempDir, PathBuf)> {
    if other_server().is_some() {
        return None;
    }
    let dir = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap();
    let file = dir.path().join("memory");
    Some((dir, file))
}

#[test]
fn after_any_clean_stop_every_item_is_what_it_was() {
    let Some((_dir, file)) = place() else { return };
    let long = "0123456789".repeat(70_000);
    let mut cas = String::new();
    for signal in [Signal::Usr1, Signal::Term, Signal::Int] {
        let server = start(&file, &["-m", "64", "-v"]);
        let mut conn = server.connect();
        if !cas.is_empty() {
            assert_eq!(conn.stat("curr_items"), 5, "{}", server.stderr());
            assert_eq!(conn.ask("mg plain v f t c k"), format!("VA 3 f77 t-1 c{cas} kplain"));
            conn.expect("abc");
            // Compared with what was shown before the restart; and from now on it is another one.
            conn.send(format!("cas plain 77 0 3 {cas}\r\nabd\r\ncas plain 77 0 3 {cas}\r\nabe\r\n"));
            conn.expect_all(["STORED", "EXISTS"]);
            assert_eq!(get(&mut conn, "long").unwrap(), long);
            let left: u32 = conn.ask("mg expires t").strip_prefix("HD t").unwrap().parse().unwrap();
            assert!((3000..=3600).contains(&left), "{left} seconds left");
            // Never fetched before; stale, and won by somebody before.
            assert_eq!(conn.ask("mg untouched h"), "HD h0");
            assert_eq!(conn.ask("mg stale s"), "HD s1 Z X");
        }
        set(&mut conn, "plain", 77, 0, "abc");
        set(&mut conn, "long", 0, 0, &long);
        set(&mut conn, "expires", 0, 3600, "x");
        set(&mut conn, "untouched", 0, 0, "x");
        set(&mut conn, "stale", 0, 0, "x");
        set(&mut conn, "deleted", 0, 0, "x");
        conn.send("delete deleted\r\nmd stale I\r\nmg stale s\r\ngets plain\r\n");
        conn.expect_all(["DELETED", "HD", "HD s1 X W"]);
        cas = conn.line().rsplit_once(' ').unwrap().1.to_owned();
        conn.expect_all(["abc", "END"]);
        assert_eq!(
            conn.stats("stats settings").iter().find(|(name, _)| name == "memory_file").unwrap().1,
            file.display().to_string()
        );
        let said = stop(server, signal);
        assert!(!said.contains("warning"), "{said}");
    }
}

#[test]
fn what_expires_meanwhile_is_gone_and_a_delayed_flush_comes_all_the_same() {
    let Some((_dir, file)) = place() else { return };
    let server = start(&file, &[]);
    let mut conn = server.connect();
    set(&mut conn, "short", 0, 500, "x");
    set(&mut conn, "hour", 0, 3600, "x");
    set(&mut conn, "ever", 0, 0, "x");
    // The clock of the first runs ahead: what has expired once stays so.
    server.move_clock(600);
    assert_eq!(get(&mut conn, "short"), None);
    stop(server, Signal::Usr1);

    let server = start(&file, &[]);
    let mut conn = server.connect();
    assert_eq!((get(&mut conn, "short"), get(&mut conn, "hour").is_some()), (None, true));
    server.move_clock(3700);
    assert_eq!((get(&mut conn, "hour"), get(&mut conn, "ever").is_some()), (None, true));
    set(&mut conn, "new", 0, 0, "x");
    conn.send("flush_all 5000\r\n");
    conn.expect("OK");
    stop(server, Signal::Usr1);

    let server = start(&file, &[]);
    let mut conn = server.connect();
    assert_eq!(get(&mut conn, "hour"), None);
    assert!(get(&mut conn, "new").is_some());
    server.move_clock(10_000);
    assert_eq!(get(&mut conn, "new"), None);
    set(&mut conn, "newer", 0, 0, "x");
    conn.send("flush_all\r\n");
    conn.expect("OK");
    set(&mut conn, "newest", 0, 0, "x");
    stop(server, Signal::Usr1);

    let server = start(&file, &[]);
    let mut conn = server.connect();
    assert_eq!((get(&mut conn, "newer"), get(&mut conn, "newest").is_some()), (None, true));
}

#[test]
fn a_killed_server_leaves_what_it_answered() {
    let Some((_dir, file)) = place() else { return };
    let server = start(&file, &[]);
    let mut conn = server.connect();
    for n in 0..2000 {
        set(&mut conn, &format!("key-{n}"), 0, 0, &format!("{n}").repeat(1 + n % 40));
    }
    for n in (0..2000).step_by(3) {
        assert_eq!(conn.ask(format!("delete key-{n}")), "DELETED");
    }
    // Never finished.
    conn.send("set key-1 0 0 300000\r\nabc");
    drop(server);

    let server = start(&file, &["-v"]);
    let mut conn = server.connect();
    for n in 0..2000 {
        let wanted = (n % 3 != 0).then(|| format!("{n}").repeat(1 + n % 40));
        assert_eq!(get(&mut conn, &format!("key-{n}")), wanted, "{}", server.stderr());
    }
}

#[test]
fn a_server_that_begins_before_the_one_before_it_has_ended_waits_for_its_file() {
    let Some((_dir, file)) = place() else { return };
    let held = std::fs::File::create(&file).expect("a file");
    held.lock().expect("nobody else has it");
    let leaving = std::thread::spawn(move || {
        std::thread::sleep(std::time::Duration::from_millis(300));
        drop(held);
    });
    let server = start(&file, &[]);
    leaving.join().expect("it lets go");
    set(&mut server.connect(), "key", 0, 0, "value");
}

#[test]
fn another_limit_keeps_what_it_has_room_for() {
    let Some((_dir, file)) = place() else { return };
    let value = "v".repeat(1000);
    let server = start(&file, &["-m", "16"]);
    let mut conn = server.connect();
    for n in 0..12_000 {
        set(&mut conn, &format!("key-{n}"), 0, 0, &value);
    }
    assert_eq!(conn.stat("evictions"), 0);
    stop(server, Signal::Usr1);
    for (megabytes, least, most) in [("64", 12_000, 12_000), ("8", 5000, 8300), ("200", 5000, 8300)] {
        let server = start(&file, &["-m", megabytes]);
        let mut conn = server.connect();
        let items = conn.stat("curr_items");
        assert!((least..=most).contains(&items), "{items} items in {megabytes} MiB: {}", server.stderr());
        assert!(conn.stat("bytes") <= megabytes.parse::<u64>().unwrap() << 20);
        set(&mut conn, "one-more", 0, 0, &value);
        assert_eq!(conn.ask("delete one-more"), "DELETED");
        stop(server, Signal::Usr1);
    }
}

#[test]
fn pools_of_a_configuration_file_have_their_own_memory_files() {
    let Some((dir, _)) = place() else { return };
    let config = dir.path().join("nuthatch.toml");
    let text = format!(
        "[pool.default]\nfile = \"{0}/first\"\n[pool.pages]\nfile = \"{0}/second\"\n\
         [[listen]]\nmemcached = \"127.0.0.1:-1\"\n[[route]]\nprefix = \"page:\"\npool = \"pages\"\n",
        dir.path().display()
    );
    std::fs::write(&config, &text).unwrap();
    let serve = || Launch::nuthatch().args(["serve", "-p", "-1", "--config"]).arg(&config);
    let server = serve().start();
    let mut conn = server.connect();
    set(&mut conn, "a", 0, 0, "1");
    set(&mut conn, "page:a", 0, 0, "2");
    stop(server, Signal::Usr1);
    let server = serve().start();
    let mut conn = server.connect();
    assert_eq!((get(&mut conn, "a").unwrap(), get(&mut conn, "page:a").unwrap()), ("1".to_owned(), "2".to_owned()));
    drop(server);
    std::fs::write(&config, text.replace("second", "first")).unwrap();
    let exit = serve().run_to_end();
    let file = dir.path().join("first");
    let sentence = format!("pool.pages.file: expected a file of its own, {} is pool default's", file.display());
    assert!(exit.stderr.contains(&sentence), "{}", exit.stderr);
}

#[test]
fn a_file_that_cannot_be_used_is_one_sentence() {
    let Some((dir, file)) = place() else { return };
    let refused = |file: &Path, sentence: &str| {
        let exit = launch(file, &[]).run_to_end();
        assert_eq!(exit.status.code(), Some(71), "{}", exit.stderr);
        assert_eq!(exit.stderr.trim_end(), format!("memcached: pool default: {}: {sentence}", file.display()));
    };
    // Something else, short and long: it stays as it is.
    for bytes in [5, 4_000_000] {
        let other = dir.path().join("letters");
        std::fs::write(&other, vec![b'a'; bytes]).unwrap();
        refused(&other, "expected an empty file or one of this server's, and it holds something else");
        assert_eq!(std::fs::read(&other).unwrap(), vec![b'a'; bytes]);
    }
    refused(dir.path(), "expected a memory file that can be written: Is a directory (os error 21)");
    refused(
        &dir.path().join("no/memory"),
        "expected a memory file that can be written: No such file or directory (os error 2)",
    );
    let server = start(&file, &[]);
    let mut conn = server.connect();
    set(&mut conn, "a", 0, 0, "1");
    refused(&file, "expected a memory file of this server's own, another one uses it");
    assert_eq!(get(&mut conn, "a").unwrap(), "1");
    stop(server, Signal::Usr1);

    // A copy that was made while a server ran is not what it was at one moment.
    let server = start(&file, &[]);
    let copy = dir.path().join("copy");
    std::fs::copy(&file, &copy).unwrap();
    let second = start(&copy, &[]);
    assert_eq!(get(&mut second.connect(), "a"), None);
    let said = second.stderr();
    let sentence = "starting without the items in it: its server did not stop before the machine did";
    assert!(said.contains(sentence), "{said}");
    assert_eq!(get(&mut server.connect(), "a").unwrap(), "1");
}

#[test]
fn what_was_forgotten_is_not_there_after_a_stop_or_a_kill() {
    let Some((_dir, file)) = place() else { return };
    for is_killed in [false, true] {
        let end = |server: Spawned| {
            // Dropped, it is killed.
            if !is_killed {
                stop(server, Signal::Usr1);
            }
        };
        let server = start(&file, &[]);
        let mut conn = server.connect();
        set(&mut conn, "bin:old", 0, 0, "1");
        set(&mut conn, "kept", 0, 0, "1");
        conn.send("ms tagged 1 Lnews\r\n1\r\n");
        conn.expect("HD");
        conn.send("forget prefix bin:\r\nforget tag news\r\n");
        conn.expect("OK");
        conn.expect("OK");
        set(&mut conn, "bin:new", 0, 0, "2");
        end(server);
        let server = start(&file, &[]);
        let mut conn = server.connect();
        for (key, value) in [("bin:old", None), ("tagged", None), ("bin:new", Some("2")), ("kept", Some("1"))] {
            assert_eq!(get(&mut conn, key).as_deref(), value, "{key}, killed: {is_killed}");
        }
        // With the tags they had.
        conn.send("ms tagged 1 Lnews\r\n1\r\n");
        conn.expect("HD");
        end(server);
        let server = start(&file, &[]);
        let mut conn = server.connect();
        conn.send("forget tag news\r\n");
        conn.expect("OK");
        assert_eq!((get(&mut conn, "tagged"), get(&mut conn, "kept").as_deref()), (None, Some("1")));
        end(server);
    }
}
