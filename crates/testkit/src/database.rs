//! Database servers for tests and measurements: a MariaDB or a PostgreSQL of one's own, in a temporary directory, on a UNIX socket.
//!
//! Nothing listens on the network unless it is asked to, on a port of 127.0.0.1; and nothing outlives the tests: each server is
//! the child of a small shell that kills it and removes its directory when the test's process is gone, however that ended. A
//! test that runs as root starts them as `nobody`, because both refuse root.

use std::fs;
use std::io::{Read as _, Write as _};
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::ports::free_port;

const PATIENCE: Duration = Duration::from_secs(60);
const NOBODY: u32 = 65534;

/// Runs its arguments until its standard input ends, having said the process id; then removes the directory unless told to keep it.
const KEEPER: &str = r##"dir=$1; shift
"$@" >>"$dir/log" 2>&1 </dev/null &
pid=$!
echo $pid
word=$(cat)
kill -KILL $pid 2>/dev/null
wait $pid
[ "$word" = keep ] || rm -rf "$dir""##;

/// Which server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Engine {
    /// MariaDB.
    Mariadb,
    /// PostgreSQL.
    Postgres,
}

/// A running database server. Dropping it kills it and removes its files.
#[derive(Debug)]
pub struct Database {
    engine: Engine,
    dir: PathBuf,
    args: Vec<String>,
    port: Option<u16>,
    keeper: Option<(Child, u32)>,
}

impl Database {
    /// A MariaDB with an empty database `test`, whose `root` needs no password. `args` are added to its command line.
    ///
    /// # Panics
    /// With what it wrote, when it does not start.
    pub fn mariadb(args: &[&str]) -> Database {
        Database::begin(Engine::Mariadb, args, &[], None)
    }

    /// A PostgreSQL with an empty database `test`, whose `root` needs no password. `args` are added to its command line.
    ///
    /// # Panics
    /// With what it wrote, when it does not start.
    pub fn postgres(args: &[&str]) -> Database {
        Database::begin(Engine::Postgres, args, &[], None)
    }

    /// Whether a MariaDB can be started here.
    pub fn has_mariadb() -> bool {
        runs("mariadbd") && runs("mariadb")
    }

    /// Whether a PostgreSQL can be started here.
    pub fn has_postgres() -> bool {
        runs(&postgres_program("postgres")) && runs("psql")
    }

    /// One that listens on a port of 127.0.0.1 too, and has these files, which none but its own user can read. `{dir}` in `args` is
    /// the directory that they are in.
    ///
    /// # Panics
    /// With what it wrote, when it does not start.
    pub fn on_network(engine: Engine, args: &[&str], files: &[(&str, &str)]) -> Database {
        Database::begin(engine, args, files, Some(free_port()))
    }

    pub(crate) fn begin(engine: Engine, args: &[&str], files: &[(&str, &str)], port: Option<u16>) -> Database {
        let mut database = Database::prepared(engine, args, files, port);
        database.start();
        match engine {
            Engine::Mariadb => database.sql_in("", "CREATE DATABASE test CHARACTER SET utf8mb4"),
            Engine::Postgres => database.sql_in("postgres", "CREATE DATABASE test"),
        };
        database
    }

    /// A MariaDB that takes everything over from a cluster.
    pub(crate) fn join(args: &[&str]) -> Database {
        let mut database = Database::prepared(Engine::Mariadb, args, &[], None);
        database.start();
        database
    }

    /// With this command line from the next start on.
    pub(crate) fn set_args(&mut self, args: &[&str]) {
        self.args = args.iter().map(|arg| (*arg).to_owned()).collect();
    }

    /// The files of an empty server, which is not started.
    fn prepared(engine: Engine, args: &[&str], files: &[(&str, &str)], port: Option<u16>) -> Database {
        let dir = tempfile::Builder::new().prefix("nuthatch-test-").tempdir().expect("a temporary directory").keep();
        fs::set_permissions(&dir, fs::Permissions::from_mode(0o755)).expect("the directory is ours");
        if rustix::process::geteuid().is_root() {
            chown(&dir, Some(NOBODY), Some(NOBODY)).expect("root can give a directory away");
        }
        for (name, text) in files {
            let path = dir.join(name);
            fs::write(&path, text).expect("the directory is ours");
            fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).expect("the file is ours");
            if rustix::process::geteuid().is_root() {
                chown(&path, Some(NOBODY), Some(NOBODY)).expect("root can give a file away");
            }
        }
        let args = args.iter().map(|arg| arg.replace("{dir}", &dir.display().to_string())).collect();
        let database = Database { engine, dir, args, port, keeper: None };
        let data = database.data();
        match engine {
            Engine::Mariadb => database.prepare(
                "mariadb-install-db",
                &[
                    "--no-defaults",
                    "--auth-root-authentication-method=normal",
                    "--skip-test-db",
                    &format!("--datadir={data}"),
                ],
            ),
            Engine::Postgres => database.prepare(
                &postgres_program("initdb"),
                &["--username=root", "--auth=trust", "--encoding=UTF8", "--locale=C.UTF-8", "--no-sync", "-D", &data],
            ),
        }
        database
    }

    /// Its directory. Its socket is in it.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// The URL of its database `test`, as in Nuthatch's settings.
    pub fn url(&self) -> String {
        let dir = self.dir.display();
        match self.engine {
            Engine::Mariadb => format!("mysql://root@localhost/test?socket={dir}/sock"),
            Engine::Postgres => format!("postgres://root@localhost/test?socket={dir}"),
        }
    }

    /// Its port, where it was asked for one.
    ///
    /// # Panics
    /// When it was not.
    pub fn port(&self) -> u16 {
        self.port.expect("the server was to listen on the network")
    }

    /// Runs statements in `test` with the server's own client; what they print, a row a line, tabs between columns.
    ///
    /// # Panics
    /// With what the client wrote, when a statement fails.
    pub fn sql(&self, text: &str) -> String {
        self.sql_in("test", text)
    }

    /// Kills it as a power failure would kill the process: no shutdown, no flush.
    ///
    /// # Panics
    /// When it is not running.
    pub fn kill(&mut self) {
        let others = self.processes().split_off(1);
        let (mut keeper, _) = self.keeper.take().expect("the server is running");
        let mut word = keeper.stdin.take().expect("the keeper's input is a pipe");
        word.write_all(b"keep").expect("the keeper reads");
        drop(word);
        keeper.wait().expect("the keeper is ours");
        // PostgreSQL's further processes would end by themselves, but later, and be in the way of a start.
        for process in others {
            if let Some(process) = i32::try_from(process).ok().and_then(rustix::process::Pid::from_raw) {
                let _ = rustix::process::kill_process(process, rustix::process::Signal::KILL);
            }
            let deadline = Instant::now() + PATIENCE;
            while stat(process).is_some_and(|(state, _)| state != "Z") {
                assert!(Instant::now() < deadline, "process {process} of the database does not end");
                std::thread::sleep(Duration::from_millis(1));
            }
        }
    }

    /// The ids of its processes: its own, then those that it has begun.
    ///
    /// # Panics
    /// When it is not running.
    pub fn processes(&self) -> Vec<u32> {
        let own = self.pid();
        let all = fs::read_dir("/proc").expect("the kernel tells its processes");
        let begun = all.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok());
        let begun = begun.filter(|process| stat(*process).is_some_and(|(_, parent)| parent == own));
        std::iter::once(own).chain(begun).collect()
    }

    /// Starts it again on the same files.
    ///
    /// # Panics
    /// With what it wrote, when it does not start.
    pub fn start(&mut self) {
        let data = self.data();
        let dir = self.dir.display().to_string();
        let (program, mut args): (String, Vec<String>) = match self.engine {
            Engine::Mariadb => (
                "mariadbd".to_owned(),
                vec![
                    "--no-defaults".to_owned(),
                    format!("--datadir={data}"),
                    format!("--socket={dir}/sock"),
                    format!("--pid-file={dir}/pid"),
                    "--innodb-buffer-pool-size=32M".to_owned(),
                    "--innodb-log-file-size=32M".to_owned(),
                ],
            ),
            Engine::Postgres => {
                let given = ["-D", &data, "-k", &dir, "-c", "shared_buffers=32MB"];
                (postgres_program("postgres"), given.map(str::to_owned).to_vec())
            }
        };
        args.extend(match (self.engine, self.port) {
            (Engine::Mariadb, None) => vec!["--skip-networking".to_owned()],
            (Engine::Mariadb, Some(port)) => vec!["--bind-address=127.0.0.1".to_owned(), format!("--port={port}")],
            (Engine::Postgres, None) => vec!["--listen_addresses=".to_owned()],
            (Engine::Postgres, Some(port)) => {
                vec!["--listen_addresses=127.0.0.1".to_owned(), format!("--port={port}")]
            }
        });
        args.extend(self.args.iter().cloned());
        let mut command = self.command("sh");
        command.args(["-c", KEEPER, "keeper", &dir, &program]).args(&args);
        let mut keeper = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("a shell can be started");
        let mut pid = String::new();
        let mut said = keeper.stdout.take().expect("the keeper's output is a pipe");
        while !pid.ends_with('\n') {
            let mut byte = [0];
            said.read_exact(&mut byte).expect("the keeper says a process id");
            pid.push(char::from(byte[0]));
        }
        self.keeper = Some((keeper, pid.trim().parse().expect("a process id")));
        let deadline = Instant::now() + PATIENCE;
        // A node of a cluster that has not joined yet answers what asks no table.
        let (asked, about) = match self.engine {
            Engine::Mariadb => ("mysql", "SELECT COUNT(*) FROM global_priv"),
            Engine::Postgres => ("postgres", "SELECT 1"),
        };
        while self.client(asked, about).is_err() {
            assert!(
                Instant::now() < deadline && self.running(),
                "the database did not start; it wrote:\n{}",
                self.log()
            );
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// The server's process id.
    ///
    /// # Panics
    /// When it is not running.
    pub fn pid(&self) -> u32 {
        self.keeper.as_ref().expect("the server is running").1
    }

    fn running(&self) -> bool {
        Path::new(&format!("/proc/{}", self.pid())).exists()
    }

    fn data(&self) -> String {
        format!("{}/data", self.dir.display())
    }

    fn log(&self) -> String {
        fs::read_to_string(self.dir.join("log")).unwrap_or_default()
    }

    fn command(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        command.current_dir(&self.dir).env("HOME", &self.dir).env("TMPDIR", &self.dir);
        if rustix::process::geteuid().is_root() {
            command.uid(NOBODY).gid(NOBODY);
        }
        command
    }

    fn prepare(&self, program: &str, args: &[&str]) {
        let done = self.command(program).args(args).output();
        let done = done.unwrap_or_else(|error| panic!("{program} cannot be run: {error}"));
        assert!(done.status.success(), "{program}: {}", String::from_utf8_lossy(&done.stderr));
    }

    /// As [`Database::sql`], in another database.
    ///
    /// # Panics
    /// With what the client wrote, when a statement fails.
    pub fn sql_in(&self, database: &str, text: &str) -> String {
        self.client(database, text).unwrap_or_else(|why| panic!("{text}: {why}"))
    }

    fn client(&self, database: &str, text: &str) -> Result<String, String> {
        let dir = self.dir.display();
        let mut command = match self.engine {
            Engine::Mariadb => {
                let mut command = self.command("mariadb");
                command.args([
                    "--no-defaults",
                    "--user=root",
                    "--batch",
                    "--skip-column-names",
                    "--default-character-set=utf8mb4",
                ]);
                command.arg(format!("--socket={dir}/sock")).args(["--execute", text]);
                if !database.is_empty() {
                    command.arg(database);
                }
                command
            }
            Engine::Postgres => {
                let mut command = self.command("psql");
                command.args(["--no-psqlrc", "--quiet", "--tuples-only", "--no-align", "--field-separator=\t"]);
                command.args(["--username=root", "-v", "ON_ERROR_STOP=1", "--dbname", database, "--command", text]);
                command.arg(format!("--host={dir}")).args(self.port.map(|port| format!("--port={port}")));
                command
            }
        };
        let done = command.output().map_err(|error| format!("the client cannot be run: {error}"))?;
        if done.status.success() {
            Ok(String::from_utf8_lossy(&done.stdout).into_owned())
        } else {
            Err(String::from_utf8_lossy(&done.stderr).into_owned())
        }
    }
}

impl Drop for Database {
    fn drop(&mut self) {
        if let Some((mut keeper, _)) = self.keeper.take() {
            drop(keeper.stdin.take());
            let _ = keeper.wait();
        }
        let _ = fs::remove_dir_all(&self.dir);
    }
}

fn runs(program: &str) -> bool {
    let mut asked = Command::new(program);
    asked.arg("--version").stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    asked.status().is_ok_and(|status| status.success())
}

/// A process's state and who has begun it, if it is there.
fn stat(process: u32) -> Option<(String, u32)> {
    // The second field is the program's name in parentheses.
    let stat = fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    let mut fields = stat.rsplit_once(") ")?.1.split(' ');
    Some((fields.next()?.to_owned(), fields.next()?.parse().ok()?))
}

/// Debian keeps PostgreSQL's own programs off the path, by version.
fn postgres_program(name: &str) -> String {
    let mut found: Vec<PathBuf> = fs::read_dir("/usr/lib/postgresql")
        .map(|versions| versions.flatten().map(|version| version.path().join("bin").join(name)).collect())
        .unwrap_or_default();
    found.retain(|path| path.exists());
    found.sort();
    found.pop().map_or_else(|| name.to_owned(), |path| path.display().to_string())
}
