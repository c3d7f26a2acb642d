//! Counts the instructions of the hot paths under valgrind's callgrind and compares them with `bench/instructions.txt`.
//!
//! | command | what |
//! |---|---|
//! | (none) | measures and compares; exit status 1 when a path grew by more than the limit |
//! | with `UPDATE_INSTRUCTIONS=1` | measures and records |
//! | `parts` | measures and prints where the instructions of each path go, in Markdown |
//! | `run` | what is measured: every path, one after the other; by itself it shows nothing |
//!
//! It starts itself under valgrind. Counts repeat exactly whatever else the machine does: nothing here looks at a clock,
//! hashes have fixed seeds, and the C library is told which of its copy routines to use.
#![forbid(unsafe_code)]

mod callgrind;
mod parts;
mod paths;
mod record;

use std::path::Path;
use std::process::ExitCode;

use record::Record;

/// Set to record what is measured.
const UPDATE: &str = "UPDATE_INSTRUCTIONS";

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let done = match words[..] {
        [] => check(),
        ["run"] => {
            paths::run();
            Ok(String::new())
        }
        ["parts"] => callgrind::measure(true).and_then(|dumps| parts::table(&dumps)),
        _ => Err("expected no argument, run or parts".to_owned()),
    };
    match done {
        Ok(text) => {
            print!("{text}");
            ExitCode::SUCCESS
        }
        Err(problem) => {
            eprintln!("instructions: {problem}");
            ExitCode::FAILURE
        }
    }
}

/// Measures, and compares or records.
fn check() -> Result<String, String> {
    if std::env::consts::ARCH != record::ARCH {
        return Ok(format!("skipped: counts are recorded for {}, this is {}\n", record::ARCH, std::env::consts::ARCH));
    }
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../instructions.txt");
    let dumps = callgrind::measure(false)?;
    let measured = Record {
        compiler: record::compiler()?,
        counts: paths::PATHS
            .iter()
            .zip(&dumps)
            .map(|(path, dump)| (path.name.to_owned(), path.each(dump.total)))
            .collect(),
    };
    if std::env::var_os(UPDATE).is_some() {
        let text = measured.to_string();
        std::fs::write(&path, &text).map_err(|error| format!("expected to write bench/instructions.txt: {error}"))?;
        return Ok(text);
    }
    let text = std::fs::read_to_string(&path).map_err(|error| {
        format!("expected to read bench/instructions.txt, which `make instructions` writes: {error}")
    })?;
    let recorded: Record = text.parse()?;
    let verdict = recorded.compare(&measured);
    if verdict.problems.is_empty() {
        Ok(verdict.table)
    } else {
        Err(format!("{}\n{}", verdict.problems.join("\ninstructions: "), verdict.table))
    }
}
