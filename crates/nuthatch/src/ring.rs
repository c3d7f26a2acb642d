//! `nuthatch ring`: where keys live in the fleets of a configuration file, and why.

use std::ffi::OsString;
use std::fmt::Write as _;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;

use nuthatch_fleet::placement::Set;
use nuthatch_fleet::{Placement, ServerSpec, membership};
use nuthatch_server::settings::{FleetSettings, Loaded, Sources};

use crate::failure::Failure;
use crate::say;

/// `nuthatch help ring`
pub(crate) const HELP: &str = "\
Usage: nuthatch ring --config FILE [--fleet NAME] [--out SERVER]... KEY...

Prints a line for each key and each fleet of the file, or the one that is named: the key, the server it lives on, and why:
the distribution, the key's hash, the point of the ring or the score that this leads to, and the server that would come next.
No server is asked for anything; a list that is kept by a name server or by etcd is fetched once.

  --config FILE    the configuration file; `nuthatch help config` prints a sample
  --fleet NAME     this fleet only
  --out SERVER     as if this server, HOST:PORT or unix:PATH, were ejected; may be given several times
";

/// What is asked.
#[derive(Debug, Default)]
pub(crate) struct Question {
    config: PathBuf,
    fleet: Option<String>,
    out: Vec<String>,
    keys: Vec<Vec<u8>>,
}

impl Question {
    /// Reads the arguments after `ring`; `None` asks for help.
    pub(crate) fn read(args: &[OsString]) -> Result<Option<Question>, Failure> {
        let mut question = Question::default();
        let mut config = None;
        let mut words = args.iter();
        while let Some(word) = words.next() {
            let mut value = || {
                let name = word.to_string_lossy();
                words
                    .next()
                    .ok_or_else(|| Failure::usage(format!("ring: {name}: expected a value after it, found the end")))
            };
            match word.as_bytes() {
                b"--help" | b"-h" => return Ok(None),
                b"--config" => config = Some(PathBuf::from(value()?)),
                b"--fleet" => question.fleet = Some(value()?.to_string_lossy().into_owned()),
                b"--out" => question.out.push(value()?.to_string_lossy().into_owned()),
                // What follows is keys, whatever it looks like.
                b"--" => question.keys.extend(words.by_ref().map(|key| key.clone().into_vec())),
                flag if flag.starts_with(b"--") => {
                    let flag = word.to_string_lossy();
                    return Err(Failure::usage(format!(
                        "ring: {flag}: no such flag, expected --config, --fleet or --out"
                    )));
                }
                key => question.keys.push(key.to_vec()),
            }
        }
        question.config = config.ok_or_else(|| Failure::usage("ring: expected --config FILE"))?;
        if question.keys.is_empty() {
            return Err(Failure::usage("ring: expected a key, as in `nuthatch ring --config FILE KEY`"));
        }
        Ok(Some(question))
    }
}

/// Answers it on standard output.
pub(crate) fn ring(question: &Question) -> Result<(), Failure> {
    let sources = Sources { args: vec!["--config".into(), question.config.clone().into()], ..Sources::default() };
    let Loaded::Serve(settings, _) = sources.load()? else { return Ok(()) };
    let file = question.config.display();
    let fleets: Vec<&FleetSettings> = match &question.fleet {
        None => settings.fleets.iter().collect(),
        Some(name) => settings.fleets.iter().filter(|fleet| fleet.name == *name).collect(),
    };
    if fleets.is_empty() {
        let there: Vec<String> = settings.fleets.iter().map(|fleet| format!("[fleet.{}]", fleet.name)).collect();
        let there = if there.is_empty() { "none".to_owned() } else { there.join(", ") };
        let wanted = question.fleet.as_ref().map_or("[fleet.NAME]".to_owned(), |name| format!("[fleet.{name}]"));
        return Err(Failure::usage(format!("ring: expected {wanted} in {file}, there is {there}")));
    }
    let mut rows = Vec::new();
    for fleet in fleets {
        let placement = placement(fleet, &question.out)?;
        rows.extend(question.keys.iter().map(|key| row(fleet, &placement, key)));
    }
    let width = |column: usize| rows.iter().map(|row: &[String; 3]| row[column].chars().count()).max().unwrap_or(0);
    let widths = [width(0), width(1)];
    let mut text = String::new();
    for [key, server, why] in &rows {
        let _ = writeln!(text, "{key:0$}  {server:1$}  {why}", widths[0], widths[1]);
    }
    say::print(&text)
}

/// The fleet's placement without those in `out`.
fn placement(fleet: &FleetSettings, out: &[String]) -> Result<Placement, Failure> {
    let name = &fleet.name;
    let servers = servers(fleet)?;
    let placement = Placement::new(&fleet.placement, &servers)
        .map_err(|error| Failure::usage(format!("ring: fleet.{name}.{error}")))?;
    let mut ejected = Set::default();
    for text in out {
        let server = ServerSpec::parse(text)
            .map_err(|expected| Failure::usage(format!("ring: --out: expected {expected}, not {text}")))?;
        let index = servers.iter().position(|other| other.is_same_server(&server)).ok_or_else(|| {
            Failure::usage(format!("ring: --out: expected a server of fleet {name}, {server} is not listed"))
        })?;
        ejected.insert(index);
    }
    Ok(placement.without(&ejected))
}

/// The list of servers: the file's, or what its sources answer now.
fn servers(fleet: &FleetSettings) -> Result<Vec<ServerSpec>, Failure> {
    if let Some(servers) = membership::sources_are_fixed(&fleet.servers) {
        return Ok(servers);
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| Failure::system(format!("ring: expected to be able to wait: {error}")))?;
    let servers = runtime.block_on(membership::once(fleet));
    servers.map_err(|error| Failure::system(format!("ring: fleet.{}: {error}", fleet.name)))
}

fn row(fleet: &FleetSettings, placement: &Placement, key: &[u8]) -> [String; 3] {
    let why = placement.explain(key);
    let server = |index: usize| {
        let server = &placement.servers()[index];
        server.name.as_ref().map_or(server.to_string(), |name| format!("{server} ({name})"))
    };
    let mut text = format!("fleet {}, {}", fleet.name, fleet.placement.distribution.name());
    match why.hash {
        None => text.push_str(", the only server"),
        Some((name, hash)) => {
            let _ = write!(text, ", {name} {hash}");
        }
    }
    if let Some(point) = why.point {
        let _ = write!(text, ", point {point}");
    }
    if let Some(score) = why.score {
        let _ = write!(text, ", score {score}");
    }
    if let Some(next) = placement.candidates(key).nth(1) {
        let _ = write!(text, ", then {}", server(next));
    }
    [key.escape_ascii().to_string(), server(why.server), text]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(args: &[&str]) -> Result<Option<Question>, Failure> {
        Question::read(&args.iter().map(OsString::from).collect::<Vec<_>>())
    }

    #[test]
    fn arguments_are_flags_and_then_keys() {
        let question =
            read(&["--config", "n.toml", "a", "--out", "h:1", "--fleet", "f", "--", "--b"]).unwrap().unwrap();
        assert_eq!((question.config.to_str(), question.fleet.as_deref()), (Some("n.toml"), Some("f")));
        assert_eq!(
            (&question.out[..], &question.keys[..]),
            (&["h:1".to_owned()][..], &[b"a".to_vec(), b"--b".to_vec()][..])
        );
        assert!(read(&["--help"]).unwrap().is_none());
    }

    #[test]
    fn what_is_no_question_says_what_was_expected() {
        for (args, sentence) in [
            (&["k"][..], "ring: expected --config FILE"),
            (&["--config"], "ring: --config: expected a value after it, found the end"),
            (&["--config", "f"], "ring: expected a key, as in `nuthatch ring --config FILE KEY`"),
            (&["--conf", "f"], "ring: --conf: no such flag, expected --config, --fleet or --out"),
        ] {
            assert_eq!(read(args).unwrap_err().to_string(), sentence);
        }
    }
}
