//! Programs that serve pages behind a page listener.

use std::net::TcpStream;
use std::process::{Child, Command, Stdio};

use nuthatch_pages::origin::OriginSettings;
use nuthatch_server::settings::{HttpSettings, PagesSettings};
use nuthatch_testkit::ports::free_port;
use tempfile::TempDir;

use crate::common::eventually;

/// A program that is killed if the test ends first.
pub(crate) struct Program {
    child: Child,
    pub(crate) port: u16,
    pub(crate) folder: TempDir,
}

impl Program {
    /// Starts what `command` makes of a folder and a port, and waits until it listens.
    pub(crate) fn start(command: impl FnOnce(&TempDir, u16) -> Command) -> Program {
        let folder = tempfile::tempdir().expect("a folder");
        let port = free_port();
        let mut command = command(&folder, port);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let child = command.spawn().expect("the program is installed");
        eventually(|| TcpStream::connect(("127.0.0.1", port)).is_ok());
        Program { child, port, folder }
    }

    pub(crate) fn settings(&self) -> HttpSettings {
        let server = format!("http://127.0.0.1:{}", self.port).parse().expect("an address");
        let origin = OriginSettings { name: "program".to_owned(), servers: vec![server], ..OriginSettings::default() };
        HttpSettings { origin, pages: PagesSettings::default() }
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
