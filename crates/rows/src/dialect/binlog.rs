//! Changes as MySQL's and MariaDB's binary log tells them, read as a replica would read it.
//!
//! Rows are told where the log has them (`binlog_format = ROW`, or the statements of `MIXED` that are logged as rows); a
//! statement that is logged as text could have changed any row. A change to the table's definition ends the reading, which begins
//! again with the new one. The log tells of a change a moment before it is visible; [`settled`] tells of it again once it is.
//! The server says something at least every second, so that a connection that died is noticed.
//!
//! An event holds the whole of a changed row, before and after, and may be larger than what the server takes from a client.
//! One that is too large to be held here ends the reading, which begins again behind it: no event is met twice for its size.
//!
//! Needs the privileges `REPLICATION SLAVE` and `REPLICATION CLIENT` (MariaDB 10.5: `BINLOG MONITOR`).

use std::convert::Infallible;
use std::hash::{BuildHasher, RandomState};
use std::time::{Duration, SystemTime};

use futures_util::StreamExt as _;
use mysql_async::binlog::events::{EventData, RowsEventData, TableMapEvent};
use mysql_async::binlog::row::BinlogRow;
use mysql_async::binlog::value::BinlogValue;
use mysql_async::prelude::Queryable;
use mysql_async::{BinlogStreamRequest, Conn, Opts};

use super::{mysql, settled};
use crate::cell::{Cell, Kind};
use crate::drive;
use crate::layout::Layout;
use crate::shared::Shared;
use crate::watch::{Change, Unheard};

/// What the server is told of its replica: in nanoseconds, how often to say that nothing happened; and to leave out what was not
/// asked for (MariaDB's `MARIA_SLAVE_CAPABILITY_TOLERATE_HOLES`), which else is sent blanked: the texts of statements logged as rows,
/// each as large as all the rows that it wrote.
const ASKED_OF_SERVER: &str = "SET @master_heartbeat_period = 1000000000, @mariadb_slave_capability = 2";
/// The largest event that is read: a row as it was and as it is, of up to 32 MiB each. A server sends up to 1 GiB; while an event is
/// taken apart its memory is needed a few times over.
const EVENT_BYTES_MAX: usize = 64 << 20;
/// Without a word for this long, the connection is dead.
const SILENCE_MAX: Duration = Duration::from_secs(4);

/// Reads the log until that is not possible any more; then says why.
pub(super) fn watch(shared: &Shared) -> Unheard {
    drive::watch(shared, follow(shared))
}

/// Where a table's key and cas columns are in a row of the log.
struct Places {
    schema: String,
    table: String,
    /// For each key column its place and whether its text is in a character set that is read here.
    key: Vec<(usize, bool)>,
    cas: Option<usize>,
}

/// What an error of the server means to those who listen.
fn said(shared: &Shared, error: &mysql_async::Error) -> Unheard {
    let why = format!("the binary log of {}: {error}", shared.settings.database);
    if matches!(error, mysql_async::Error::Server(_)) { Unheard::Refused(why) } else { Unheard::Lost(why) }
}

async fn follow(shared: &Shared) -> Result<Infallible, Unheard> {
    let said = |error: mysql_async::Error| said(shared, &error);
    // What the driver takes of itself is what the server takes, which is less than what it sends of its log.
    let opts = mysql::opts(&shared.settings).map_err(|error| error.to_string())?;
    let opts = opts.max_allowed_packet(Some(EVENT_BYTES_MAX));
    let connect = tokio::time::timeout(shared.settings.timeout, Conn::new(Opts::from(opts)));
    let mut conn =
        connect.await.map_err(|_| format!("{}: cannot connect in time", shared.settings.database))?.map_err(said)?;

    let Some(layout) = shared.layout.get() else {
        return Err(format!("{}: it was not seen yet", shared.place()).into());
    };
    let places = places(shared, &layout, &mut conn).await.map_err(said)?;
    let again = mysql::opts(&shared.settings).map_err(|error| error.to_string())?;
    shared.watchers.keep_doubts();
    tokio::select! {
        ended = read(shared, &layout, &places, conn) => ended,
        ended = settled::tell_again(shared, &layout, again) => ended.map_err(Unheard::from),
    }
}

/// Where the log ends, for a snapshot of the data that has everything before it and nothing behind it, where the server tells of
/// such a place (MariaDB's and Percona's `binlog_snapshot_file`).
async fn snapshot(conn: &mut Conn) -> Result<Option<(String, u64)>, mysql_async::Error> {
    conn.query_drop("START TRANSACTION WITH CONSISTENT SNAPSHOT").await?;
    let status: Vec<(String, String)> = conn.query("SHOW STATUS LIKE 'binlog\\_snapshot\\_%'").await?;
    conn.query_drop("ROLLBACK").await?;
    let named =
        |wanted: &str| status.iter().find(|(name, _)| name.eq_ignore_ascii_case(wanted)).map(|(_, value)| value);
    let position = named("binlog_snapshot_position").and_then(|position| position.parse().ok());
    Ok(named("binlog_snapshot_file").filter(|file| !file.is_empty()).cloned().zip(position))
}

async fn end(shared: &Shared, conn: &mut Conn) -> Result<(String, u64), Unheard> {
    let said = |error: mysql_async::Error| said(shared, &error);
    if let Some(place) = snapshot(conn).await.map_err(said)? {
        return Ok(place);
    }
    let status: Option<mysql_async::Row> = match conn.query_first("SHOW MASTER STATUS").await {
        Ok(status) => status,
        // MySQL 8.4 calls it otherwise.
        Err(mysql_async::Error::Server(error)) if error.code == 1064 => {
            conn.query_first("SHOW BINARY LOG STATUS").await.map_err(said)?
        }
        Err(error) => return Err(said(error)),
    };
    let no_log = || Unheard::Refused(format!("{} keeps no binary log, set log_bin", shared.settings.database));
    let status = status.ok_or_else(no_log)?;
    let (file, position): (Option<String>, Option<u64>) = (status.get(0), status.get(1));
    let (Some(file), Some(position)) = (file, position) else {
        return Err(format!("{} does not say where its binary log ends", shared.settings.database).into());
    };
    // What is in the log already may not be visible yet.
    shared.watchers.doubt_all();
    Ok((file, position))
}

async fn read(shared: &Shared, layout: &Layout, places: &Places, mut conn: Conn) -> Result<Infallible, Unheard> {
    let said = |error: mysql_async::Error| said(shared, &error);
    let (file, position) = end(shared, &mut conn).await?;
    // Of own changes before this place nothing will be heard.
    shared.watchers.forget_own();
    conn.query_drop(ASKED_OF_SERVER).await.map_err(said)?;

    // Replicas are told apart by their number; a random one is unlikely to be taken.
    let number = 1 << 31 | RandomState::new().hash_one(0) as u32;
    let request = BinlogStreamRequest::new(number).with_filename(file.as_bytes()).with_pos(position);
    let mut stream = conn.get_binlog_stream(request).await.map_err(said)?;
    let mut begun = false;
    loop {
        let event = tokio::time::timeout(SILENCE_MAX, stream.next()).await;
        let event = event.map_err(|_| format!("the binary log of {} is silent", shared.settings.database))?;
        let event =
            event.ok_or_else(|| format!("the binary log of {} ended", shared.settings.database))?.map_err(said)?;
        if !begun {
            // The server has begun to send: whatever happens from here on is told.
            begun = true;
            shared.watchers.went_on();
            shared.watchers.tell(&Change::Gap);
        }
        let data = match event.read_data() {
            Ok(data) => data,
            Err(error) => return Err(format!("the binary log of {}: {error}", shared.settings.database).into()),
        };
        match data {
            Some(EventData::RowsEvent(rows)) => {
                let Some(map) = stream.get_tme(rows.table_id()) else {
                    return Err(format!("the binary log of {} has rows of no table", shared.settings.database).into());
                };
                if *map.database_name_raw() == *places.schema.as_bytes()
                    && *map.table_name_raw() == *places.table.as_bytes()
                {
                    shared.watchers.set_lag(age(event.header().timestamp()));
                    tell_rows(shared, layout, places, &rows, map);
                }
            }
            Some(EventData::QueryEvent(query)) => match statement(&query.query(), places) {
                Meant::Nothing => {}
                Meant::Rows => {
                    shared.counters.heard.add(1);
                    shared.watchers.tell(&Change::All);
                    shared.watchers.doubt_all();
                }
                Meant::Definition => return Err(format!("the definition of {} changed", shared.place()).into()),
            },
            Some(EventData::IncidentEvent(_)) => {
                return Err("the server says that its binary log has a hole".to_owned().into());
            }
            _ => {}
        }
    }
}

/// How old an event is that was logged in this second of the server's clock, at most.
fn age(second: u32) -> Duration {
    let logged = SystemTime::UNIX_EPOCH + Duration::from_secs(second.into());
    SystemTime::now().duration_since(logged).unwrap_or_default()
}

/// MariaDB's stand-in for an event that it takes a replica of this age not to know begins with this, or with as much of it
/// as the event had room for.
const STAND_IN: &str = "# dummy event";

/// What a statement that is logged as text may have done to a table.
#[derive(Debug, PartialEq, Eq)]
enum Meant {
    Nothing,
    Rows,
    Definition,
}

fn statement(text: &str, places: &Places) -> Meant {
    let text = text.trim_start().to_lowercase();
    let (schema, table) = (places.schema.to_lowercase(), places.table.to_lowercase());
    // A name with a quote in it is written otherwise in a statement.
    let mentioned = table.contains('`') || names(&text, &table);
    match text.split(|letter: char| !letter.is_ascii_alphabetic()).next().unwrap_or_default() {
        _ if text.starts_with(STAND_IN) || STAND_IN.starts_with(&text) => Meant::Nothing,
        "begin" | "commit" | "rollback" | "savepoint" | "xa" => Meant::Nothing,
        "truncate" if !mentioned => Meant::Nothing,
        "alter" | "create" | "rename" if !mentioned => Meant::Nothing,
        // A database may go with all its tables.
        "drop" if !mentioned && !names(&text, &schema) => Meant::Nothing,
        "alter" | "create" | "rename" | "drop" => Meant::Definition,
        _ => Meant::Rows,
    }
}

/// Whether `text` has `name`, and not only as a part of a longer one.
fn names(text: &str, name: &str) -> bool {
    let goes_on = |letter: char| letter.is_alphanumeric() || letter == '_' || letter == '$';
    text.match_indices(name)
        .any(|(at, _)| !text[..at].ends_with(goes_on) && !text[at + name.len()..].starts_with(goes_on))
}

async fn places(shared: &Shared, layout: &Layout, conn: &mut Conn) -> Result<Places, mysql_async::Error> {
    let (schema, table) = match shared.settings.table.split_once('.') {
        Some((schema, table)) => (schema.to_owned(), table.to_owned()),
        None => (shared.settings.database.database(), shared.settings.table.clone()),
    };
    let columns: Vec<(String, Option<String>)> = conn
        .exec(
            "SELECT COLUMN_NAME, CHARACTER_SET_NAME FROM information_schema.COLUMNS \
             WHERE TABLE_SCHEMA = ? AND TABLE_NAME = ? ORDER BY ORDINAL_POSITION",
            (&schema, &table),
        )
        .await?;
    let place = |name: &str| columns.iter().position(|(column, _)| column == name).unwrap_or(usize::MAX);
    let plain = |place: usize| {
        let set = columns.get(place).and_then(|(_, set)| set.as_deref());
        set.is_none_or(|set| set.starts_with("utf8") || set == "ascii")
    };
    let key = layout.key.iter().map(|column| place(&column.name)).map(|place| (place, plain(place))).collect();
    Ok(Places { schema, table, key, cas: layout.cas.as_ref().map(|column| place(&column.name)) })
}

fn tell_rows(shared: &Shared, layout: &Layout, places: &Places, event: &RowsEventData<'_>, map: &TableMapEvent<'_>) {
    for row in event.rows(map) {
        let Ok((before, after)) = row else {
            shared.counters.heard.add(1);
            shared.watchers.tell(&Change::All);
            shared.watchers.doubt_all();
            return;
        };
        let stamp = |row: &BinlogRow| -> Option<i64> {
            match cell(row, places.cas?)? {
                Cell::Int(number) => i64::try_from(number).ok(),
                _ => None,
            }
        };
        // One of ours, under the key that it still has.
        let own = after.as_ref().and_then(stamp).is_some_and(|stamp| shared.watchers.takes_own_stamp(stamp));
        if own {
            continue;
        }
        let mut told: Option<Vec<u8>> = None;
        for image in [&before, &after].into_iter().flatten() {
            // An image of a changed row may leave out what did not change.
            let key = key(layout, places, image);
            if key.is_none() && told.is_some() {
                continue;
            }
            if key.is_some() && key == told {
                continue;
            }
            shared.counters.heard.add(1);
            match &key {
                Some(key) => {
                    shared.watchers.tell(&Change::Key(key.clone()));
                    shared.watchers.doubt(key);
                }
                None => {
                    shared.watchers.tell(&Change::All);
                    shared.watchers.doubt_all();
                }
            }
            told = key;
        }
    }
}

fn cell(row: &BinlogRow, place: usize) -> Option<Cell> {
    match row.as_ref(place)? {
        BinlogValue::Value(value) => Some(mysql::cell(value.clone())),
        _ => None,
    }
}

/// The key of a logged row, if it is all there and can be read.
fn key(layout: &Layout, places: &Places, row: &BinlogRow) -> Option<Vec<u8>> {
    let mut cells = Vec::with_capacity(places.key.len());
    for (column, (place, plain)) in layout.key.iter().zip(&places.key) {
        let mut cell = cell(row, *place)?;
        match (&column.kind, &mut cell) {
            // The log has the bits of a number and not its sign.
            (Kind::Integer { min: 0, max }, Cell::Int(number)) if *number < 0 => *number += max + 1,
            (Kind::Text { .. }, Cell::Bytes(bytes)) if !plain && !bytes.is_ascii() => return None,
            _ => {}
        }
        cells.push(column.tidy(cell));
    }
    Some(layout.key_bytes(&cells))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_statement_means_what_it_may_have_done_to_the_table() {
        let places = Places { schema: "shop".into(), table: "Birds".into(), key: Vec::new(), cas: None };
        for (text, meant) in [
            ("BEGIN", Meant::Nothing),
            ("# Dummy event replacing event type 160 that slave cannot handle.", Meant::Nothing),
            ("# Dum", Meant::Nothing),
            ("# of cats\nUPDATE birds SET a = 1", Meant::Rows),
            ("CREATE TABLE cats (id INT)", Meant::Nothing),
            ("TRUNCATE cats", Meant::Nothing),
            ("TRUNCATE birds2", Meant::Nothing),
            ("TRUNCATE `shop`.`BIRDS`", Meant::Rows),
            (" truncate `birds`", Meant::Rows),
            ("UPDATE cats SET a = 1", Meant::Rows),
            ("ALTER TABLE birds ADD a INT", Meant::Definition),
            ("DROP DATABASE Shop", Meant::Definition),
            ("RENAME TABLE cats TO BIRDS", Meant::Definition),
        ] {
            assert_eq!(statement(text, &places), meant, "{text}");
        }
    }
}
