//! Where the instructions of a path go: each is given to a part of the program by the source line it was compiled from.
//!
//! Nearly everything is inlined into a few functions, so a function's name says little. `addr2line` tells for each
//! instruction the line and those it was inlined into; the innermost one that belongs to a part decides.

use std::collections::{BTreeMap, HashMap};
use std::fmt::Write as _;
use std::io::Write as _;
use std::process::{Command, Stdio};

use crate::callgrind::{Cost, Dump};
use crate::paths::PATHS;

/// The parts, in the order of the table's columns.
const PARTS: &[&str] = &["parse", "find", "write", "copy", "reply", "execute", "count", "allocate", "other"];

/// What a source file, or one function of it, is part of. The first that the name contains decides; what is in none, or has
/// no part here, leaves the decision to what it was inlined into.
const FILES: &[(&str, &str)] = &[
    ("bench/instructions", "other"),
    ("num.rs push_", "reply"),
    ("num.rs nuthatch_proto::num::push_", "reply"),
    ("proto/src/client", "other"),
    ("/reply.rs", "reply"),
    ("proto/src", "parse"),
    ("rapidhash", "find"),
    ("store/src/stats.rs", "count"),
    ("store/src/read.rs", "find"),
    ("store/src/index.rs", "find"),
    ("store/src/epoch.rs", "find"),
    ("store/src/record.rs", ""),
    ("store/src/log.rs", ""),
    ("store/src/segment.rs", ""),
    ("store/src/arena.rs", ""),
    ("store/src/sync.rs", ""),
    ("store/src/store.rs", ""),
    ("store/src/lib.rs", ""),
    ("store/src/place.rs record", ""),
    ("store/src", "write"),
    ("server/src/counters.rs", "count"),
    ("server/src", "execute"),
];

/// What a function outside the program is part of.
const FUNCTIONS: &[(&str, &str)] = &[
    ("memcpy", "copy"),
    ("memmove", "copy"),
    ("memset", "copy"),
    ("append_elements", "copy"),
    ("memcmp", "find"),
    ("bcmp", "find"),
    ("malloc", "allocate"),
    ("free", "allocate"),
    ("realloc", "allocate"),
    ("calloc", "allocate"),
];

fn decided(table: &[(&str, &'static str)], name: &str) -> Option<&'static str> {
    table.iter().find(|(part_of, _)| name.contains(part_of)).map(|(_, part)| *part).filter(|part| !part.is_empty())
}

/// The table, in Markdown, of instructions by path and part, and the dearest functions of each path.
pub(crate) fn table(dumps: &[Dump]) -> Result<String, String> {
    let program = std::env::current_exe().map_err(|error| format!("expected to find this program: {error}"))?;
    let program = program.display().to_string();
    let mut addresses: Vec<u64> = dumps
        .iter()
        .flat_map(|dump| &dump.costs)
        .filter(|cost| cost.object == program)
        .map(|cost| cost.address)
        .collect();
    addresses.sort_unstable();
    addresses.dedup();
    let lines = lines(&program, &addresses)?;
    let none = Vec::new();
    let stack = |cost: &Cost| lines.get(&cost.address).filter(|_| cost.object == program).unwrap_or(&none);

    let mut text = format!("| path | all | {} |\n|---|---:|{}\n", PARTS.join(" | "), "---:|".repeat(PARTS.len()));
    for (path, dump) in PATHS.iter().zip(dumps) {
        let mut sums: HashMap<&str, u64> = HashMap::new();
        for cost in &dump.costs {
            *sums.entry(part(cost, stack(cost))).or_default() += cost.count;
        }
        let _ = write!(text, "| {} | {:.0} |", path.name, path.each(dump.total));
        for part in PARTS {
            let _ = write!(text, " {:.0} |", path.each(sums.get(part).copied().unwrap_or(0)));
        }
        text.push('\n');
    }
    for (path, dump) in PATHS.iter().zip(dumps) {
        let mut sums: BTreeMap<String, u64> = BTreeMap::new();
        for cost in &dump.costs {
            let place = stack(cost).iter().find(|frame| frame.file.contains("crates/")).map_or_else(
                || format!("{} ({})", cost.function, part(cost, stack(cost))),
                |frame| format!("{} {}", frame.file.rsplit("crates/").next().unwrap_or_default(), frame.function),
            );
            *sums.entry(place).or_default() += cost.count;
        }
        let mut sums: Vec<_> = sums.into_iter().collect();
        sums.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
        let _ = writeln!(text, "\n{}", path.name);
        for (place, count) in sums.iter().take(40) {
            let _ = writeln!(text, "{:>8.1}  {place}", path.each(*count));
        }
    }
    Ok(text)
}

fn part(cost: &Cost, stack: &[Frame]) -> &'static str {
    stack
        .iter()
        .find_map(|frame| decided(FILES, &format!("{} {}", frame.file, frame.function)))
        .or_else(|| stack.iter().any(|frame| frame.file.contains("store/src")).then_some("find"))
        .or_else(|| decided(FUNCTIONS, &cost.function))
        .unwrap_or("other")
}

/// One of the functions an instruction was inlined into, or its own.
struct Frame {
    function: String,
    file: String,
}

/// What `addr2line` says of each address, the innermost frame first.
fn lines(program: &str, addresses: &[u64]) -> Result<HashMap<u64, Vec<Frame>>, String> {
    let failed = |error: std::io::Error| format!("expected to run addr2line, of Debian's package binutils: {error}");
    let mut child = Command::new("addr2line")
        .args(["--addresses", "--functions", "--inlines", "--demangle", "--exe", program])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .map_err(failed)?;
    let mut input = child.stdin.take().ok_or("expected addr2line to have an input")?;
    let asked = addresses.iter().fold(String::new(), |mut text, address| {
        let _ = writeln!(text, "{address:#x}");
        text
    });
    // Answers come while questions are still being asked, and fill the pipe if nobody reads.
    let asking = std::thread::spawn(move || input.write_all(asked.as_bytes()));
    let said = child.wait_with_output().map_err(failed)?;
    drop(asking.join());
    let said = String::from_utf8_lossy(&said.stdout);
    let mut lines: HashMap<u64, Vec<Frame>> = HashMap::new();
    let mut address = 0;
    let mut function = None;
    for line in said.lines() {
        match (line.strip_prefix("0x").and_then(|hex| u64::from_str_radix(hex, 16).ok()), function.take()) {
            (Some(next), None) => address = next,
            (_, Some(function)) => {
                let file = line.split(':').next().unwrap_or_default().to_owned();
                lines.entry(address).or_default().push(Frame { function, file });
            }
            (None, None) => function = Some(line.to_owned()),
        }
    }
    Ok(lines)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frames(files: &[&str]) -> Vec<Frame> {
        let frame = |(file, function): (&str, &str)| Frame { function: function.to_owned(), file: file.to_owned() };
        files.iter().map(|place| frame(place.split_once(' ').unwrap_or((place, "")))).collect()
    }

    #[test]
    fn the_innermost_file_that_belongs_to_a_part_decides() {
        let cost = |function: &str| Cost { object: String::new(), function: function.to_owned(), address: 0, count: 1 };
        for (function, files, expected) in [
            ("f", &["core/src/slice.rs", "crates/store/src/record.rs", "crates/store/src/place.rs"][..], "write"),
            ("f", &["crates/store/src/record.rs", "crates/store/src/read.rs", "crates/server/src/exec/mod.rs"], "find"),
            ("f", &["crates/proto/src/num.rs nuthatch_proto::num::push_u64"], "reply"),
            ("f", &["crates/proto/src/num.rs digits", "crates/proto/src/ascii/get.rs"], "parse"),
            ("f", &["crates/store/src/place.rs record", "crates/store/src/read.rs look_up"], "find"),
            ("f", &["crates/store/src/log.rs"], "find"),
            ("__memcpy_sse2_unaligned", &[], "copy"),
            ("_int_free", &[], "allocate"),
            ("start", &["std/src/rt.rs"], "other"),
        ] {
            assert_eq!(part(&cost(function), &frames(files)), expected, "{files:?}");
        }
        assert!(FILES.iter().chain(FUNCTIONS).all(|(_, part)| part.is_empty() || PARTS.contains(part)));
    }
}
