//! The commands of `examples/rows/README.md`, run one by one as they stand there but for paths and the port: from an empty database
//! to a get, and to a change by SQL that is seen.
//!
//! What belongs to a whole machine is stood in for: `apt-get` and `systemctl` do nothing, `su` stays who it is, and the databases'
//! clients find the test's own server.

use std::fs;
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use nuthatch_testkit::database::Database;
use nuthatch_testkit::ports::free_port;
use tempfile::TempDir;

use crate::servers::{Got, Wire};

fn examples() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../examples/rows")
}

fn example(name: &str) -> String {
    let path = examples().join(name);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// A command of the README, and what it is said to print.
#[derive(Debug, PartialEq, Eq)]
struct Step {
    command: String,
    prints: String,
}

/// The blocks of commands in a text of the README.
fn blocks(text: &str) -> impl Iterator<Item = &str> {
    text.split("```console\n").skip(1).map(|block| block.split_once("```").expect("a block ends").0)
}

/// What stands below a heading.
fn section<'r>(readme: &'r str, heading: &str) -> &'r str {
    let (_, section) = readme.split_once(&format!("\n## {heading}\n")).expect("the heading is there");
    section.split_once("\n## ").map_or(section, |(section, _)| section)
}

/// The commands below a heading, in order.
fn steps(heading: &str) -> Vec<Step> {
    let readme = example("README.md");
    let mut steps: Vec<Step> = Vec::new();
    for block in blocks(section(&readme, heading)) {
        for line in block.lines() {
            match (line.strip_prefix("# ").or(line.strip_prefix("$ ")), steps.last_mut()) {
                (Some(command), _) => steps.push(Step { command: command.to_owned(), prints: String::new() }),
                (None, Some(step)) => step.prints = format!("{}{line}\n", step.prints),
                (None, None) => panic!("{line} is no command"),
            }
        }
    }
    steps
}

/// The reader's machine: his files, and his commands by the names that he has them by.
struct Machine {
    root: TempDir,
    /// What stands in the example, and what stands for it here.
    instead: Vec<(&'static str, String)>,
    port: u16,
    server: Option<Child>,
}

impl Machine {
    /// `shims` are further commands, and what they do in a shell whose `PATH` is without them.
    fn new(instead: &[(&'static str, String)], shims: &[(&str, String)]) -> Machine {
        let root = tempfile::tempdir().expect("a temporary directory");
        let at = |place: &str| root.path().join(place).display().to_string();
        let port = free_port();
        let mut all = vec![
            ("/var/lib/nuthatch", at("lib")),
            ("/etc/nuthatch", at("etc")),
            ("/etc/mysql/mariadb.conf.d", at("mariadb.conf.d")),
            ("127.0.0.1:11211", format!("127.0.0.1:{port}")),
            ("127.0.0.1 11211", format!("127.0.0.1 {port}")),
        ];
        all.extend_from_slice(instead);
        let machine = Machine { instead: all, port, server: None, root };
        machine.copy_examples();
        // Servers that stop being root go on here.
        for (directory, mode) in [("", 0o755), ("run", 0o777), ("mariadb.conf.d", 0o755)] {
            let directory = machine.path(directory);
            fs::create_dir_all(&directory).expect("the directory is ours");
            fs::set_permissions(&directory, fs::Permissions::from_mode(mode)).expect("the directory is ours");
        }
        let program = env!("CARGO_BIN_EXE_nuthatch");
        for (name, body) in [
            ("apt-get", "true"),
            ("systemctl", "true"),
            ("su", "shift 2; PATH=$WITH_SHIMS; export PATH; exec sh -c \"$1\""),
            ("nuthatch", &format!("exec {program} \"$@\"")),
        ]
        .into_iter()
        .chain(shims.iter().map(|(name, body)| (*name, body.as_str())))
        {
            let path = machine.path("bin").join(name);
            fs::create_dir_all(machine.path("bin")).expect("the directory is ours");
            let text = format!("#!/bin/sh\nWITH_SHIMS=$PATH\nPATH=${{PATH#*:}}\nexport PATH\n{body}\n");
            fs::write(&path, text).expect("the directory is ours");
            fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).expect("the file is ours");
        }
        machine
    }

    fn path(&self, name: &str) -> PathBuf {
        self.root.path().join(name)
    }

    /// With this machine's paths and ports.
    fn here(&self, text: &str) -> String {
        self.instead.iter().fold(text.to_owned(), |text, (theirs, ours)| text.replace(theirs, ours))
    }

    /// The files of the examples, with another listener, which the tests use.
    fn copy_examples(&self) {
        for directory in fs::read_dir(examples()).expect("the examples are there").flatten() {
            if !directory.path().is_dir() {
                continue;
            }
            let to = self.path("examples/rows").join(directory.file_name());
            fs::create_dir_all(&to).expect("the directory is ours");
            for file in fs::read_dir(directory.path()).expect("an example").flatten() {
                let mut text = self.here(&fs::read_to_string(file.path()).expect("a text"));
                if file.file_name() == "nuthatch.toml" {
                    let socket = self.path("run/sock");
                    text += &format!("\n[[listen]]\nmemcached = \"unix:{}\"\npool = \"accounts\"\n", socket.display());
                }
                fs::write(to.join(file.file_name()), text).expect("the directory is ours");
            }
        }
    }

    fn shell(&self, command: &str) -> Command {
        let mut shell = Command::new("sh");
        let path = std::env::var("PATH").unwrap_or_default();
        shell.args(["-c", command]).current_dir(self.root.path());
        shell.env("PATH", format!("{}:{path}", self.path("bin").display()));
        shell
    }

    /// Runs a command to its end, or until it listens if it is one that goes on.
    fn run(&mut self, step: &Step) {
        let command = self.here(&step.command);
        if let Some(command) = command.strip_suffix(" &") {
            let log = fs::File::create(self.path("log")).expect("the directory is ours");
            let child = self.shell(&format!("exec {command}")).stdout(Stdio::null()).stderr(log).spawn();
            self.server = Some(child.expect("a shell can be started"));
            let deadline = Instant::now() + Duration::from_secs(30);
            while TcpStream::connect(("127.0.0.1", self.port)).is_err() {
                let log = fs::read_to_string(self.path("log")).unwrap_or_default();
                assert!(Instant::now() < deadline, "{command}: it does not listen, and wrote:\n{log}");
                std::thread::sleep(Duration::from_millis(5));
            }
            return;
        }
        let done = self.shell(&command).stdin(Stdio::null()).output().expect("a shell can be started");
        let (told, complained) = (String::from_utf8_lossy(&done.stdout), String::from_utf8_lossy(&done.stderr));
        assert!(done.status.success(), "{command}: {told}{complained}");
        if !step.prints.is_empty() {
            assert_eq!(told.replace('\r', ""), step.prints, "{command}: {complained}");
        }
    }

    fn client(&self) -> Wire {
        Wire::new(&self.path("run/sock"))
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        if let Some(mut server) = self.server.take() {
            let _ = server.kill();
            let _ = server.wait();
        }
    }
}

/// Changes by SQL are heard of.
fn hears(client: &mut Wire) {
    let deadline = Instant::now() + Duration::from_secs(20);
    while client.stat("stats pools", "accounts:tier_stream").expect("an answer") != "following" {
        assert!(Instant::now() < deadline, "changes by SQL are not heard of");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// What is set is in the table; `change` has made Grace of the copy that is in memory, and that is seen.
fn lives_with_sql(client: &mut Wire, change: impl FnOnce(), asked: impl Fn(&str) -> String) {
    let name = |name: &str| Got::Value(format!("{name}|ada@example.org"), None);
    hears(client);
    assert_eq!(client.get("get", "7").expect("an answer"), name("Ada"));
    change();
    let deadline = Instant::now() + Duration::from_secs(20);
    while client.get("get", "7").expect("an answer") != name("Grace") {
        assert!(Instant::now() < deadline, "the change is not seen");
        std::thread::sleep(Duration::from_millis(5));
    }
    assert_eq!(client.ask("set 8 5 0 4\r\nBo|b\r\n").expect("an answer"), "STORED");
    assert_eq!(asked("SELECT name, email, flags FROM accounts WHERE id = '8'"), "Bo\tb\t5\n");
}

const CHANGE: &str = "UPDATE accounts SET name = 'Grace' WHERE id = '7'";

#[test]
fn the_commands_for_sqlite_need_nothing() {
    let mut machine = Machine::new(&[], &[]);
    let steps = steps("SQLite");
    steps.iter().for_each(|step| machine.run(step));
    assert_eq!(steps.len(), 4, "{steps:?}");
    let shop = rusqlite::Connection::open(machine.path("lib/shop.db")).expect("the file is there");
    shop.busy_timeout(Duration::from_secs(10)).expect("a timeout");
    let asked = |text: &str| {
        let line = |row: &rusqlite::Row<'_>| {
            Ok(format!("{}\t{}\t{}\n", row.get::<_, String>(0)?, row.get::<_, String>(1)?, row.get::<_, i64>(2)?))
        };
        let text = text.replace("name, email,", "CAST(name AS TEXT), CAST(email AS TEXT),");
        shop.query_row(&text, [], line).expect("a row")
    };
    lives_with_sql(&mut machine.client(), || shop.execute_batch(CHANGE).expect("a statement"), asked);
}

#[test]
fn the_commands_for_mariadb_make_its_table_and_user() {
    let binlog = example("mariadb/binlog.cnf");
    let settings = binlog.lines().filter(|line| !line.starts_with(['#', '[']) && !line.is_empty());
    let args: Vec<String> = settings.map(|line| format!("--{}", line.replace('_', "-"))).collect();
    let database = Database::mariadb(&args.iter().map(String::as_str).collect::<Vec<_>>());
    let socket = database.dir().join("sock").display().to_string();
    let client = format!("exec mariadb --no-defaults --user=root --socket={socket} \"$@\"");
    let mut machine = Machine::new(&[("/run/mysqld/mysqld.sock", socket)], &[("mariadb", client)]);
    let mut steps = steps("MariaDB");
    assert_eq!(steps.len(), 8, "{steps:?}");
    let last = steps.pop().expect("the change by SQL");
    steps.iter().for_each(|step| machine.run(step));
    let installed = fs::read_to_string(machine.path("mariadb.conf.d/60-nuthatch.cnf")).expect("it was copied");
    assert_eq!(installed, machine.here(&binlog));
    let mut client = machine.client();
    let asked = |text: &str| database.sql(&text.replace("accounts", "shop.accounts"));
    lives_with_sql(&mut client, || machine.run(&last), asked);
}

#[test]
fn the_commands_for_postgresql_make_its_table_role_and_triggers() {
    let database = Database::postgres(&[]);
    let dir = database.dir().display().to_string();
    let reach = format!("--host={dir} --username=root \"$@\"");
    let psql = format!("exec psql --no-psqlrc -v ON_ERROR_STOP=1 {reach}");
    let createdb = format!("exec createdb {reach}");
    let instead = [("127.0.0.1/shop", format!("localhost/shop?socket={dir}"))];
    let mut machine = Machine::new(&instead, &[("psql", psql), ("createdb", createdb)]);
    let steps = steps("PostgreSQL");
    steps.iter().for_each(|step| machine.run(step));
    assert_eq!(steps.len(), 7, "{steps:?}");
    let asked = |text: &str| database.sql_in("shop", text);
    lives_with_sql(&mut machine.client(), || drop(asked(CHANGE)), asked);
}

#[test]
fn the_readme_has_no_other_commands() {
    let readme = example("README.md");
    let known = ["SQLite", "MariaDB", "PostgreSQL"].map(|heading| blocks(section(&readme, heading)).count());
    assert_eq!(readme.matches("```").count(), 2 * known.iter().sum::<usize>());
}
