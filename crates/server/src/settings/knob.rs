//! A knob: one thing an operator can set, and everything known about it in one place.
//!
//! The tables in `flags`, `extended` and `keys` are made of knobs. A knob's entry parses its value, bounds it, words the error,
//! prints its line of `--help` and its row of the reference page. A bound or a default is written nowhere else.

use std::fmt;
use std::time::Duration;

/// One thing that can be set, on a draft of type `T`.
pub(super) struct Knob<T: 'static> {
    /// The long flag, the `-o` option or the key in the file.
    pub(super) name: &'static str,
    /// The one-letter flag.
    pub(super) short: Option<char>,
    /// What the value stands for in help, e.g. `<num>`; empty when there is none.
    pub(super) metavar: &'static str,
    /// The value in force when nothing is said, as an operator would write it.
    pub(super) default: &'static str,
    /// What it does, in a line.
    pub(super) about: &'static str,
    /// Whether it does it.
    pub(super) effect: Effect,
    /// Whether `-h` under the name `memcached` leaves it out: test suites look there for what a server can do.
    pub(super) hidden: bool,
    /// What a reload does with another value in the file.
    pub(super) reload: OnReload,
    /// How the value is read and where it goes.
    pub(super) action: Action<T>,
}

/// From when on a value counts that is another one when the file is read again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum OnReload {
    /// The reload.
    Now,
    /// The reload, for connections that are made after it.
    NewConnections,
    /// The next start; the reload says that it is waited for.
    Restart,
}

/// Whether a knob has something to act on here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Effect {
    /// It does what it says.
    Works,
    /// Accepted, checked and reported, and nothing else: there is no such mechanism here. Said at `-v`.
    Nothing,
    /// As `Nothing`, but whoever asked wanted protection: always said.
    Unmet(&'static str),
    /// Start-up stops, with this reason: going on without it would lose data or safety.
    Refused(&'static str),
}

/// What values a knob takes, and where they go.
pub(super) enum Action<T: 'static> {
    /// No value on a command line, `true` or `false` in a file.
    Switch(fn(&mut T, bool)),
    /// A whole number in bounds, both included.
    Integer {
        /// Smallest.
        min: i64,
        /// Largest.
        max: i64,
        /// What a missing value means; `None` when one is needed.
        missing: Option<i64>,
        /// Takes it.
        set: fn(&mut T, i64),
    },
    /// A number strictly between two bounds.
    Real {
        /// Exclusive lower bound.
        above: f64,
        /// Exclusive upper bound; infinite for none.
        below: f64,
        /// Takes it.
        set: fn(&mut T, f64),
    },
    /// An amount of memory, in bytes once read.
    Size {
        /// What a bare number counts.
        unit: u64,
        /// Smallest, in bytes.
        min: u64,
        /// Largest, in bytes.
        max: u64,
        /// Takes it.
        set: fn(&mut T, u64),
    },
    /// A time in seconds.
    Seconds(fn(&mut T, u32)),
    /// A time that may be shorter than a second.
    Time {
        /// Shortest.
        min: Duration,
        /// Takes it.
        set: fn(&mut T, Duration),
    },
    /// One of some words.
    Choice(&'static [&'static str], fn(&mut T, &str)),
    /// A table of the file, with keys of its own that act on the same draft once it was opened.
    Table {
        /// What may stand in it.
        keys: &'static [Knob<T>],
        /// Takes note of it.
        open: fn(&mut T),
    },
    /// Texts of one line each, none empty: an array of at least one, or one alone. Each is taken by itself.
    List {
        /// What each should be, to end the sentence "expected an array of strings, each …".
        expected: &'static str,
        /// Adds one; the error ends the sentence "expected …".
        add: fn(&mut T, &str) -> Result<(), String>,
    },
    /// The same of texts that are kept as they are.
    Texts {
        /// What each should be, as in [`Action::List`].
        expected: &'static str,
        /// Where they are kept.
        list: fn(&mut T) -> &mut Vec<String>,
        /// Whether one is of the expected form.
        is_right: fn(&str) -> bool,
    },
    /// Text; false says that it is not of the expected form.
    Text {
        /// What it should be, to end the sentence "expected …".
        expected: &'static str,
        /// Takes it.
        set: fn(&mut T, &str) -> bool,
    },
}

impl<T> Knob<T> {
    /// A knob that works and has no short form.
    pub(super) const fn new(name: &'static str, about: &'static str, action: Action<T>) -> Knob<T> {
        let (effect, reload) = (Effect::Works, OnReload::Now);
        Knob { name, short: None, metavar: "", default: "", about, effect, hidden: false, reload, action }
    }

    /// With a one-letter form.
    pub(super) const fn short(mut self, letter: char) -> Knob<T> {
        self.short = Some(letter);
        self
    }

    /// With a word for its value.
    pub(super) const fn takes(mut self, metavar: &'static str) -> Knob<T> {
        self.metavar = metavar;
        self
    }

    /// With the value in force when nothing is said.
    pub(super) const fn default(mut self, default: &'static str) -> Knob<T> {
        self.default = default;
        self
    }

    /// With nothing to act on, partly or wholly.
    pub(super) const fn effect(mut self, effect: Effect) -> Knob<T> {
        self.effect = effect;
        self
    }

    /// Another value in the file counts for new connections only.
    pub(super) const fn for_new_connections(mut self) -> Knob<T> {
        self.reload = OnReload::NewConnections;
        self
    }

    /// Another value in the file waits for a restart.
    pub(super) const fn at_restart(mut self) -> Knob<T> {
        self.reload = OnReload::Restart;
        self
    }

    /// Left out of memcached's help.
    pub(super) const fn hidden(mut self) -> Knob<T> {
        self.hidden = true;
        self
    }

    /// Whether a command line has to give a value.
    pub(super) fn needs_value(&self) -> bool {
        !matches!(self.action, Action::Switch(_) | Action::Integer { missing: Some(_), .. })
    }

    /// What values are right, to end the sentence "expected …".
    pub(super) fn expected(&self) -> String {
        match &self.action {
            Action::Switch(_) => "true or false".to_owned(),
            Action::Integer { min, max: i64::MAX, .. } => format!("a whole number from {min} up"),
            Action::Integer { min, max, .. } => format!("a whole number from {min} to {max}"),
            Action::Real { above, below, .. } if below.is_infinite() => format!("a number greater than {above}"),
            Action::Real { above, below, .. } => format!("a number between {above} and {below}"),
            Action::Size { unit, min, max: u64::MAX, .. } => {
                format!("a size from {} up{}", Bytes(*min), unit_note(*unit))
            }
            Action::Size { unit, min, max, .. } => {
                format!("a size from {} to {}{}", Bytes(*min), Bytes(*max), unit_note(*unit))
            }
            Action::Seconds(_) => "a time in seconds, such as 30, 90s, 5m or 2h".to_owned(),
            Action::Time { min, .. } if min.is_zero() => {
                "a time, such as 250ms, 4s, 5m or a number of seconds".to_owned()
            }
            Action::Time { min, .. } => format!("a time from {min:?} up, such as 250ms, 4s, 5m or a number of seconds"),
            Action::Choice(words, _) => format!("one of {}", words.join(", ")),
            Action::List { expected, .. } | Action::Texts { expected, .. } => {
                format!("an array of strings, each {expected}")
            }
            Action::Table { .. } => "a table".to_owned(),
            Action::Text { expected, .. } => (*expected).to_owned(),
        }
    }

    /// Whether its value is a list, of which [`Knob::add`] takes each text.
    pub(super) fn is_list(&self) -> bool {
        matches!(self.action, Action::List { .. } | Action::Texts { .. })
    }

    /// Takes one element of a list, if it is a text. The error ends the sentence "expected …".
    pub(super) fn add(&self, draft: &mut T, text: Option<&str>) -> Result<(), String> {
        match (&self.action, text) {
            (Action::List { add, .. }, Some(text)) => add(draft, text),
            (Action::Texts { list, is_right, .. }, Some(text)) if is_right(text) => {
                list(draft).push(text.to_owned());
                Ok(())
            }
            (Action::List { expected, .. } | Action::Texts { expected, .. }, _) => Err((*expected).to_owned()),
            _ => Err(self.expected()),
        }
    }

    /// Reads `value` and puts it into the draft. `None` means that no value was given. False when it is not as expected.
    pub(super) fn set(&self, draft: &mut T, value: Option<&str>) -> bool {
        let given = value.unwrap_or("");
        match &self.action {
            Action::Switch(set) => match value {
                None | Some("true") => set(draft, true),
                Some("false") => set(draft, false),
                Some(_) => return false,
            },
            Action::Integer { missing: Some(missing), set, .. } if value.is_none() => set(draft, *missing),
            Action::Integer { min, max, set, .. } => match given.parse() {
                Ok(number) if (*min..=*max).contains(&number) => set(draft, number),
                _ => return false,
            },
            Action::Real { above, below, set } => match given.parse::<f64>() {
                Ok(number) if number > *above && number < *below => set(draft, number),
                _ => return false,
            },
            Action::Size { unit, min, max, set } => match size(given, *unit) {
                Some(bytes) if (*min..=*max).contains(&bytes) => set(draft, bytes),
                _ => return false,
            },
            Action::Seconds(set) => match seconds(given) {
                Some(number) => set(draft, number),
                None => return false,
            },
            Action::Time { min, set } => match time(given) {
                Some(time) if time >= *min => set(draft, time),
                _ => return false,
            },
            Action::Choice(words, set) => match words.contains(&given) {
                true => set(draft, given),
                false => return false,
            },
            // Its keys, or its elements, are set one by one.
            Action::Table { .. } | Action::List { .. } | Action::Texts { .. } => return false,
            Action::Text { set, .. } => return set(draft, given),
        }
        true
    }
}

/// Reads a size: digits, then nothing (counting `unit` bytes each) or `k`, `m`, `g` in any case, optionally with `b` or `ib`
/// after it; all are powers of 1024.
pub(super) fn size(text: &str, unit: u64) -> Option<u64> {
    let digits_end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let number: u64 = text[..digits_end].parse().ok()?;
    let scale = match text[digits_end..].trim_start().to_ascii_lowercase().as_str() {
        "" => unit,
        "b" => 1,
        "k" | "kb" | "kib" => 1 << 10,
        "m" | "mb" | "mib" => 1 << 20,
        "g" | "gb" | "gib" => 1 << 30,
        _ => return None,
    };
    number.checked_mul(scale)
}

/// Reads a time: digits, then nothing or `s` for seconds, `m` for minutes, `h` for hours, `d` for days.
pub(super) fn seconds(text: &str) -> Option<u32> {
    let (digits, scale) = match text.as_bytes().last()? {
        b's' => (&text[..text.len() - 1], 1),
        b'm' => (&text[..text.len() - 1], 60),
        b'h' => (&text[..text.len() - 1], 3600),
        b'd' => (&text[..text.len() - 1], 86400),
        _ => (text, 1),
    };
    if !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    digits.parse::<u32>().ok()?.checked_mul(scale)
}

/// Reads a time: as `seconds`, or digits and `ms`.
fn time(text: &str) -> Option<Duration> {
    let short = [("ms", Duration::from_millis as fn(u64) -> Duration), ("us", Duration::from_micros)];
    let Some((digits, unit)) = short.iter().find_map(|(suffix, unit)| Some((text.strip_suffix(suffix)?, unit))) else {
        return seconds(text).map(|seconds| Duration::from_secs(u64::from(seconds)));
    };
    let is_number = digits.bytes().all(|byte| byte.is_ascii_digit());
    digits.parse().ok().filter(|_| is_number).map(|number: u32| unit(u64::from(number)))
}

/// A number of bytes as an operator writes it, e.g. `64 MiB`.
pub struct Bytes(pub u64);

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (scale, name) = match self.0 {
            0 => (1, "bytes"),
            n if n % (1 << 30) == 0 => (1 << 30, "GiB"),
            n if n % (1 << 20) == 0 => (1 << 20, "MiB"),
            n if n % (1 << 10) == 0 => (1 << 10, "KiB"),
            _ => (1, "bytes"),
        };
        write!(f, "{} {name}", self.0 / scale)
    }
}

/// What a bare number means where that is not bytes.
fn unit_note(unit: u64) -> &'static str {
    match unit {
        0x400 => " (a bare number is KiB)",
        0x10_0000 => " (a bare number is MiB)",
        _ => ", such as 512k, 2m or 1GiB",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_powers_of_1024_in_every_spelling() {
        assert_eq!(size("1024", 1), Some(1024));
        assert_eq!(size("64", 1 << 20), Some(64 << 20));
        for spelling in ["2m", "2M", "2mb", "2MiB", "2 MiB"] {
            assert_eq!(size(spelling, 1), Some(2 << 20), "{spelling}");
        }
        assert_eq!(size("1g", 1 << 20), Some(1 << 30));
        for wrong in ["", "m", "-1", "1.5m", "1t", "m1", "1mm", "18446744073709551615k"] {
            assert_eq!(size(wrong, 1), None, "{wrong}");
        }
    }

    #[test]
    fn times_are_seconds_unless_they_say_otherwise() {
        assert_eq!(
            ["30", "90s", "5m", "2h", "1d"].map(seconds),
            [Some(30), Some(90), Some(300), Some(7200), Some(86400)]
        );
        for wrong in ["", "s", "-1", "1.5", "+3", "5 m", "4294967295m"] {
            assert_eq!(seconds(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn short_times_are_milliseconds() {
        assert_eq!(time("300us"), Some(Duration::from_micros(300)));
        assert_eq!(
            ["250ms", "0", "2", "5m"].map(|text| time(text).map(|time| time.as_millis())),
            [Some(250), Some(0), Some(2000), Some(300_000)]
        );
        for wrong in ["", "ms", "-1ms", "+1ms", "1.5ms", "4294967296ms", "5 ms"] {
            assert_eq!(time(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn a_refused_value_leaves_the_draft_alone() {
        let knob =
            Knob::new("n", "", Action::Integer { min: 1, max: 9, missing: None, set: |draft: &mut i64, n| *draft = n });
        let mut draft = 5;
        for wrong in [Some("0"), Some("10"), Some("x"), Some(""), None] {
            assert!(!knob.set(&mut draft, wrong), "{wrong:?}");
        }
        assert_eq!(draft, 5);
        assert!(knob.set(&mut draft, Some("9")));
        assert_eq!(draft, 9);
    }
}
