//! `nuthatch rows`: what is done about SQL tables once, by hand.

use std::ffi::OsString;
use std::path::PathBuf;

use nuthatch_rows::Database;
use nuthatch_server::backend::table;
use nuthatch_server::settings::{Loaded, Sources};

use crate::failure::Failure;
use crate::say;

/// `nuthatch help rows`
pub(crate) const HELP: &str = "\
Usage: nuthatch rows import URL
       nuthatch rows triggers --config FILE [NAME]

import reads the tables with which MySQL's InnoDB memcached plugin was set (database innodb_memcache) and prints a configuration
file: a listener, and a pool and a table for each of its mappings. URL is mysql://USER:PASSWORD@HOST/DATABASE; without a password
in it, the environment variable NUTHATCH_PASSWORD is taken. No password is printed.

triggers prints, for every table of the file or the one that is named, SQL by which its database tells of changes that others
make. Only PostgreSQL needs any; run it as the table's owner, as in: nuthatch rows triggers --config FILE | psql DATABASE
";

/// What is asked.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Asked {
    /// Mappings of the plugin at this URL.
    Import(String),
    /// Triggers of the tables of a file, or of one of them.
    Triggers(PathBuf, Option<String>),
}

impl Asked {
    /// Reads the arguments after `rows`; `None` asks for help.
    pub(crate) fn read(args: &[OsString]) -> Result<Option<Asked>, Failure> {
        let words: Vec<&str> = args.iter().map(|arg| arg.to_str().unwrap_or_default()).collect();
        match words[..] {
            ["--help" | "-h"] => Ok(None),
            ["import", url] => Ok(Some(Asked::Import(url.to_owned()))),
            ["triggers", "--config", _] => Ok(Some(Asked::Triggers(PathBuf::from(&args[2]), None))),
            ["triggers", "--config", _, name] => {
                Ok(Some(Asked::Triggers(PathBuf::from(&args[2]), Some(name.to_owned()))))
            }
            _ => Err(Failure::usage("rows: expected `import URL` or `triggers --config FILE [NAME]`")),
        }
    }
}

/// Does it.
pub(crate) fn rows(asked: &Asked) -> Result<(), Failure> {
    match asked {
        Asked::Import(url) => {
            let mut database = Database::new(url).map_err(|error| Failure::usage(format!("rows import: {error}")))?;
            database.password = std::env::var("NUTHATCH_PASSWORD").ok();
            let text = nuthatch_rows::import(&database);
            say::print(&text.map_err(|error| Failure::system(format!("rows import: {error}")))?)
        }
        Asked::Triggers(path, name) => {
            let sources = Sources { args: vec!["--config".into(), path.into()], ..Sources::default() };
            let Loaded::Serve(settings, _) = sources.load()? else { return Ok(()) };
            let is_asked = |table: &str| name.as_ref().is_none_or(|name| name == table);
            let tables: Vec<_> = settings.tables.iter().filter(|table| is_asked(&table.rows.name)).collect();
            if tables.is_empty() {
                let wanted = name.as_ref().map_or("[table.NAME]".to_owned(), |name| format!("[table.{name}]"));
                return Err(Failure::usage(format!("rows triggers: expected {wanted} in {}", path.display())));
            }
            for table in tables {
                let text = table::triggers(table);
                let text = text.map_err(|error| Failure::system(format!("table.{}: {error}", table.rows.name)))?;
                say::print(&text)?;
            }
            Ok(())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_asked_is_read_or_refused_with_what_there_is() {
        let read = |words: &[&str]| Asked::read(&words.iter().map(OsString::from).collect::<Vec<_>>());
        assert_eq!(read(&["import", "mysql://h/d"]).unwrap(), Some(Asked::Import("mysql://h/d".to_owned())));
        let triggers = Asked::Triggers("f".into(), Some("a".to_owned()));
        assert_eq!(read(&["triggers", "--config", "f", "a"]).unwrap(), Some(triggers));
        assert_eq!(read(&["-h"]).unwrap(), None);
        for wrong in [&[][..], &["import"], &["triggers", "f"], &["drop"]] {
            let sentence = read(wrong).unwrap_err().to_string();
            assert_eq!(sentence, "rows: expected `import URL` or `triggers --config FILE [NAME]`");
        }
    }
}
