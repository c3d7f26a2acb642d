//! Reads a command line into the draft, as `getopt_long` does for memcached: `-m1024`, `-m 1024`, `-vvMd`, `--memory-limit=1024`,
//! `--memory-limit 1024`, flags and other words in any order, `--` to end the flags.

use std::ffi::OsString;

use super::draft::Draft;
use super::knob::{Effect, Knob};
use super::problem::{Note, Problem};
use super::{extended, flags};

/// One flag that was given.
pub(super) struct Given {
    knob: &'static Knob<Draft>,
    /// As it was written: `-m`, `--memory-limit`.
    written: String,
    value: Option<String>,
}

/// What a command line holds. Nothing was looked at but its form.
#[derive(Default)]
pub(super) struct CommandLine {
    pub(super) flags: Vec<Given>,
    /// Words that are no flags.
    pub(super) words: Vec<String>,
}

/// Takes a command line apart. What follows a flag that only prints and exits is not looked at.
pub(super) fn parse(args: &[OsString]) -> Result<CommandLine, Problem> {
    let mut line = CommandLine::default();
    let mut rest = args.iter();
    while let Some(arg) = rest.next() {
        let arg = text(arg)?;
        if arg == "--" {
            for word in rest.by_ref() {
                line.words.push(text(word)?);
            }
        } else if let Some(long) = arg.strip_prefix("--") {
            let (name, value) = match long.split_once('=') {
                Some((name, value)) => (name, Some(value.to_owned())),
                None => (long, None),
            };
            let written = format!("--{name}");
            let knob = flags::by_name(name).ok_or_else(|| unknown(&written))?;
            let value = match value {
                Some(_) if is_switch(knob) => {
                    return Err(Problem::value(format!("{written}: expected no value, it is on or left out")));
                }
                None if knob.needs_value() => Some(next_value(&mut rest, knob, &written)?),
                value => value,
            };
            line.flags.push(Given { knob, written, value });
        } else if arg.len() > 1 && arg.starts_with('-') {
            for (at, letter) in arg.char_indices().skip(1) {
                let written = format!("-{letter}");
                let knob = flags::by_letter(letter).ok_or_else(|| unknown(&written))?;
                if !knob.needs_value() {
                    line.flags.push(Given { knob, written, value: None });
                    continue;
                }
                let attached = &arg[at + letter.len_utf8()..];
                let value = match attached {
                    "" => next_value(&mut rest, knob, &written)?,
                    attached => attached.to_owned(),
                };
                line.flags.push(Given { knob, written, value: Some(value) });
                break;
            }
        } else {
            line.words.push(arg);
        }
        if line.flags.last().is_some_and(|given| matches!(given.knob.name, "help" | "version" | "license")) {
            break;
        }
    }
    Ok(line)
}

/// Puts the flags into the draft, in order.
pub(super) fn apply(line: &CommandLine, draft: &mut Draft) -> Result<(), Problem> {
    for given in &line.flags {
        // memcached skips blanks before a value.
        let value = given.value.as_deref().map(str::trim_start);
        set(given.knob, &given.written, value, draft)?;
    }
    for list in std::mem::take(&mut draft.extended) {
        apply_extended(&list, draft)?;
    }
    Ok(())
}

/// Puts one value of `-o` into the draft.
fn apply_extended(list: &str, draft: &mut Draft) -> Result<(), Problem> {
    for option in list.split(',') {
        let (name, value) = match option.split_once('=') {
            Some((name, value)) => (name, Some(value)),
            None => (option, None),
        };
        let written = format!("-o {name}");
        let knob = extended::by_name(name)
            .ok_or_else(|| Problem::value(format!("-o {name:?}: no such option, expected one that -h lists")))?;
        // memcached takes `maxconns_fast=1` and looks at the name alone.
        let value = value.filter(|_| !is_switch(knob));
        if value.is_none() && knob.needs_value() {
            return Err(Problem::value(format!("{written}: expected {}, after an equals sign", knob.expected())));
        }
        set(knob, &written, value, draft)?;
    }
    Ok(())
}

fn set(knob: &Knob<Draft>, written: &str, value: Option<&str>, draft: &mut Draft) -> Result<(), Problem> {
    let with_value = || value.map_or_else(|| written.to_owned(), |value| format!("{written} {value}"));
    match knob.effect {
        Effect::Refused(reason) => return Err(Problem::combination(format!("{}: {reason}", with_value()))),
        Effect::Nothing => {
            draft.notes.push(Note {
                always: false,
                text: format!("{written}: accepted, nothing here for it to act on: {}", knob.about),
            });
        }
        Effect::Unmet(reason) => draft.notes.push(Note { always: true, text: format!("{written}: {reason}") }),
        Effect::Works => {}
    }
    if knob.set(draft, value) {
        Ok(())
    } else {
        let given = value.filter(|given| !given.is_empty()).unwrap_or("nothing");
        Err(Problem::value(format!("{written}: expected {}, not {given}", knob.expected())))
    }
}

fn next_value<'a>(
    rest: &mut impl Iterator<Item = &'a OsString>,
    knob: &Knob<Draft>,
    written: &str,
) -> Result<String, Problem> {
    match rest.next() {
        Some(value) => text(value),
        None => Err(Problem::value(format!("{written}: expected {} after it, found the end", knob.expected()))),
    }
}

fn is_switch(knob: &Knob<Draft>) -> bool {
    matches!(knob.action, super::knob::Action::Switch(_))
}

fn unknown(written: &str) -> Problem {
    Problem::value(format!("{written}: no such flag, expected one that -h lists"))
}

fn text(arg: &OsString) -> Result<String, Problem> {
    arg.to_str().map(str::to_owned).ok_or_else(|| Problem::value(format!("{arg:?}: expected an argument in UTF-8")))
}
