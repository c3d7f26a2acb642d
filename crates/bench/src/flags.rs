//! Command lines: read by clap, their errors worded as everywhere else in the program, and what several commands take.
//!
//! Each command is a struct with a field for each flag. What a flag is called, holds by default and means stands there and
//! nowhere else.

use std::error::Error as _;
use std::ffi::OsString;
use std::ops::RangeInclusive;
use std::str::FromStr;

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Args, Parser};

use crate::address::Address;
use crate::failure::Failure;
use crate::wire::Protocol;

/// What a command line amounts to.
#[derive(Debug, PartialEq)]
pub(crate) enum Asked<T> {
    /// To do the work.
    Run(T),
    /// To print this help.
    Help(String),
}

/// What every command that drives a server with requests of its own takes.
#[derive(Args, Clone, Debug, PartialEq)]
pub(crate) struct Common {
    /// the server: HOST:PORT, or the path of a UNIX socket such as /run/cache.sock
    #[arg(short, long, value_name = "ADDRESS", default_value = "127.0.0.1:11211", value_parser = Address::parse)]
    pub(crate) server: Address,
    /// what the server is spoken to in: text, meta or binary
    #[arg(short, long, value_name = "NAME", default_value = "text", value_parser = protocol)]
    pub(crate) protocol: Protocol,
    /// a number that decides keys, values and their order
    #[arg(long, value_name = "N", default_value = "1", value_parser = number::<u64>(0..=u64::MAX))]
    pub(crate) seed: u64,
    /// compare every value with what was stored, byte for byte
    #[arg(long)]
    pub(crate) verify: bool,
    /// the server's process, such as 4711, to tell its CPU time and memory
    #[arg(long, value_name = "PID", value_parser = number::<u32>(1..=u32::MAX))]
    pub(crate) server_pid: Option<u32>,
    /// print the result as JSON
    #[arg(long)]
    pub(crate) json: bool,
    /// show no progress
    #[arg(short, long)]
    pub(crate) quiet: bool,
}

/// Reads a command line, without the words that name the command.
pub(crate) fn parse<T: Parser>(args: impl IntoIterator<Item = OsString>) -> Result<Asked<T>, Failure> {
    let command = T::command().args_override_self(true);
    let name = command.get_name().to_owned();
    let words = std::iter::once(OsString::from(&name)).chain(args);
    match command.try_get_matches_from(words).and_then(|matches| T::from_arg_matches(&matches)) {
        Ok(settings) => Ok(Asked::Run(settings)),
        Err(error) if error.kind() == ErrorKind::DisplayHelp => Ok(Asked::Help(error.to_string())),
        Err(error) => Err(Failure::usage(format!("bench: {}", sentence(&error, &name)))),
    }
}

/// The help of a command.
pub(crate) fn help<T: Parser>() -> String {
    T::command().render_help().to_string()
}

/// What clap says in several lines, in one sentence.
fn sentence(error: &clap::Error, command: &str) -> String {
    let told = |kind| match error.get(kind) {
        Some(ContextValue::String(text)) => text.as_str(),
        Some(ContextValue::Strings(texts)) => texts.first().map_or("", String::as_str),
        _ => "",
    };
    // As help writes it: `--depth <N>`.
    let (arg, value) = (told(ContextKind::InvalidArg), told(ContextKind::InvalidValue));
    let (flag, value_name) = arg.split_once(' ').unwrap_or((arg, ""));
    let value_name = value_name.trim_matches(['<', '>']);
    match error.kind() {
        ErrorKind::ValueValidation => {
            let expected = error.source().map_or_else(|| "expected another value".to_owned(), ToString::to_string);
            format!("{flag} {value}: {expected}")
        }
        ErrorKind::InvalidValue => format!("{flag}: expected a value, {value_name}"),
        ErrorKind::TooManyValues => format!("{flag} {value}: expected no value, it is on or left out"),
        ErrorKind::UnknownArgument if arg.starts_with('-') => {
            format!("{arg}: no such flag, `{command} --help` lists them")
        }
        ErrorKind::UnknownArgument => {
            format!("{arg:?}: expected no more words, `{command} --help` says which there are")
        }
        ErrorKind::MissingRequiredArgument => {
            format!("expected {} after `{command}`, whose --help says what it is", arg.trim_matches(['<', '>']))
        }
        _ => {
            let said = error.to_string();
            said.lines().next().unwrap_or_default().trim_start_matches("error: ").to_owned()
        }
    }
}

/// Reads a number within bounds; underscores part its digits.
pub(crate) fn number<T>(bounds: RangeInclusive<T>) -> impl Fn(&str) -> Result<T, String> + Clone + Send + Sync + 'static
where
    T: FromStr + PartialOrd + std::fmt::Display + Clone + Send + Sync + 'static,
{
    move |text| match text.replace('_', "").parse::<T>() {
        Ok(number) if bounds.contains(&number) => Ok(number),
        _ => Err(format!("expected a number from {} to {}", bounds.start(), bounds.end())),
    }
}

/// A time in seconds: `10`, `0.5`, `10s`, `500ms`, `2m`, `1h`.
pub(crate) fn seconds(text: &str) -> Result<f64, String> {
    let (number, unit_seconds) = match text {
        _ if text.ends_with("ms") => (&text[..text.len() - 2], 0.001),
        _ if text.ends_with('s') => (&text[..text.len() - 1], 1.0),
        _ if text.ends_with('m') => (&text[..text.len() - 1], 60.0),
        _ if text.ends_with('h') => (&text[..text.len() - 1], 3600.0),
        _ => (text, 1.0),
    };
    match number.parse::<f64>() {
        Ok(number) if number.is_finite() && (0.0..=1e7).contains(&number) => Ok(number * unit_seconds),
        _ => Err("expected a time such as 10, 0.5, 500ms or 2m".to_owned()),
    }
}

/// A time above 0 in seconds.
pub(crate) fn some_seconds(text: &str) -> Result<f64, String> {
    match seconds(text)? {
        time if time > 0.0 => Ok(time),
        _ => Err("expected a time above 0".to_owned()),
    }
}

/// A protocol's name.
pub(crate) fn protocol(text: &str) -> Result<Protocol, String> {
    match text {
        "text" => Ok(Protocol::Text),
        "meta" => Ok(Protocol::Meta),
        "binary" => Ok(Protocol::Binary),
        _ => Err("expected text, meta or binary".to_owned()),
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// The settings of a command that is given no flag.
    pub(crate) fn defaults<T: Parser>() -> T {
        match parse(std::iter::empty()) {
            Ok(Asked::Run(settings)) => settings,
            _ => unreachable!("every flag may be left out"),
        }
    }

    /// Checks that help teaches every flag of a command: one line of advice each, for one that takes a value what holds
    /// without it or an example, and every example is understood. `words` are those the command cannot do without.
    pub(crate) fn help_teaches_every_flag<T: Parser>(words: &[&str]) {
        let mut command = T::command();
        command.build();
        for flag in command.get_arguments() {
            let advice = flag.get_help().expect("advice").to_string();
            assert!(!advice.contains('\n') && advice.len() < 110, "{flag}: {advice}");
            let takes_value = flag.get_num_args().is_some_and(|count| count.takes_values());
            let example = advice.split_once("such as ").map(|(_, rest)| rest.split_whitespace().next().unwrap());
            assert!(
                !takes_value || flag.is_positional() || !flag.get_default_values().is_empty() || example.is_some(),
                "{flag}: {advice}"
            );
            if let (Some(example), false) = (example, flag.is_positional()) {
                let given = format!("--{}={}", flag.get_long().unwrap(), example.trim_end_matches([',', ';', ':']));
                let words = words.iter().map(OsString::from).chain([OsString::from(given)]);
                // A flag may want another beside it.
                let matches = command.clone().try_get_matches_from(std::iter::once(OsString::new()).chain(words));
                assert!(matches.is_ok(), "{flag}: {example}: {}", matches.unwrap_err());
            }
        }
    }

    #[derive(Parser, Debug)]
    #[command(name = "nuthatch bench few")]
    struct Few {
        /// how deep
        #[arg(short, long, value_name = "N", default_value = "1", value_parser = number::<u32>(1..=9))]
        depth: u32,
        /// louder
        #[arg(long)]
        loud: bool,
        /// what to read
        file: String,
    }

    fn read(args: &[&str]) -> Result<Asked<Few>, String> {
        parse(args.iter().map(OsString::from)).map_err(|failure| failure.to_string())
    }

    #[test]
    fn short_long_and_words_are_read() {
        for args in [&["-d", "4", "--loud", "file"][..], &["file", "-d4", "--loud"], &["--depth=4", "file", "--loud"]] {
            let Ok(Asked::Run(few)) = read(args) else { panic!("{args:?}") };
            assert_eq!((few.depth, few.loud, few.file.as_str()), (4, true, "file"));
        }
        let Ok(Asked::Run(few)) = read(&["-d3", "file", "-d", "5"]) else { panic!("the last one holds") };
        assert_eq!(few.depth, 5);
        assert!(
            matches!(read(&["-h"]), Ok(Asked::Help(text)) if text.contains("-d, --depth <N>  how deep [default: 1]"))
        );
    }

    #[test]
    fn errors_name_the_flag_and_what_was_expected() {
        for (args, sentence) in [
            (&["f", "--depth", "0"][..], "bench: --depth 0: expected a number from 1 to 9"),
            (&["f", "-d", "x"], "bench: --depth x: expected a number from 1 to 9"),
            (&["f", "-d"], "bench: --depth: expected a value, N"),
            (&["f", "--loud=yes"], "bench: --loud yes: expected no value, it is on or left out"),
            (&["--deep"], "bench: --deep: no such flag, `nuthatch bench few --help` lists them"),
            (&["-x"], "bench: -x: no such flag, `nuthatch bench few --help` lists them"),
            (&["f", "g"], "bench: \"g\": expected no more words, `nuthatch bench few --help` says which there are"),
            (&["-d4"], "bench: expected FILE after `nuthatch bench few`, whose --help says what it is"),
        ] {
            assert_eq!(read(args).unwrap_err(), sentence);
        }
    }

    #[test]
    fn times_have_units() {
        for (text, expected) in [("10", 10.0), ("0.5s", 0.5), ("500ms", 0.5), ("2m", 120.0), ("1h", 3600.0)] {
            assert_eq!(seconds(text), Ok(expected));
        }
        for text in ["", "x", "-1", "inf", "1d"] {
            assert!(seconds(text).is_err(), "{text}");
        }
        assert_eq!(some_seconds("0"), Err("expected a time above 0".to_owned()));
    }
}
