//! Database servers for tests and measurements: a MariaDB or a PostgreSQL of one's own, in a temporary directory, on a UNIX socket only.
//!
//! Nothing listens on the network, and nothing outlives the tests: each server is the child of a small shell that kills it and
//! removes its directory when the test's process is gone, however that ended. A test that runs as root starts them as `nobody`,
//! because both refuse root.

use std::fs;
use std::io::{Read as _, Write as _};
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

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
enum Engine {
    Mariadb,
    Postgres,
}

/// A running database server. Dropping it kills it and removes its files.
#[derive(Debug)]
pub struct Database {
    engine: Engine,
    dir: PathBuf,
    args: Vec<String>,
    keeper: Option<(Child, u32)>,
}

impl Database {
    /// A MariaDB with an empty database `test`, whose `root` needs no password. `args` are added to its command line.
    ///
    /// # Panics
    /// With what it wrote, when it does not start.
    pub fn mariadb(args: &[&str]) -> Database {
        Database::begin(Engine::Mariadb, args)
    }

    /// A PostgreSQL with an empty database `test`, whose `root` needs no password. `args` are added to its command line.
    ///
    /// # Panics
    /// With what it wrote, when it does not start.
    pub fn postgres(args: &[&str]) -> Database {
        Database::begin(Engine::Postgres, args)
    }

    /// Whether a MariaDB can be started here.
    pub fn has_mariadb() -> bool {
        runs("mariadbd") && runs("mariadb")
    }

    /// Whether a PostgreSQL can be started here.
    pub fn has_postgres() -> bool {
        runs(&postgres_program("postgres")) && runs("psql")
    }

    fn begin(engine: Engine, args: &[&str]) -> Database {
        let dir = tempfile::Builder::new().prefix("nuthatch-test-").tempdir().expect("a temporary directory").keep();
        fs::set_permissions(&dir, fs::Permissions::from_mode(0o755)).expect("the directory is ours");
        if rustix::process::geteuid().is_root() {
            chown(&dir, Some(NOBODY), Some(NOBODY)).expect("root can give a directory away");
        }
        let args = args.iter().map(|arg| (*arg).to_owned()).collect();
        let mut database = Database { engine, dir, args, keeper: None };
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
        database.start();
        match engine {
            Engine::Mariadb => database.sql_in("", "CREATE DATABASE test CHARACTER SET utf8mb4"),
            Engine::Postgres => database.sql_in("postgres", "CREATE DATABASE test"),
        };
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
        let (mut keeper, _) = self.keeper.take().expect("the server is running");
        let mut word = keeper.stdin.take().expect("the keeper's input is a pipe");
        word.write_all(b"keep").expect("the keeper reads");
        drop(word);
        keeper.wait().expect("the keeper is ours");
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
                    "--skip-networking".to_owned(),
                    "--innodb-buffer-pool-size=32M".to_owned(),
                    "--innodb-log-file-size=32M".to_owned(),
                ],
            ),
            Engine::Postgres => {
                let given = ["-D", &data, "-k", &dir, "-c", "listen_addresses=", "-c", "shared_buffers=32MB"];
                (postgres_program("postgres"), given.map(str::to_owned).to_vec())
            }
        };
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
        let asked = if self.engine == Engine::Mariadb { "" } else { "postgres" };
        while self.client(asked, "SELECT 1").is_err() {
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

    fn sql_in(&self, database: &str, text: &str) -> String {
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
                command.arg(format!("--host={dir}"));
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

/// Debian keeps PostgreSQL's own programs off the path, by version.
fn postgres_program(name: &str) -> String {
    let mut found: Vec<PathBuf> = fs::read_dir("/usr/lib/postgresql")
        .map(|versions| versions.flatten().map(|version| version.path().join("bin").join(name)).collect())
        .unwrap_or_default();
    found.retain(|path| path.exists());
    found.sort();
    found.pop().map_or_else(|| name.to_owned(), |path| path.display().to_string())
}
