//! The recorded counts, and what is said when new ones differ.

use std::fmt;
use std::fmt::Write as _;
use std::process::Command;
use std::str::FromStr;

/// The processors that counts are recorded for.
pub(crate) const ARCH: &str = "x86_64";

/// How much a path may grow, in percent of what is recorded.
const GROWTH_PERCENT_MAX: f64 = 5.0;

/// The same where another release of the compiler built it: that alone moves counts by some percent.
const GROWTH_PERCENT_MAX_OTHER_COMPILER: f64 = 20.0;

const HEAD: &str = "\
# Instructions of one operation on each hot path, counted by callgrind (bench/instructions says what each does).
# `scripts/check.sh instructions` compares; `make instructions` records anew what was changed on purpose.
";

/// Counts, and what they were made with.
#[derive(Debug, PartialEq)]
pub(crate) struct Record {
    /// The compiler's release, as in `rustc 1.95.0`.
    pub(crate) compiler: String,
    /// Instructions of one operation, by path.
    pub(crate) counts: Vec<(String, f64)>,
}

/// What comes of comparing.
pub(crate) struct Verdict {
    /// A sentence for each path that is not as it should be.
    pub(crate) problems: Vec<String>,
    /// Every path, recorded and measured.
    pub(crate) table: String,
}

impl Record {
    fn count(&self, path: &str) -> Option<f64> {
        self.counts.iter().find(|(name, _)| name == path).map(|(_, count)| *count)
    }

    /// Compares these recorded counts with `measured` ones.
    pub(crate) fn compare(&self, measured: &Record) -> Verdict {
        let is_same = self.compiler == measured.compiler;
        let limit = if is_same { GROWTH_PERCENT_MAX } else { GROWTH_PERCENT_MAX_OTHER_COMPILER };
        let mut verdict = Verdict { problems: Vec::new(), table: String::new() };
        if !is_same {
            let _ = writeln!(
                verdict.table,
                "recorded with {}, built with {}: a path may differ by {limit} %",
                self.compiler, measured.compiler
            );
        }
        let _ = writeln!(verdict.table, "{:<40} {:>9} {:>9}", "instructions of one operation", "recorded", "measured");
        for (path, now) in &measured.counts {
            let Some(before) = self.count(path) else {
                verdict.problems.push(format!(
                    "{path}: {now:.1} instructions, none are recorded; `make instructions` records them"
                ));
                continue;
            };
            // Adding nothing takes the sign off a zero.
            let percent = ((now / before - 1.0) * 1000.0).round() / 10.0 + 0.0;
            let _ = writeln!(verdict.table, "{path:<40} {before:>9.1} {now:>9.1} {percent:>+6.1} %");
            if percent > limit {
                verdict.problems.push(format!(
                    "{path}: {before:.1} instructions are recorded, now it takes {now:.1}, {percent:.1} % more; expected at \
                     most {limit} % more, or `make instructions` if that is meant"
                ));
            } else if percent < -limit {
                let _ =
                    writeln!(verdict.table, "  {path} takes less than is recorded: `make instructions` keeps it so");
            }
        }
        for (path, _) in &self.counts {
            if measured.count(path).is_none() {
                verdict.problems.push(format!(
                    "{path}: recorded, but there is no such path any more; `make instructions` drops it"
                ));
            }
        }
        verdict
    }
}

impl fmt::Display for Record {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{HEAD}compiler = {}\n\n", self.compiler)?;
        self.counts.iter().try_for_each(|(path, count)| writeln!(f, "{path} = {count:.1}"))
    }
}

impl FromStr for Record {
    type Err = String;

    fn from_str(text: &str) -> Result<Record, String> {
        let mut record = Record { compiler: String::new(), counts: Vec::new() };
        for (number, line) in text.lines().enumerate().filter(|(_, line)| !line.is_empty() && !line.starts_with('#')) {
            let expected =
                || format!("bench/instructions.txt:{}: expected a path, = and its count, not {line:?}", number + 1);
            let (name, value) = line.split_once(" = ").ok_or_else(expected)?;
            match name {
                "compiler" => value.clone_into(&mut record.compiler),
                path => match value.parse::<f64>() {
                    Ok(count) if count.is_finite() && count > 0.0 => record.counts.push((path.to_owned(), count)),
                    _ => return Err(expected()),
                },
            }
        }
        Ok(record)
    }
}

/// The release of the compiler, which is the one that has just built this program when cargo runs both.
pub(crate) fn compiler() -> Result<String, String> {
    let rustc = std::env::var("RUSTC").unwrap_or_else(|_| "rustc".to_owned());
    let said = Command::new(&rustc)
        .arg("--version")
        .output()
        .map_err(|error| format!("expected to ask {rustc} for its version: {error}"))?;
    let said = String::from_utf8_lossy(&said.stdout);
    Ok(said.split_whitespace().take(2).collect::<Vec<_>>().join(" "))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(compiler: &str, counts: &[(&str, f64)]) -> Record {
        let counts = counts.iter().map(|(path, count)| ((*path).to_owned(), *count)).collect();
        Record { compiler: compiler.to_owned(), counts }
    }

    #[test]
    fn a_record_is_read_as_it_was_written() {
        let record = record("rustc 1.95.0", &[("store: get, hit", 123.5), ("text: get", 7.0)]);
        assert_eq!(record.to_string().parse::<Record>().unwrap(), record);
    }

    #[test]
    fn a_line_that_is_no_count_is_named() {
        for line in ["text: get", "text: get = many", "text: get = -1"] {
            let sentence = format!("bench/instructions.txt:2: expected a path, = and its count, not {line:?}");
            assert_eq!(format!("# head\n{line}\n").parse::<Record>().unwrap_err(), sentence);
        }
    }

    #[test]
    fn growth_beyond_the_limit_names_path_and_both_counts() {
        let before = record("rustc 1", &[("a", 100.0), ("b", 100.0), ("c", 100.0)]);
        let after = record("rustc 1", &[("a", 105.0), ("b", 105.1), ("c", 50.0)]);
        let verdict = before.compare(&after);
        assert_eq!(
            verdict.problems,
            ["b: 100.0 instructions are recorded, now it takes 105.1, 5.1 % more; expected at most 5 % more, or \
              `make instructions` if that is meant"]
        );
        assert!(verdict.table.contains("c takes less than is recorded"), "{}", verdict.table);
    }

    #[test]
    fn another_compiler_is_allowed_more() {
        let before = record("rustc 1", &[("a", 100.0), ("b", 100.0)]);
        let verdict = before.compare(&record("rustc 2", &[("a", 119.0), ("b", 121.0)]));
        assert_eq!(verdict.problems.len(), 1);
        assert!(verdict.table.starts_with("recorded with rustc 1, built with rustc 2: a path may differ by 20 %\n"));
    }

    #[test]
    fn paths_that_come_and_go_are_told() {
        let verdict = record("rustc 1", &[("old", 1.0)]).compare(&record("rustc 1", &[("new", 2.0)]));
        assert_eq!(
            verdict.problems,
            [
                "new: 2.0 instructions, none are recorded; `make instructions` records them",
                "old: recorded, but there is no such path any more; `make instructions` drops it"
            ]
        );
    }
}
