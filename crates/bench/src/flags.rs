//! Flags as tables: each names itself, its default and what it does, so that parsing, help and their test share one source.

use std::ffi::OsString;
use std::fmt::Write as _;
use std::ops::RangeInclusive;
use std::str::FromStr;

use lexopt::Arg;

use crate::failure::Failure;

/// A flag that changes settings of type `S`.
pub(crate) struct Flag<S> {
    /// The one-letter form.
    pub(crate) short: Option<char>,
    /// The long form, without dashes.
    pub(crate) long: &'static str,
    /// What the value is called in help; empty for a switch, which takes none.
    pub(crate) value: &'static str,
    /// What holds without the flag, for help.
    pub(crate) default: &'static str,
    /// One line of help.
    pub(crate) advice: &'static str,
    /// Puts the value, or the switch's empty one, into the settings. The error says what was expected.
    pub(crate) apply: fn(&mut S, &str) -> Result<(), String>,
}

/// What a command line amounts to.
#[derive(Debug, PartialEq)]
pub(crate) enum Asked {
    /// To do the work.
    Run,
    /// To print help.
    Help,
}

/// Reads `args` into `settings`. Words that are no flags go to `word`.
pub(crate) fn parse<S>(
    flags: &[Flag<S>],
    settings: &mut S,
    args: impl IntoIterator<Item = OsString>,
    word: fn(&mut S, &str) -> Result<(), String>,
) -> Result<Asked, Failure> {
    let mut parser = lexopt::Parser::from_args(args);
    let usage = |problem: String| Failure::usage(format!("bench: {problem}"));
    while let Some(arg) = parser.next().map_err(|error| usage(error.to_string()))? {
        let flag = match arg {
            Arg::Value(text) => {
                let text = text.to_string_lossy().into_owned();
                word(settings, &text).map_err(|problem| usage(format!("{text:?}: {problem}")))?;
                continue;
            }
            Arg::Short('h') | Arg::Long("help") => return Ok(Asked::Help),
            Arg::Short(letter) => {
                let found = flags.iter().find(|flag| flag.short == Some(letter));
                found.ok_or_else(|| usage(format!("-{letter}: no such flag, `nuthatch help bench` lists them")))?
            }
            Arg::Long(name) => {
                let found = flags.iter().find(|flag| flag.long == name);
                found.ok_or_else(|| usage(format!("--{name}: no such flag, `nuthatch help bench` lists them")))?
            }
        };
        let name = flag.long;
        if flag.value.is_empty() {
            (flag.apply)(settings, "").map_err(|problem| usage(format!("--{name}: {problem}")))?;
            continue;
        }
        let value = parser.value().map_err(|_| usage(format!("--{name}: expected a value, {}", flag.value)))?;
        let value = value.to_string_lossy();
        (flag.apply)(settings, &value).map_err(|problem| usage(format!("--{name} {value}: {problem}")))?;
    }
    Ok(Asked::Run)
}

/// The lines of help for `flags`.
pub(crate) fn help<S>(flags: &[Flag<S>]) -> String {
    let left = |flag: &Flag<S>| {
        let short = flag.short.map_or("    ".to_owned(), |letter| format!("-{letter}, "));
        let value = if flag.value.is_empty() { String::new() } else { format!(" {}", flag.value) };
        format!("{short}--{}{value}", flag.long)
    };
    let width = flags.iter().map(|flag| left(flag).len()).max().unwrap_or(0);
    flags.iter().fold(String::new(), |mut text, flag| {
        let default = if flag.default.is_empty() { String::new() } else { format!(" [{}]", flag.default) };
        let _ = writeln!(text, "  {:width$}  {}{default}", left(flag), flag.advice);
        text
    })
}

/// A number within bounds.
pub(crate) fn number<T>(text: &str, bounds: RangeInclusive<T>) -> Result<T, String>
where
    T: FromStr + PartialOrd + std::fmt::Display,
{
    let expected = || format!("expected a number from {} to {}", bounds.start(), bounds.end());
    let number = text.replace('_', "").parse::<T>().map_err(|_| expected())?;
    if bounds.contains(&number) { Ok(number) } else { Err(expected()) }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Default)]
    struct Few {
        depth: u32,
        loud: bool,
        words: Vec<String>,
    }

    const FLAGS: &[Flag<Few>] = &[
        Flag {
            short: Some('d'),
            long: "depth",
            value: "N",
            default: "1",
            advice: "how deep",
            apply: |few, text| number(text, 1..=9).map(|depth| few.depth = depth),
        },
        Flag {
            short: None,
            long: "loud",
            value: "",
            default: "",
            advice: "louder",
            apply: |few, _| {
                few.loud = true;
                Ok(())
            },
        },
    ];

    fn read(args: &[&str]) -> Result<(Asked, Few), String> {
        let mut few = Few::default();
        let asked = parse(FLAGS, &mut few, args.iter().map(OsString::from), |few, word| {
            few.words.push(word.to_owned());
            Ok(())
        });
        asked.map(|asked| (asked, few)).map_err(|failure| failure.to_string())
    }

    #[test]
    fn short_long_and_words_are_read() {
        for args in [&["-d", "4", "--loud", "file"][..], &["file", "-d4", "--loud"], &["--depth=4", "file", "--loud"]] {
            let (asked, few) = read(args).unwrap();
            assert_eq!(asked, Asked::Run);
            assert_eq!((few.depth, few.loud, few.words), (4, true, vec!["file".to_owned()]));
        }
        assert_eq!(read(&["-h"]).unwrap().0, Asked::Help);
    }

    #[test]
    fn errors_name_the_flag_and_what_was_expected() {
        for (args, sentence) in [
            (&["--depth", "0"][..], "bench: --depth 0: expected a number from 1 to 9"),
            (&["-d", "x"], "bench: --depth x: expected a number from 1 to 9"),
            (&["-d"], "bench: --depth: expected a value, N"),
            (&["--deep"], "bench: --deep: no such flag, `nuthatch help bench` lists them"),
            (&["-x"], "bench: -x: no such flag, `nuthatch help bench` lists them"),
        ] {
            assert_eq!(read(args).err().unwrap(), sentence);
        }
    }

    #[test]
    fn help_has_a_line_for_each_flag() {
        assert_eq!(help(FLAGS), "  -d, --depth N  how deep [1]\n      --loud     louder\n");
    }

    #[test]
    fn times_have_units() {
        for (text, expected) in [("10", 10.0), ("0.5s", 0.5), ("500ms", 0.5), ("2m", 120.0), ("1h", 3600.0)] {
            assert_eq!(seconds(text), Ok(expected));
        }
        for text in ["", "x", "-1", "inf", "1d"] {
            assert!(seconds(text).is_err(), "{text}");
        }
    }
}
