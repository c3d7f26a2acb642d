//! Results as a page of tables, with the commands that gave them, and pictures beside it.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::process::Command;

use super::Settings;
use super::contenders::{Contenders, Place, Start, Who};
use super::measure::{Samples, ratio};
use super::{charts, plot};
use crate::failure::Failure;

/// What a ratio should be.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Bar {
    AtMost(f64),
    AtLeast(f64),
}

impl Bar {
    fn is_met(self, ratio: f64) -> bool {
        match self {
            Bar::AtMost(bar) => ratio <= bar,
            Bar::AtLeast(bar) => ratio >= bar,
        }
    }

    fn shown(self, ratio: f64) -> String {
        let (sign, bar) = match self {
            Bar::AtMost(bar) => ("≤", bar),
            Bar::AtLeast(bar) => ("≥", bar),
        };
        format!("{sign} {bar:.2}, {}", if self.is_met(ratio) { "met" } else { "**missed**" })
    }
}

/// One measure of every server.
#[derive(Clone, Debug)]
pub(crate) struct Row {
    pub(crate) name: String,
    pub(crate) decimals: usize,
    pub(crate) samples: Vec<Samples>,
    /// What the ratio of the two that are compared should be.
    pub(crate) bar: Option<Bar>,
    /// At most how many times the bare loop's figure.
    pub(crate) limit: Option<f64>,
    /// Whether it is in the table's picture.
    pub(crate) charted: bool,
    /// Whose figure is divided by whose, where it is not as in the rest of the table.
    pub(crate) compared: Option<(Who, Who)>,
}

impl Row {
    pub(crate) fn new(name: &str, decimals: usize, samples: Vec<Samples>) -> Row {
        Row { name: name.to_owned(), decimals, samples, bar: None, limit: None, charted: true, compared: None }
    }

    fn of(&self, who: Who) -> Option<&Samples> {
        self.samples.iter().find(|samples| samples.who == who)
    }

    pub(crate) fn median(&self, who: Who) -> Option<f64> {
        self.of(who).map(Samples::median)
    }

    /// Median, and how far the rounds lay apart.
    fn cell(&self, who: Who) -> String {
        let Some(samples) = self.of(who) else { return "–".to_owned() };
        let decimals = self.decimals;
        let median = format!("{:.decimals$}", samples.median());
        let low = samples.rounds.iter().copied().fold(f64::INFINITY, f64::min);
        let high = samples.rounds.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        match samples.rounds.len() {
            0 | 1 => median,
            _ => format!("{median} ({low:.decimals$}–{high:.decimals$})"),
        }
    }
}

/// A line below a table.
#[derive(Clone, Debug)]
pub(crate) struct Summary {
    pub(crate) name: String,
    pub(crate) ratio: f64,
    pub(crate) bar: Bar,
}

/// One part's results.
#[derive(Clone, Debug)]
pub(crate) struct Table {
    pub(crate) title: String,
    pub(crate) text: String,
    pub(crate) who: Vec<Who>,
    pub(crate) rows: Vec<Row>,
    pub(crate) summary: Vec<Summary>,
    pub(crate) commands: Vec<String>,
    pub(crate) chart: Option<Chart>,
    /// What the picture is of, if not of the rows.
    pub(crate) course: Option<Course>,
    /// Whose figure is divided by whose.
    pub(crate) compared: (Who, Who),
}

/// Figures between 0 and 1 that change with time.
#[derive(Clone, Debug)]
pub(crate) struct Course {
    /// Of each: seconds and figure.
    pub(crate) lines: Vec<(Who, Vec<[f64; 2]>)>,
    /// Seconds, and what happened then.
    pub(crate) marks: Vec<(f64, &'static str)>,
}

/// A picture of a table.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Chart {
    /// What its file is called.
    pub(crate) name: &'static str,
    /// What stands behind the table's title above it.
    pub(crate) caption: &'static str,
}

impl Table {
    pub(crate) fn new(title: &str, text: &str, who: Vec<Who>) -> Table {
        let (title, text) = (title.to_owned(), text.to_owned());
        let compared = (Who::Nuthatch, Who::Memcached);
        Table {
            title,
            text,
            who,
            rows: Vec::new(),
            summary: Vec::new(),
            commands: Vec::new(),
            chart: None,
            course: None,
            compared,
        }
    }

    /// Notes the commands that started the servers.
    pub(crate) fn servers(&mut self, contenders: &Contenders, start: Start) {
        for who in self.who.clone() {
            self.command(contenders.shown(who, start));
        }
    }

    /// Notes the command of a load.
    pub(crate) fn load(&mut self, place: Place, flags: &str, is_unix: bool) {
        let mut words = place.words();
        let address = if is_unix { "SOCKET" } else { "127.0.0.1:PORT" };
        words.push(format!("nuthatch bench {flags} --server {address} --server-pid PID"));
        self.command(words.join(" "));
    }

    /// Notes a command.
    pub(crate) fn command(&mut self, command: String) {
        if !self.commands.contains(&command) {
            self.commands.push(command);
        }
    }

    fn markdown(&self, contenders: &Contenders) -> String {
        let has_limit = self.who.contains(&Who::Bare);
        let has_bar = !self.summary.is_empty() || self.rows.iter().any(|row| row.bar.is_some());
        let names: Vec<String> = self.who.iter().map(|&who| contenders.name(who)).collect();
        let mut text = format!("## {}\n\n{}\n\n", self.title, self.text);
        if let Some(chart) = self.chart {
            let _ = writeln!(text, "![{}]({}.svg)\n", self.title, chart.name);
        }
        let mut head = vec!["".to_owned()];
        head.extend(names);
        let bars = |has_bar: bool| if has_bar { 2 } else { 1 };
        let (who, to) = self.compared;
        let compared = format!("{} / {}", who.word(), to.word());
        head.extend([compared, "bar".to_owned()].into_iter().take(bars(has_bar)));
        if has_limit {
            head.extend(["nuthatch / bare loop", "bar"].map(str::to_owned));
        }
        let _ = writeln!(text, "| {} |\n|{}", head.join(" | "), "---|".repeat(head.len()));
        for row in &self.rows {
            let mut cells = vec![row.name.clone()];
            cells.extend(self.who.iter().map(|&who| row.cell(who)));
            let (who, to) = row.compared.unwrap_or((who, to));
            cells.extend(judged(ratio(&row.samples, who, to), row.bar).into_iter().take(bars(has_bar)));
            if has_limit {
                cells.extend(judged(ratio(&row.samples, Who::Nuthatch, Who::Bare), row.limit.map(Bar::AtMost)));
            }
            let _ = writeln!(text, "| {} |", cells.join(" | "));
        }
        for Summary { name, ratio, bar } in &self.summary {
            let mut cells = vec![name.clone()];
            cells.extend(self.who.iter().map(|_| String::new()));
            cells.extend(judged(Some(*ratio), Some(*bar)));
            let _ = writeln!(text, "| {} |", cells.join(" | "));
        }
        let commands: String = self.commands.iter().map(|command| format!("$ {command}\n")).collect();
        text + "\n```console\n" + &commands + "```\n"
    }
}

fn judged(ratio: Option<f64>, bar: Option<Bar>) -> [String; 2] {
    match ratio.filter(|ratio| ratio.is_finite()) {
        Some(ratio) => [format!("{ratio:.3}"), bar.map_or(String::new(), |bar| bar.shown(ratio))],
        None => ["–".to_owned(), String::new()],
    }
}

/// Writes the page and its pictures; returns the page.
pub(crate) fn results(settings: &Settings, contenders: &Contenders, tables: &[Table]) -> Result<String, Failure> {
    let machine = Machine::here();
    let mut page = format!(
        "# Nuthatch beside memcached, {}\n\n\
         Machine: {}, {} cores, {}, Linux {}. Nuthatch {}{}, memcached {}.\n\n\
         Each load was run {} for {} s, the servers taking turns, a fresh server each time; medians, with the lowest and \
         highest round in parentheses. A ratio is the median of the rounds' ratios. Made by `make bench`, which runs `nuthatch bench \
         compare`; the commands under each table are the ones it ran.\n",
        machine.date,
        machine.cpu,
        machine.cores,
        machine.memory,
        machine.kernel,
        env!("CARGO_PKG_VERSION"),
        machine.commit.as_ref().map_or(String::new(), |commit| format!(" ({commit})")),
        contenders.memcached_version,
        if settings.rounds == 1 { "once".to_owned() } else { format!("{} times", settings.rounds) },
        settings.seconds,
    );
    for table in tables {
        page.push('\n');
        page.push_str(&table.markdown(contenders));
    }
    let failed = |path: &Path, error: std::io::Error| {
        Failure::run(format!("bench: expected to write {}: {error}", path.display()))
    };
    fs::create_dir_all(&settings.out).map_err(|error| failed(&settings.out, error))?;
    for table in tables {
        if let Some(chart) = table.chart {
            let path = settings.out.join(format!("{}.svg", chart.name));
            let picture = match &table.course {
                Some(course) => plot::lines(table, course, contenders),
                None => charts::bars(table, contenders),
            };
            fs::write(&path, picture).map_err(|error| failed(&path, error))?;
        }
    }
    // Some of the parts do not take the place of all of them.
    let parts: String = settings.only.iter().map(|part| format!("-{part}")).collect();
    let path = settings.out.join(format!("{}-{}{parts}.md", machine.date, machine.slug()));
    fs::write(&path, &page).map_err(|error| failed(&path, error))?;
    Ok(page)
}

/// What the results were had on.
struct Machine {
    date: String,
    cpu: String,
    cores: usize,
    memory: String,
    kernel: String,
    commit: Option<String>,
}

impl Machine {
    fn here() -> Machine {
        let said = |program: &str, words: &[&str]| {
            let output = Command::new(program).args(words).output().ok().filter(|output| output.status.success())?;
            Some(String::from_utf8_lossy(&output.stdout).trim().to_owned()).filter(|text| !text.is_empty())
        };
        let field = |file: &str, name: &str| {
            let text = fs::read_to_string(file).ok()?;
            let line = text.lines().find(|line| line.starts_with(name))?;
            Some(line.split_once(':')?.1.trim().to_owned())
        };
        let kib = field("/proc/meminfo", "MemTotal").and_then(|text| text.split(' ').next()?.parse::<f64>().ok());
        Machine {
            date: said("date", &["+%Y-%m-%d"]).unwrap_or_else(|| "undated".to_owned()),
            cpu: field("/proc/cpuinfo", "model name").unwrap_or_else(|| "unknown processor".to_owned()),
            cores: std::thread::available_parallelism().map_or(1, usize::from),
            memory: kib.map_or("unknown memory".to_owned(), |kib| format!("{:.0} GiB", kib / 1048576.0)),
            kernel: said("uname", &["-r"]).unwrap_or_default(),
            commit: said("git", &["rev-parse", "--short", "HEAD"]),
        }
    }

    /// The processor in a file's name.
    fn slug(&self) -> String {
        let words: String =
            self.cpu.chars().map(|c| if c.is_ascii_alphanumeric() { c.to_ascii_lowercase() } else { ' ' }).collect();
        let words: Vec<&str> =
            words.split_whitespace().filter(|word| !matches!(*word, "r" | "tm" | "cpu" | "processor")).collect();
        format!("{}-{}-cores", words.join("-"), self.cores)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bars_are_met_or_missed_in_either_direction() {
        assert_eq!(Bar::AtMost(0.85).shown(0.85), "≤ 0.85, met");
        assert_eq!(Bar::AtMost(0.85).shown(0.86), "≤ 0.85, **missed**");
        assert_eq!(Bar::AtLeast(1.6).shown(1.7), "≥ 1.60, met");
        assert_eq!(Bar::AtLeast(1.6).shown(1.5), "≥ 1.60, **missed**");
    }

    #[test]
    fn a_cell_shows_the_median_and_the_spread() {
        let samples = |who, rounds: &[f64]| Samples { who, rounds: rounds.to_vec() };
        let row = Row::new("get", 1, vec![samples(Who::Memcached, &[3.0, 1.0, 2.0]), samples(Who::Nuthatch, &[1.0])]);
        assert_eq!(row.cell(Who::Memcached), "2.0 (1.0–3.0)");
        assert_eq!(row.cell(Who::Nuthatch), "1.0");
        assert_eq!(row.cell(Who::Bare), "–");
    }

    #[test]
    fn a_file_s_name_tells_the_processor() {
        let machine = Machine { cpu: "Intel(R) Xeon(R) CPU @ 2.20GHz".to_owned(), cores: 2, ..Machine::here() };
        assert_eq!(machine.slug(), "intel-xeon-2-20ghz-2-cores");
        assert_eq!(machine.date.len(), 10);
    }
}
