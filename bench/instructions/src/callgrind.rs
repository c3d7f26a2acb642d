//! Running this program under callgrind, and reading what it writes.
//!
//! Callgrind writes one dump each time the mark is reached, holding what was executed since the last. Every path reaches
//! it twice, before and after what is counted, so every second dump is a path's.

use std::path::Path;
use std::process::Command;

use crate::paths::{MARK, PATHS};

/// The C library picks routines for copying and comparing by the processor; these are taken from it, so that those for
/// the oldest one are left on every machine.
const TUNABLES: &str = "glibc.cpu.hwcaps=-AVX_Fast_Unaligned_Load,-AVX2,-SSE4_1,-SSSE3,-ERMS,-FSRM";

/// What was executed of one path.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Dump {
    /// Instructions.
    pub(crate) total: u64,
    /// Where they are, when that was asked for.
    pub(crate) costs: Vec<Cost>,
}

/// Instructions executed at one place of the program.
#[derive(Debug, PartialEq)]
pub(crate) struct Cost {
    /// The program or library the place is in.
    pub(crate) object: String,
    /// The function, mangled.
    pub(crate) function: String,
    /// The address in the object.
    pub(crate) address: u64,
    /// How many instructions.
    pub(crate) count: u64,
}

/// Counts every path, in the order of [`PATHS`]. With `places`, also where the instructions are.
pub(crate) fn measure(places: bool) -> Result<Vec<Dump>, String> {
    let dir = tempfile::tempdir().map_err(|error| format!("expected a temporary directory: {error}"))?;
    let program = std::env::current_exe().map_err(|error| format!("expected to find this program: {error}"))?;
    let out = dir.path().join("out");
    let mut valgrind = Command::new("valgrind");
    valgrind.args(["--quiet", "--tool=callgrind", "--compress-strings=no", "--compress-pos=no", "--demangle=no"]);
    valgrind.arg(format!("--dump-before=*{MARK}*")).arg(format!("--callgrind-out-file={}", out.display()));
    if places {
        valgrind.arg("--dump-instr=yes");
    }
    let ran = valgrind
        .arg(program)
        .arg("run")
        .env_clear()
        .env("PATH", std::env::var_os("PATH").unwrap_or_default())
        .env("GLIBC_TUNABLES", TUNABLES)
        .output()
        .map_err(|error| format!("expected to run valgrind, which is Debian's package of that name: {error}"))?;
    if !ran.status.success() {
        let said = String::from_utf8_lossy(&ran.stderr);
        return Err(format!("expected the paths to run under valgrind, {}: {}", ran.status, said.trim()));
    }
    // The first dump ends where the first path has been prepared.
    (1..=PATHS.len()).map(|path| read(&out.with_extension((2 * path).to_string()), places)).collect()
}

fn read(path: &Path, places: bool) -> Result<Dump, String> {
    let text = std::fs::read_to_string(path)
        .map_err(|error| format!("expected callgrind to have written {}: {error}", path.display()))?;
    parse(&text, places).ok_or_else(|| format!("{}: expected what callgrind writes, with its totals", path.display()))
}

/// Reads a dump whose names and positions are not compressed (Callgrind Format Specification, version 1).
fn parse(text: &str, places: bool) -> Option<Dump> {
    let mut dump = Dump::default();
    let (mut object, mut function) = (String::new(), String::new());
    let mut is_call = false;
    let mut total = None;
    for line in text.lines() {
        if let Some(totals) = line.strip_prefix("totals:").or_else(|| line.strip_prefix("summary:")) {
            total = totals.trim().parse().ok().or(total);
        } else if let Some(name) = line.strip_prefix("ob=") {
            name.clone_into(&mut object);
        } else if let Some(name) = line.strip_prefix("fn=") {
            name.clone_into(&mut function);
        } else if line.starts_with("calls=") {
            is_call = true;
        } else if places && line.starts_with("0x") {
            // The line after a call repeats what the function that was called cost.
            if !std::mem::take(&mut is_call) {
                let mut words = line.split(' ');
                let address = u64::from_str_radix(words.next()?.strip_prefix("0x")?, 16).ok()?;
                let count = words.nth(1)?.parse().ok()?;
                dump.costs.push(Cost { object: object.clone(), function: function.clone(), address, count });
            }
        }
    }
    dump.total = total?;
    Some(dump)
}

#[cfg(test)]
mod tests {
    use super::*;

    const DUMP: &str = "version: 1\ncreator: callgrind-3.19.0\npositions: instr line\nevents: Ir\nsummary: 42\n\n\
                        ob=/bin/x\nfl=a.rs\nfn=_Rmain\n0x10 7 2\ncfn=_Rget\ncalls=3 0x20 9\n0x14 8 30\n0x18 8 10\n\
                        ob=/lib/libc.so.6\nfl=???\nfn=memcpy\n0x20 0 30\n\ntotals: 42\n";

    #[test]
    fn a_dump_is_read_without_counting_calls_twice() {
        let dump = parse(DUMP, true).unwrap();
        assert_eq!(dump.total, 42);
        assert_eq!(dump.costs.iter().map(|cost| cost.count).sum::<u64>(), 42);
        let last = Cost { object: "/lib/libc.so.6".into(), function: "memcpy".into(), address: 0x20, count: 30 };
        assert_eq!(dump.costs.last(), Some(&last));
        assert!(parse(DUMP, false).unwrap().costs.is_empty());
    }

    #[test]
    fn a_dump_without_totals_is_refused() {
        assert_eq!(parse("version: 1\nevents: Ir\n", true), None);
        assert_eq!(parse("totals: many\n", true), None);
    }
}
