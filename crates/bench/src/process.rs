//! What a process has used: CPU time and memory, from `/proc` (proc(5), Documentation/scheduler/sched-stats).

use std::fs;
use std::path::PathBuf;

use crate::failure::Failure;

/// Ticks of `/proc/PID/stat` in a second: USER_HZ, 100 on every Linux.
const TICK_NS: u64 = 10_000_000;

/// CPU time and memory of a process at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Usage {
    /// User and system time of all its threads, in nanoseconds.
    pub(crate) cpu_ns: u64,
    /// Resident memory in bytes.
    pub(crate) resident_bytes: u64,
}

impl Usage {
    /// Of process `pid`.
    pub(crate) fn of(pid: u32) -> Result<Usage, Failure> {
        let place = PathBuf::from(format!("/proc/{pid}"));
        let gone = || Failure::run(format!("bench: expected to read the CPU time of process {pid}, it is not there"));
        let stat = fs::read_to_string(place.join("stat")).map_err(|_| gone())?;
        let status = fs::read_to_string(place.join("status")).map_err(|_| gone())?;
        let scheduled = scheduled_ns(place.join("task"));
        Ok(Usage {
            cpu_ns: scheduled.or_else(|| ticks(&stat).map(|ticks| ticks * TICK_NS)).ok_or_else(gone)?,
            resident_bytes: resident_kib(&status).ok_or_else(gone)? * 1024,
        })
    }
}

impl Usage {
    /// Of process `pid` and those that it started, and they.
    pub(crate) fn of_family(pid: u32) -> Result<Usage, Failure> {
        let mut sum = Usage::of(pid)?;
        let children = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
        for child in children.split_whitespace().filter_map(|child| child.parse().ok()) {
            // One that ended meanwhile has nothing to tell.
            let Ok(usage) = Usage::of_family(child) else { continue };
            sum.cpu_ns += usage.cpu_ns;
            sum.resident_bytes += usage.resident_bytes;
        }
        Ok(sum)
    }
}

/// CPU time of this process in nanoseconds, threads that have ended included.
pub(crate) fn own_cpu_ns() -> u64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// The scheduler's own account, exact where ticks are a hundredth of a second. `None` on kernels without it.
fn scheduled_ns(tasks: PathBuf) -> Option<u64> {
    let mut sum = 0;
    for task in fs::read_dir(tasks).ok()? {
        // A thread that ended meanwhile has nothing to tell.
        let Ok(text) = fs::read_to_string(task.ok()?.path().join("schedstat")) else { continue };
        sum += text.split(' ').next()?.parse::<u64>().ok()?;
    }
    (sum > 0).then_some(sum)
}

/// `utime` and `stime`: the 12th and 13th field after the name in parentheses, which may itself hold anything.
fn ticks(stat: &str) -> Option<u64> {
    let mut fields = stat.rsplit_once(") ")?.1.split(' ').skip(11);
    Some(fields.next()?.parse::<u64>().ok()? + fields.next()?.parse::<u64>().ok()?)
}

fn resident_kib(status: &str) -> Option<u64> {
    status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?.split_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_done_shows_in_the_cpu_time() {
        let usage = || (Usage::of(std::process::id()).unwrap(), own_cpu_ns());
        let (before, own_before) = usage();
        let mut sum = 0u64;
        let began = std::time::Instant::now();
        while began.elapsed().as_millis() < 30 {
            sum = sum.wrapping_mul(31).wrapping_add(1);
        }
        let (after, own_after) = usage();
        assert!(after.cpu_ns > before.cpu_ns + 1_000_000, "{before:?} {after:?} {sum}");
        assert!(own_after > own_before + 1_000_000);
        assert!(after.resident_bytes > 100_000);
    }

    #[test]
    fn fields_are_found_behind_any_name() {
        assert_eq!(ticks("7 (a) b) c) S 1 7 7 0 -1 4194560 100 0 0 0 12 30 0 0 20 0"), Some(42));
        assert_eq!(resident_kib("Name:\tx\nVmRSS:\t  1234 kB\n"), Some(1234));
    }

    #[test]
    fn a_process_that_is_not_there_is_a_sentence() {
        let failure = Usage::of(u32::MAX).unwrap_err();
        assert_eq!(failure.to_string(), "bench: expected to read the CPU time of process 4294967295, it is not there");
    }
}
