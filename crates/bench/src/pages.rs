//! `nuthatch bench pages`: readers of a web site. Threads fetch pages chosen by chance from a list, again and again, and a table
//! says how long that took: the test that sites are measured with before and after a cache is put in front of them.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::path::PathBuf;
use std::time::{Duration, Instant};
use std::{fs, thread};

use clap::Parser;
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};
use serde::{Deserialize, Serialize};

use crate::failure::Failure;
use crate::flags::{number, seconds};
use crate::http::{Connection, Url};

/// Who reads what, and how often.
#[derive(Parser, Clone, Debug)]
#[command(
    name = "nuthatch bench pages",
    about = "Readers of a web site: threads that fetch pages, chosen by chance from a list, one after the other, each on a connection\n\
             of its own that stays open. The table has times in milliseconds from asking for a page to its last byte.",
    after_help = "Ten readers who open eight of a wiki's pages twenty times, through a cache and without it:\n\n  \
                  nuthatch bench pages -f articles.txt -t 10 -n 20 -p 8\n  \
                  nuthatch bench pages -f articles.txt -t 10 -n 20 -p 8 --at http://10.0.0.2:8000\n"
)]
pub(crate) struct Settings {
    /// pages to choose from, such as http://127.0.0.1:8080/wiki/Main_Page
    #[arg(value_name = "URL", value_parser = Url::parse)]
    urls: Vec<Url>,
    /// a file with one URL in each line such as articles.txt, besides those
    #[arg(short, long, value_name = "FILE")]
    file: Option<PathBuf>,
    /// readers at a time
    #[arg(short, long, value_name = "N", default_value = "10", value_parser = number::<u32>(1..=10_000))]
    threads: u32,
    /// how often each of them reads
    #[arg(short = 'n', long, value_name = "N", default_value = "20", value_parser = number::<u32>(1..=10_000_000))]
    repetitions: u32,
    /// pages, chosen by chance, that are read each time
    #[arg(short, long, value_name = "N", default_value = "1", value_parser = number::<u32>(1..=1_000_000))]
    pages: u32,
    /// time over which readers begin, one after the other, such as 3s
    #[arg(short, long, value_name = "TIME", default_value = "0s", value_parser = seconds)]
    ramp_up: f64,
    /// connect to this server whatever the URLs say, such as http://127.0.0.1:8000
    #[arg(long, value_name = "URL", value_parser = Url::parse)]
    at: Option<Url>,
    /// a number that decides which pages are chosen
    #[arg(long, value_name = "N", default_value = "1", value_parser = number::<u64>(0..=u64::MAX))]
    seed: u64,
    /// print the result as JSON
    #[arg(long)]
    json: bool,
}

impl Settings {
    pub(crate) fn json(&self) -> bool {
        self.json
    }

    /// All pages to choose from.
    fn choice(&self) -> Result<Vec<Url>, Failure> {
        let mut urls = self.urls.clone();
        if let Some(file) = &self.file {
            let text = fs::read_to_string(file)
                .map_err(|error| Failure::usage(format!("bench: expected to read {}: {error}", file.display())))?;
            for (number, line) in text.lines().enumerate() {
                let line = line.trim();
                if line.is_empty() || line.starts_with('#') {
                    continue;
                }
                urls.push(Url::parse(line).map_err(|error| {
                    Failure::usage(format!("bench: {}, line {}: {line}: {error}", file.display(), number + 1))
                })?);
            }
        }
        if urls.is_empty() {
            return Err(Failure::usage(
                "bench: expected URLs after `nuthatch bench pages`, or a file of them by --file; its --help has an example",
            ));
        }
        if let Some(at) = &self.at {
            for url in &mut urls {
                url.address.clone_from(&at.address);
            }
        }
        Ok(urls)
    }
}

/// The table. Times are in milliseconds, from asking for a page to its last byte.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PagesTable {
    /// Pages asked for.
    pub samples: u64,
    /// The mean time.
    pub mean_ms: f64,
    /// Half took no longer.
    pub median_ms: f64,
    /// Nine in ten took no longer.
    pub p90_ms: f64,
    /// The shortest.
    pub min_ms: f64,
    /// The longest.
    pub max_ms: f64,
    /// Pages that did not come, or came with a status of 400 or above.
    pub errors: u64,
    /// The same in percent.
    pub errors_percent: f64,
    /// From the first request to the last answer.
    pub seconds: f64,
    /// Pages in a second.
    pub throughput: f64,
    /// Received in a second, heads included; a kB has 1024 bytes, as in JMeter's tables.
    pub kb_per_second: f64,
    /// What went wrong first.
    pub first_problem: Option<String>,
}

impl PagesTable {
    fn of(mut readers: Vec<Reader>, elapsed: Duration) -> PagesTable {
        let mut times: Vec<f64> = readers.iter_mut().flat_map(|reader| std::mem::take(&mut reader.times_ms)).collect();
        times.sort_by(f64::total_cmp);
        let samples = times.len() as u64;
        let share = |share: f64| times.get(((times.len() as f64 * share).ceil() as usize).max(1) - 1).copied();
        let errors: u64 = readers.iter().map(|reader| reader.errors).sum();
        let bytes: u64 = readers.iter().map(|reader| reader.bytes).sum();
        let seconds = elapsed.as_secs_f64();
        PagesTable {
            samples,
            mean_ms: times.iter().sum::<f64>() / samples.max(1) as f64,
            median_ms: share(0.5).unwrap_or(0.0),
            p90_ms: share(0.9).unwrap_or(0.0),
            min_ms: times.first().copied().unwrap_or(0.0),
            max_ms: times.last().copied().unwrap_or(0.0),
            errors,
            errors_percent: errors as f64 * 100.0 / samples.max(1) as f64,
            seconds,
            throughput: samples as f64 / seconds,
            kb_per_second: bytes as f64 / 1024.0 / seconds,
            first_problem: readers.into_iter().find_map(|reader| reader.problem),
        }
    }

    pub(crate) fn text(&self) -> String {
        let PagesTable { samples, mean_ms, median_ms, p90_ms, min_ms, max_ms, errors_percent, .. } = self;
        let mut text = String::from(
            "  samples       mean     median       90 %        min        max  errors   pages/s       kB/s\n",
        );
        // A string takes every write.
        let _ = writeln!(
            text,
            "{samples:>9} {mean_ms:>10.2} {median_ms:>10.2} {p90_ms:>10.2} {min_ms:>10.2} {max_ms:>10.2} {errors_percent:>5.1} % {:>9.1} {:>10.1}",
            self.throughput, self.kb_per_second
        );
        text
    }
}

/// What one thread found.
#[derive(Default)]
struct Reader {
    times_ms: Vec<f64>,
    errors: u64,
    bytes: u64,
    problem: Option<String>,
}

impl Reader {
    fn read(settings: &Settings, urls: &[Url], number: u32) -> Reader {
        let mut chance = SmallRng::seed_from_u64(settings.seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ u64::from(number));
        let mut reader = Reader::default();
        let mut connections: HashMap<&str, Connection> = HashMap::new();
        for _ in 0..u64::from(settings.repetitions) * u64::from(settings.pages) {
            let url = &urls[chance.random_range(0..urls.len())];
            let began = Instant::now();
            let mut connection = match connections.remove(url.address.as_str()) {
                Some(connection) => Ok(connection),
                None => Connection::open(url),
            };
            let outcome = connection.as_mut().map_err(|error| error.clone()).and_then(|connection| connection.get(url));
            reader.times_ms.push(began.elapsed().as_secs_f64() * 1e3);
            let problem = match outcome {
                Ok(answer) => {
                    reader.bytes += answer.bytes;
                    (answer.status >= 400).then(|| format!("{url}: status {}", answer.status))
                }
                Err(error) => Some(error),
            };
            reader.errors += u64::from(problem.is_some());
            reader.problem = reader.problem.or(problem);
            if let Ok(connection) = connection
                && connection.is_open()
            {
                connections.insert(&url.address, connection);
            }
        }
        reader
    }
}

/// Has everybody read.
pub(crate) fn run(settings: &Settings) -> Result<PagesTable, Failure> {
    let urls = settings.choice()?;
    let began = Instant::now();
    let readers = thread::scope(|scope| {
        let mut readers = Vec::new();
        for number in 0..settings.threads {
            let begins = Duration::from_secs_f64(settings.ramp_up * f64::from(number) / f64::from(settings.threads));
            let urls = &urls;
            let reader = thread::Builder::new().spawn_scoped(scope, move || {
                thread::sleep(begins.saturating_sub(began.elapsed()));
                Reader::read(settings, urls, number)
            });
            readers.push(reader.map_err(|error| Failure::run(format!("bench: expected to start a thread: {error}")))?);
        }
        let joined =
            readers.into_iter().map(|reader| reader.join().map_err(|_| Failure::run("bench: a reader panicked")));
        joined.collect::<Result<Vec<Reader>, Failure>>()
    })?;
    Ok(PagesTable::of(readers, began.elapsed()))
}

#[cfg(test)]
mod tests {
    use std::ffi::OsString;

    use super::*;
    use crate::flags::{self, Asked};

    fn read(words: &[&str]) -> Result<Settings, Failure> {
        match flags::parse(words.iter().map(OsString::from))? {
            Asked::Run(settings) => Ok(settings),
            Asked::Help(_) => panic!("help was not asked for"),
        }
    }

    #[test]
    fn help_teaches() {
        flags::tests::help_teaches_every_flag::<Settings>(&[]);
        assert!(flags::help::<Settings>().contains("-t 10 -n 20 -p 8"));
    }

    #[test]
    fn what_cannot_be_read_is_said() {
        let said = |words: &[&str]| read(words).and_then(|settings| settings.choice()).unwrap_err().to_string();
        assert_eq!(
            said(&["https://a/"]),
            "bench: <URL>... https://a/: expected a URL such as http://127.0.0.1:8080/page"
                .replace("<URL>...", "[URL]...")
        );
        assert!(said(&[]).starts_with("bench: expected URLs after `nuthatch bench pages`"));
        assert!(said(&["-f", "/no/such"]).starts_with("bench: expected to read /no/such: "));
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("list");
        fs::write(&file, "# pages\nhttp://a/\n\nftp://b/\n").unwrap();
        let file = file.display().to_string();
        assert!(said(&["-f", &file]).contains(", line 4: ftp://b/: expected a URL"));
    }

    #[test]
    fn the_table_is_of_all_readers() {
        let reader = |times: &[f64], errors| Reader { times_ms: times.to_vec(), errors, bytes: 1024, problem: None };
        let table = PagesTable::of(
            vec![reader(&[9.0, 1.0, 2.0, 3.0, 4.0], 1), reader(&[5.0, 6.0, 7.0, 8.0, 10.0], 0)],
            Duration::from_secs(2),
        );
        assert_eq!((table.samples, table.median_ms, table.p90_ms), (10, 5.0, 9.0));
        assert_eq!((table.min_ms, table.max_ms, table.mean_ms), (1.0, 10.0, 5.5));
        assert_eq!((table.errors_percent, table.throughput, table.kb_per_second), (10.0, 5.0, 1.0));
        assert_eq!(table.text().lines().count(), 2);
    }
}
