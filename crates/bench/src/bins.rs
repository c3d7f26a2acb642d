//! `nuthatch bench cache-set-get-delete`: what a Drupal site does to its cache, over TCP beside a UNIX socket.
//!
//! Five cache bins get 2,000 entries each, then all are read, then all are deleted: 10,000 sets, gets and deletes, one after
//! the other on one connection as a PHP request makes them. The entries are as long as PHP's serialization of an array of
//! 100 numbers, `serialize(array_fill(0, 100, rand()))`.

use std::fmt::Write as _;
use std::time::{Duration, Instant};

use clap::Parser;
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use serde::{Deserialize, Serialize};

use crate::address::Address;
use crate::amounts::Amounts;
use crate::failure::Failure;
use crate::flags::{number, protocol};
use crate::keys::{Keys, Names, Sizes};
use crate::launch::{Launched, Scratch, free_port, listen_words};
use crate::pipe::{Lost, Pipe};
use crate::wire::{Codec, Protocol, Tally};

const BINS: [&str; 5] = ["cache", "cache_path", "cache_filter", "cache_bootstrap", "cache_page"];

/// `a:100:{` and `}`, ten keys `i:0;` and ninety `i:10;`, a hundred numbers `i:1234567890;`.
const VALUE_BYTES: u32 = 7 + 1 + 10 * 4 + 90 * 5 + 100 * 13;

const PATIENCE: Duration = Duration::from_secs(20);

/// How the table is made.
#[derive(Parser, Clone, Debug)]
#[command(
    name = "nuthatch bench cache-set-get-delete",
    about = "What a Drupal site does to its cache: 10,000 sets, gets and deletes over five bins, one after the other on one\n\
             connection. Without servers to measure it starts two of its own, one on TCP and one on a UNIX socket."
)]
pub(crate) struct Settings {
    /// HOST:PORT, or a UNIX socket such as /run/cache.sock; once for each column; left out: own servers
    #[arg(short, long = "server", value_name = "ADDRESS", value_parser = Address::parse)]
    servers: Vec<Address>,
    /// what the servers are spoken to in: text, meta or binary
    #[arg(short, long, value_name = "NAME", default_value = "text", value_parser = protocol)]
    protocol: Protocol,
    /// entries of each of the five bins
    #[arg(short = 'n', long, value_name = "N", default_value = "2000", value_parser = number::<u32>(1..=1_000_000))]
    entries: u32,
    /// how often, the servers taking turns; the medians are shown
    #[arg(long, value_name = "N", default_value = "5", value_parser = number::<usize>(1..=1000))]
    rounds: usize,
    /// print the result as JSON
    #[arg(long)]
    json: bool,
}

/// The table: a column for each server.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Table {
    /// Sets, gets and deletes of one round, each.
    pub operations: u32,
    /// Length of the values.
    pub value_bytes: u32,
    /// The columns.
    pub columns: Vec<Column>,
}

/// The times of one server, in milliseconds for all operations of a kind.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Column {
    /// Its address.
    pub server: String,
    /// Time for the sets.
    pub sets_ms: f64,
    /// Time for the gets.
    pub gets_ms: f64,
    /// Time for the deletes.
    pub deletes_ms: f64,
}

impl Table {
    /// The table as people read it.
    pub(crate) fn text(&self) -> String {
        let mut text = format!(
            "{} sets, gets and deletes over five bins, values of {} bytes, one connection, one request at a time\n\n{:<10}",
            self.operations, self.value_bytes, ""
        );
        let width = |column: &Column| column.server.len().max(12);
        for column in &self.columns {
            let _ = write!(text, "  {:>width$}", column.server, width = width(column));
        }
        type Time = fn(&Column) -> f64;
        let rows: [(&str, Time); 3] = [
            ("sets", |column| column.sets_ms),
            ("gets", |column| column.gets_ms),
            ("deletes", |column| column.deletes_ms),
        ];
        for (name, value) in rows {
            let _ = write!(text, "\n{name:<10}");
            for column in &self.columns {
                let _ = write!(text, "  {:>width$.2} ms", value(column), width = width(column) - 3);
            }
        }
        text.push('\n');
        text
    }
}

impl Settings {
    pub(crate) fn json(&self) -> bool {
        self.json
    }
}

/// Makes the table. Without servers to measure, two of Nuthatch's own are started: one on TCP, one on a UNIX socket.
pub(crate) fn run(settings: &Settings) -> Result<Table, Failure> {
    let scratch = Scratch::new()?;
    let mut own = Vec::new();
    let mut columns: Vec<(String, Address)> =
        settings.servers.iter().map(|server| (server.to_string(), server.clone())).collect();
    if columns.is_empty() {
        let program = std::env::current_exe()
            .map_err(|error| Failure::run(format!("bench: expected to find this program: {error}")))?;
        for (name, address) in [("TCP", free_port()?), ("UNIX socket", scratch.socket("sock"))] {
            let mut command = vec![program.display().to_string(), "serve".to_owned()];
            command.extend(listen_words(&address));
            own.push(Launched::start(command, address.clone())?);
            columns.push((name.to_owned(), address));
        }
    }
    let keys = keys(settings.entries);
    let mut times = vec![[const { Vec::new() }; 3]; columns.len()];
    for _ in 0..settings.rounds {
        for ((_, address), times) in columns.iter().zip(&mut times) {
            let round =
                round(settings, address, &keys).map_err(|lost| Failure::run(format!("bench: {address}: {lost}")))?;
            for (all, one) in times.iter_mut().zip(round) {
                all.push(one.as_secs_f64() * 1e3);
            }
        }
    }
    let columns = columns.into_iter().zip(times).map(|((server, _), [sets, gets, deletes])| Column {
        server,
        sets_ms: median(sets),
        gets_ms: median(gets),
        deletes_ms: median(deletes),
    });
    Ok(Table { operations: settings.entries * BINS.len() as u32, value_bytes: VALUE_BYTES, columns: columns.collect() })
}

/// The middle one; of an even count, the mean of the two.
pub(crate) fn median(mut numbers: Vec<f64>) -> f64 {
    numbers.sort_by(f64::total_cmp);
    match numbers.len() {
        0 => f64::NAN,
        count if count % 2 == 1 => numbers[count / 2],
        count => f64::midpoint(numbers[count / 2 - 1], numbers[count / 2]),
    }
}

/// Entry after entry, each in every bin.
fn keys(entries: u32) -> Keys {
    let (mut bytes, mut ends) = (Vec::new(), Vec::new());
    for entry in 0..entries {
        for bin in BINS {
            bytes.extend_from_slice(format!("{bin}-{bin}_{entry}").as_bytes());
            ends.push(bytes.len() as u32);
        }
    }
    let sizes = Sizes::Drawn(Amounts::Fixed(VALUE_BYTES));
    Keys::new(Names::Listed { bytes, ends }, sizes, Amounts::Fixed(0), VALUE_BYTES, 1)
}

/// Sets, gets and deletes everything; how long each took.
fn round(settings: &Settings, address: &Address, keys: &Keys) -> Result<[Duration; 3], Lost> {
    let count = settings.entries * BINS.len() as u32;
    let socket = address.connect().map_err(|error| format!("expected to connect: {error}"))?;
    set_socket_timeout(&socket, Timeout::Recv, Some(PATIENCE)).map_err(|errno| errno.to_string())?;
    let mut pipe = Pipe::new(socket);
    let mut codec = Codec::new(settings.protocol, true);
    let mut tally = Tally::default();
    let mut pass = |queue: fn(&mut Pipe, &Codec, &Keys, u32)| {
        let began = Instant::now();
        for id in 0..count {
            queue(&mut pipe, &codec, keys, id);
            pipe.send(true)?;
            while pipe.in_flight() > 0 {
                pipe.receive(true)?;
                pipe.answers(&mut codec, keys, &mut tally, None, |_| {})?;
            }
        }
        Ok::<Duration, Lost>(began.elapsed())
    };
    let times = [
        pass(|pipe, codec, keys, id| pipe.set(codec, keys, id, 0, 0))?,
        pass(|pipe, codec, keys, id| pipe.get(codec, keys, &[id], 0))?,
        pass(|pipe, codec, keys, id| pipe.delete(codec, keys, id, 0))?,
    ];
    let count = u64::from(count);
    if let Some(problem) = tally.first_problem {
        return Err(problem);
    }
    if (tally.hits, tally.deleted) != (count, count) {
        return Err(format!(
            "expected all {count} entries to be found and deleted, {} were found and {} deleted",
            tally.hits, tally.deleted
        ));
    }
    Ok(times)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_has_a_column_for_each_server() {
        let column =
            |server: &str, sets_ms| Column { server: server.to_owned(), sets_ms, gets_ms: 2.0, deletes_ms: 3.456 };
        let table = Table {
            operations: 10_000,
            value_bytes: VALUE_BYTES,
            columns: vec![column("TCP", 1.0), column("UNIX socket", 100.5)],
        };
        assert_eq!(
            table.text(),
            "10000 sets, gets and deletes over five bins, values of 1798 bytes, one connection, one request at a time\n\n\
             \x20                    TCP   UNIX socket\n\
             sets             1.00 ms     100.50 ms\n\
             gets             2.00 ms       2.00 ms\n\
             deletes          3.46 ms       3.46 ms\n"
        );
    }

    #[test]
    fn help_teaches_every_flag() {
        crate::flags::tests::help_teaches_every_flag::<Settings>(&[]);
    }

    #[test]
    fn medians_are_in_the_middle() {
        assert_eq!(median(vec![3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median(vec![4.0, 1.0, 2.0, 3.0]), 2.5);
    }
}
