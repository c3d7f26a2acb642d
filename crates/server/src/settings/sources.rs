//! Where settings come from, kept so that they can be read again.

use std::ffi::OsString;
use std::path::PathBuf;

use super::draft::{Asked, Draft};
use super::problem::{Note, Problem};
use super::{Settings, args, file};

/// A command line and what the environment says. Loading twice reads the file twice: that is a reload.
#[derive(Clone, Debug, Default)]
pub struct Sources {
    /// The arguments after the program's name (and after `serve`).
    pub args: Vec<OsString>,
    /// Started under memcached's name: words that are no flags are passed over, as memcached does.
    pub as_memcached: bool,
    /// Started as `memcached-debug`.
    pub debug_commands: bool,
    /// `MEMCACHED_PORT_FILENAME`
    pub port_file: Option<PathBuf>,
    /// `MEMCACHED_SASL_PWDB`
    pub sasl_file: Option<PathBuf>,
}

/// What the sources ask for.
#[derive(Clone, Debug, PartialEq)]
pub enum Loaded {
    /// Serve with these settings, and say these notes.
    Serve(Box<Settings>, Vec<Note>),
    /// Print something and exit.
    Print(Asked),
}

impl Sources {
    /// Reads the command line and the file it names.
    pub fn load(&self) -> Result<Loaded, Problem> {
        let line = args::parse(&self.args)?;
        let mut draft = Draft::default();
        // The flags are read twice: first for the file they name, then over it, since flags override the file.
        let mut first = Draft::default();
        args::apply(&line, &mut first)?;
        if let Some(asked) = first.asked {
            return Ok(Loaded::Print(asked));
        }
        if let Some(word) = line.words.first() {
            if !self.as_memcached {
                return Err(Problem::value(format!("{word:?}: expected a flag, such as -m 1024 or --config FILE")));
            }
            draft.notes.push(Note { always: false, text: format!("{word:?}: not a flag, passed over") });
        }
        draft.settings.debug_commands = self.debug_commands;
        draft.settings.sasl_file.clone_from(&self.sasl_file);
        draft.settings.process.port_file.clone_from(&self.port_file);
        if let Some(path) = &first.config {
            file::read(path, &mut draft)?;
        }
        args::apply(&line, &mut draft)?;
        let (settings, notes) = draft.finish()?;
        Ok(Loaded::Serve(Box::new(settings), notes))
    }
}
