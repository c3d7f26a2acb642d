//! What the program was asked to do, from its name and its arguments.

use std::env;
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

use nuthatch_server::settings::{Asked, OWN_VERSION, Sources, VERSION, reference};

use crate::failure::Failure;
use crate::ring::Question;
use crate::{demo, ring, rows, say};

/// How the program was started.
pub(crate) struct Invocation {
    name: String,
    args: Vec<OsString>,
}

/// What to do.
pub(crate) enum Command {
    /// Run a server.
    Serve(Box<Sources>),
    /// Validate a configuration file.
    Check(PathBuf),
    /// Show what a page cache is for.
    Demo(Box<Sources>),
    /// Load a server and measure it.
    Bench(Vec<OsString>),
    /// Say where keys live.
    Ring(Box<Question>),
    /// Do something about SQL tables.
    Rows(rows::Asked),
    /// Print this and exit.
    Print(String),
}

impl Invocation {
    /// From the path the program was started by, and its arguments.
    pub(crate) fn new(program: &OsStr, args: Vec<OsString>) -> Invocation {
        let name = Path::new(program).file_name().unwrap_or(program).to_string_lossy().into_owned();
        Invocation { name, args }
    }

    /// The name to put before messages.
    pub(crate) fn name(&self) -> &str {
        if self.as_memcached() { "memcached" } else { "nuthatch" }
    }

    /// Whether the program was started in memcached's stead.
    pub(crate) fn as_memcached(&self) -> bool {
        matches!(self.name.as_str(), "memcached" | "memcached-debug")
    }

    /// What is to be done.
    pub(crate) fn command(&self) -> Result<Command, Failure> {
        if self.as_memcached() {
            return Ok(Command::Serve(Box::new(self.sources(&self.args))));
        }
        let Some((verb, rest)) = self.args.split_first() else {
            return Err(Failure::usage("expected a command, such as serve; `nuthatch help` lists them"));
        };
        match verb.to_str().unwrap_or_default() {
            "serve" => Ok(Command::Serve(Box::new(self.sources(rest)))),
            "check" => match rest {
                [flag] if flag == "--help" || flag == "-h" => Ok(Command::Print(say::HELP_CHECK.to_owned())),
                [path] => Ok(Command::Check(PathBuf::from(path))),
                _ => Err(Failure::usage("check: expected one configuration file, as in `nuthatch check FILE`")),
            },
            "demo" => Ok(Command::Demo(Box::new(self.sources(rest)))),
            "bench" => Ok(Command::Bench(rest.to_vec())),
            "rows" => Ok(match rows::Asked::read(rest)? {
                Some(asked) => Command::Rows(asked),
                None => Command::Print(rows::HELP.to_owned()),
            }),
            "ring" => Ok(match Question::read(rest)? {
                Some(question) => Command::Ring(Box::new(question)),
                None => Command::Print(ring::HELP.to_owned()),
            }),
            "version" | "-V" | "--version" => Ok(Command::Print(version(false))),
            "help" | "-h" | "--help" => help(rest),
            other => Err(Failure::usage(format!(
                "{other:?}: no such command, expected serve, demo, bench, check, ring, rows, help or version"
            ))),
        }
    }

    fn sources(&self, args: &[OsString]) -> Sources {
        let path = |name: &str| env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
        Sources {
            args: args.to_vec(),
            as_memcached: self.as_memcached(),
            debug_commands: self.name == "memcached-debug",
            port_file: path("MEMCACHED_PORT_FILENAME"),
            sasl_file: path("MEMCACHED_SASL_PWDB"),
        }
    }
}

/// What a flag of `serve` that only prints asks for.
pub(crate) fn asked(asked: Asked, as_memcached: bool) -> String {
    match asked {
        Asked::Help if as_memcached => reference::help_memcached(),
        Asked::Help => reference::help_serve(),
        Asked::Version => version(as_memcached),
        Asked::License => say::LICENSE.to_owned(),
    }
}

fn help(rest: &[OsString]) -> Result<Command, Failure> {
    let topic = rest.first().and_then(|topic| topic.to_str()).unwrap_or_default();
    Ok(Command::Print(match topic {
        "" => say::HELP.to_owned(),
        "serve" | "flags" => reference::help_serve(),
        "config" => reference::sample(),
        "check" => say::HELP_CHECK.to_owned(),
        "demo" => demo::HELP.to_owned(),
        "bench" => nuthatch_bench::help(),
        "ring" => ring::HELP.to_owned(),
        "rows" => rows::HELP.to_owned(),
        "memcached" => say::HELP_MEMCACHED.to_owned(),
        "help" | "version" => say::HELP.to_owned(),
        other => {
            return Err(Failure::usage(format!(
                "help {other:?}: no such topic, expected serve, config, check, demo, bench, ring, rows or memcached"
            )));
        }
    }))
}

/// Scripts take the second word of `memcached -V`, which is what the `version` command answers.
fn version(as_memcached: bool) -> String {
    match as_memcached {
        true => format!("memcached {VERSION} (Nuthatch {OWN_VERSION})\n"),
        false => format!("nuthatch {OWN_VERSION} (speaks memcached {VERSION})\n"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn command(program: &str, args: &[&str]) -> Result<Command, Failure> {
        Invocation::new(OsStr::new(program), args.iter().map(OsString::from).collect()).command()
    }

    #[test]
    fn the_name_memcached_means_serve() {
        for (program, is_debug) in [("memcached", false), ("/usr/bin/memcached", false), ("./memcached-debug", true)] {
            let Ok(Command::Serve(sources)) = command(program, &["-m", "64"]) else { panic!("{program}") };
            assert!(sources.as_memcached);
            assert_eq!(sources.debug_commands, is_debug, "{program}");
            assert_eq!(sources.args, ["-m", "64"]);
        }
        let Ok(Command::Serve(sources)) = command("nuthatch", &["serve", "-m", "64"]) else { panic!("serve") };
        assert!(!sources.as_memcached && !sources.debug_commands);
        assert_eq!(sources.args, ["-m", "64"]);
    }

    #[test]
    fn what_is_no_command_says_which_there_are() {
        for (args, sentence) in [
            (&[][..], "expected a command, such as serve; `nuthatch help` lists them"),
            (
                &["server"],
                "\"server\": no such command, expected serve, demo, bench, check, ring, rows, help or version",
            ),
            (&["check"], "check: expected one configuration file, as in `nuthatch check FILE`"),
            (
                &["help", "me"],
                "help \"me\": no such topic, expected serve, config, check, demo, bench, ring, rows or memcached",
            ),
        ] {
            let Err(failure) = command("nuthatch", args) else { panic!("{args:?}") };
            assert_eq!((failure.to_string().as_str(), failure.status(false)), (sentence, 2));
        }
    }
}
