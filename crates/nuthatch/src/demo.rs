//! `nuthatch demo`: a server with a page listener in front of a small wiki, so that one sees a MISS and then a HIT.
//!
//! The wiki is a thread of this process. The server is started as from any file, which is written for it and is gone
//! when it ends.

use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use nuthatch_demo::{PAGE_TIME, Wiki};
use nuthatch_server::settings::Sources;

use crate::failure::Failure;
use crate::{say, serve};

/// `nuthatch help demo`
pub(crate) const HELP: &str = "\
Usage: nuthatch demo [--http ADDRESS] [--memcached ADDRESS] [FLAGS]

Starts a wiki whose pages take a while to make, a page listener in front of it (127.0.0.1:8080), and a memcached listener on the same
memory (127.0.0.1:11211), and prints what to try. Further flags are those of `nuthatch serve`.
";

/// Runs the demonstration until a signal ends it. `sources` are a command line of `demo`.
pub(crate) fn demo(sources: Sources) -> Result<(), Failure> {
    let Asked { http, memcached, flags } = Asked::read(&sources.args)?;
    if flags.iter().any(|flag| flag == "--help" || flag == "-h") {
        return say::print(HELP);
    }
    let wiki = Wiki::start().map_err(|error| Failure::system(format!("expected to start the wiki: {error}")))?;
    let file = File::write(&configuration(&http, &memcached, wiki.address()))?;
    say::print(&format!(
        "A wiki over SQLite is behind the page listener; each of its pages takes {} ms to make.\n\n",
        PAGE_TIME.as_millis()
    ))?;
    let mut args = vec![OsString::from("--config"), file.0.clone().into_os_string()];
    args.extend(flags);
    serve::serve(&Sources { args, ..sources })
}

/// What the command line says.
struct Asked {
    http: String,
    memcached: String,
    flags: Vec<OsString>,
}

impl Asked {
    fn read(args: &[OsString]) -> Result<Asked, Failure> {
        let mut asked =
            Asked { http: "127.0.0.1:8080".to_owned(), memcached: "127.0.0.1:11211".to_owned(), flags: Vec::new() };
        let mut args = args.iter();
        while let Some(arg) = args.next() {
            let place = match arg.to_str() {
                Some("--http") => &mut asked.http,
                Some("--memcached") => &mut asked.memcached,
                _ => {
                    asked.flags.push(arg.clone());
                    continue;
                }
            };
            let value = args.next().and_then(|value| value.to_str());
            let is_address = |value: &&str| !value.contains(['"', '\\', '\n']);
            *place = value.filter(is_address).map(str::to_owned).ok_or_else(|| {
                Failure::usage(format!("demo: {}: expected an address after it, such as 127.0.0.1:8080", arg.display()))
            })?;
        }
        Ok(asked)
    }
}

fn configuration(http: &str, memcached: &str, wiki: SocketAddr) -> String {
    format!(
        "[pool.default]\nmemory = \"64MiB\"\n\n\
         [pool.pages]\nmemory = \"64MiB\"\n\n\
         [[listen]]\nmemcached = \"{memcached}\"\npool = \"default\"\n\n\
         [[listen]]\nhttp = \"{http}\"\npool = \"pages\"\norigin = \"http://{wiki}\"\n\n\
         [[route]]\nprefix = \"page:\"\npool = \"pages\"\n"
    )
}

/// A file that goes when it is not wanted any more.
struct File(PathBuf);

impl File {
    fn write(text: &str) -> Result<File, Failure> {
        let path: PathBuf = std::env::temp_dir().join(format!("nuthatch-demo-{}.toml", std::process::id()));
        let failed = |path: &Path, error: std::io::Error| {
            Failure::system(format!("{}: expected to write it: {error}", path.display()))
        };
        std::fs::write(&path, text).map_err(|error| failed(&path, error))?;
        Ok(File(path))
    }
}

impl Drop for File {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_taken_and_everything_else_is_a_flag() {
        let args: Vec<OsString> = ["-t", "2", "--http", "127.0.0.1:1", "-v"].map(OsString::from).to_vec();
        let Ok(asked) = Asked::read(&args) else { panic!("it is right") };
        assert_eq!((asked.http.as_str(), asked.memcached.as_str()), ("127.0.0.1:1", "127.0.0.1:11211"));
        assert_eq!(asked.flags, ["-t", "2", "-v"]);
        let Err(failure) = Asked::read(&[OsString::from("--http")]) else { panic!("an address is missing") };
        assert_eq!(failure.to_string(), "demo: --http: expected an address after it, such as 127.0.0.1:8080");
    }
}
