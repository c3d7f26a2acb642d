//! The testkit's own claims: a spawned server answers over either transport and is gone afterwards.

use nuthatch_testkit::{Address, Launch};

#[test]
fn spawned_server_answers_over_tcp_and_unix_and_leaves_nothing() {
    for launch in [Launch::memcached(), Launch::memcached().unix()] {
        let server = launch.workers(2).start();
        let mut client = server.connect();
        client.send("set bird 5 0 8\r\nnuthatch\r\nget bird\r\n");
        client.expect_all(["STORED", "VALUE bird 5 8", "nuthatch", "END"]);
        assert_eq!(client.stat("curr_items"), 1);
        assert_eq!(client.stat("threads"), 2);
        client.expect_nothing_more();
        client.send_line("quit");
        client.expect_close();

        let (pid, dir) = (server.pid(), server.dir().to_owned());
        drop(server);
        assert!(!std::path::Path::new(&format!("/proc/{pid}")).exists(), "the process is gone");
        assert!(!dir.exists(), "its directory is gone");
    }
}

#[test]
fn two_servers_live_side_by_side() {
    let (first, second) = (Launch::memcached().start(), Launch::memcached().start());
    assert_ne!(first.address(), second.address());
    assert!(matches!(first.address(), Address::Tcp(port) if *port != 11211));
    assert_eq!(first.connect().ask("touch bird 0"), "NOT_FOUND");
    assert_eq!(second.connect().ask("touch bird 0"), "NOT_FOUND");
}

#[test]
fn server_that_refuses_to_start_hands_back_its_sentence() {
    let exit = Launch::memcached().arg("--no-such-flag").try_start().expect_err("an unknown flag is refused");
    assert!(!exit.status.success());
    assert!(exit.stderr.contains("no-such-flag"), "the sentence names the flag: {}", exit.stderr);
}
