//! Recorded traces replayed at two sizes of memory.

use std::fs;
use std::path::PathBuf;

use super::Settings;
use super::contenders::{Contenders, Place, Start};
use super::measure::{Bench, in_turns, pick, ratio, words};
use super::write::{Bar, Chart, Row, Summary, Table};
use crate::failure::Failure;
use crate::replay::Replayed;
use crate::trace::Trace;

const MEMORIES_MIB: [u32; 2] = [24, 96];

/// Longest replay when everything is made smaller.
const REQUESTS: u32 = 2_000_000;

/// Miss ratios of every trace, each against servers that were just started.
pub(super) fn traces(
    settings: &Settings,
    contenders: &Contenders,
    bench: &mut Bench,
) -> Result<Option<Table>, Failure> {
    let Some(directory) = &settings.traces else {
        bench.say("traces: left out, --traces names no directory");
        return Ok(None);
    };
    let who = contenders.both().to_vec();
    let mut table = Table::new(
        "Misses on recorded traces",
        "Part of the requests that missed. A request is a get, a miss is answered with a set; every server begins empty. \
         The same bar is set for the mean of the ratios: at most 0.80.",
        who.clone(),
    );
    table.chart = Some(Chart { name: "misses", caption: ": part of the requests, less is better" });
    let limit = if settings.shrink > 1 { format!(" -n {}", REQUESTS / settings.shrink) } else { String::new() };
    let flags = format!("--verify -q{limit}");
    let mut ratios = Vec::new();
    for path in files(directory)? {
        let file = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let name = file.split('.').next().unwrap_or(&file);
        for memory_mib in MEMORIES_MIB {
            bench.say(&format!("traces: {name} at {memory_mib} MiB"));
            let start = Start { place: Place::Anywhere, memory_mib, ..Start::on_one_core() };
            let replays = in_turns(contenders, &who, start, 1, |server| {
                let mut all = vec!["replay".to_owned(), path.display().to_string()];
                all.extend(words(server, &flags));
                bench.run::<Replayed>(Place::Anywhere, &all)
            })?;
            let mut row =
                Row::new(&format!("{name}, {memory_mib} MiB"), 4, pick(&replays, |replay| 1.0 - replay.hit_ratio));
            row.bar = Some(Bar::AtMost(1.0));
            ratios.extend(ratio(&row.samples, who[1], who[0]));
            table.rows.push(row);
            if table.commands.len() < 2 * MEMORIES_MIB.len() {
                table.servers(contenders, start);
            }
        }
        table.load(Place::Anywhere, &format!("replay {file} {flags}"), false);
    }
    let mean = ratios.iter().sum::<f64>() / ratios.len().max(1) as f64;
    table.summary.push(Summary { name: "mean of the ratios".to_owned(), ratio: mean, bar: Bar::AtMost(0.80) });
    Ok(Some(table))
}

/// The traces of a directory, by name.
fn files(directory: &PathBuf) -> Result<Vec<PathBuf>, Failure> {
    let failed = |error: &dyn std::fmt::Display| {
        Failure::run(format!("bench: expected traces in {}: {error}", directory.display()))
    };
    let mut files = Vec::new();
    for entry in fs::read_dir(directory).map_err(|error| failed(&error))? {
        let path = entry.map_err(|error| failed(&error))?.path();
        if Trace::is_named_like_one(&path) {
            files.push(path);
        }
    }
    files.sort();
    if files.is_empty() { Err(failed(&"there are no files *.bin or *.csv, nor with .zst")) } else { Ok(files) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn traces_are_found_by_their_names() {
        let directory = tempfile::tempdir().unwrap();
        for name in ["b.bin.zst", "a.csv", "README.md"] {
            fs::write(directory.path().join(name), "").unwrap();
        }
        let found = files(&directory.path().to_owned()).unwrap();
        let names: Vec<_> = found.iter().map(|path| path.file_name().unwrap().to_str().unwrap()).collect();
        assert_eq!(names, ["a.csv", "b.bin.zst"]);
        assert!(
            files(&PathBuf::from("/no/such/place"))
                .unwrap_err()
                .to_string()
                .starts_with("bench: expected traces in /no/")
        );
    }
}
