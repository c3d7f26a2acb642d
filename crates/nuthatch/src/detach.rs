//! `-d`: the server in the background.
//!
//! The program starts itself once more in a session of its own and waits until that one either serves or has failed. So whoever ran
//! `memcached -d` learns of a port in use by the exit status, and finds the server answering and its pid file written when the command
//! returns; after a plain `daemon(3)` both would still be to come. No thread is running yet, and no memory is shared by the two.
//!
//! The working directory stays: relative paths mean what they meant on the command line, also at a reload.

use std::env;
use std::fs::OpenOptions;
use std::io::{self, Read, Write};
use std::os::unix::process::{CommandExt, parent_id};
use std::process::{Command, Stdio, exit};

use crate::failure::Failure;

/// Tells the second start what it is: it holds the first one's process id.
const MARK: &str = "NUTHATCH_DETACHED_BY";
/// What the second start says on its standard output once it serves.
const READY: &[u8] = b"ready\n";

/// Whoever waits for this process to serve.
pub(crate) struct Waiting {
    keeps_errors: bool,
}

/// Goes into the background. Returns in the process that is to serve; the one that was started ends here.
pub(crate) fn detach(verbosity: u8) -> Result<Waiting, Failure> {
    let failed = |what: &str, error: io::Error| Failure::system(format!("-d: expected to {what}: {error}"));
    if env::var(MARK).is_ok_and(|parent| parent == parent_id().to_string()) {
        nix::unistd::setsid().map_err(|errno| failed("begin a session", errno.into()))?;
        return Ok(Waiting { keeps_errors: verbosity > 0 });
    }
    let program = env::current_exe().map_err(|error| failed("find this program", error))?;
    let mut args = env::args_os();
    let name = args.next().unwrap_or_else(|| program.clone().into_os_string());
    let mut child = Command::new(program)
        .arg0(name)
        .args(args)
        .env(MARK, std::process::id().to_string())
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .map_err(|error| failed("start again in the background", error))?;
    let mut said = Vec::new();
    if let Some(mut out) = child.stdout.take() {
        let _ = out.read_to_end(&mut said);
    }
    if said == READY {
        exit(0);
    }
    let status = child.wait().map_err(|error| failed("learn how the server ended", error))?;
    // The other one has said why.
    exit(status.code().unwrap_or(1));
}

impl Waiting {
    /// Lets the one that waits go, and the terminal with it. With `-v` messages stay where they went.
    pub(crate) fn ready(self) {
        let mut out = io::stdout().lock();
        let _ = out.write_all(READY).and_then(|()| out.flush());
        if let Ok(null) = OpenOptions::new().read(true).write(true).open("/dev/null") {
            let _ = nix::unistd::dup2_stdout(&null);
            if !self.keeps_errors {
                let _ = nix::unistd::dup2_stderr(&null);
            }
        }
    }
}
