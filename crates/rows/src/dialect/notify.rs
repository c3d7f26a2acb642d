//! Changes as PostgreSQL's triggers tell them, by `LISTEN` and `NOTIFY`.
//!
//! PostgreSQL replays nothing to who was away, and tells only what a trigger was made to tell: without the triggers that
//! [`triggers`] writes, nothing is heard of and this says so. A notification comes when its transaction commits. The connection is
//! asked every second whether it still stands. Of more changes at once than are worth telling apart ([`HEARD_MAX`]) a gap is told.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use futures_util::{StreamExt as _, stream};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::mpsc;
use tokio::sync::mpsc::error::TrySendError;
use tokio_postgres::{AsyncMessage, Client, Config, Connection, NoTls, Notification};
use tokio_postgres_rustls::MakeRustlsConnect;

use crate::cell::Kind;
use crate::drive;
use crate::layout::Layout;
use crate::settings::Settings;
use crate::shared::Shared;
use crate::sql::Quote;
use crate::watch::{Change, Unheard};

const ASKED_EVERY: Duration = Duration::from_secs(1);

/// Notifications that wait to be told, of up to 8000 bytes each. They come faster than they are told only where one transaction
/// changes very many rows, and then forgetting every copy costs less than forgetting so many one by one.
const HEARD_MAX: usize = 4096;

/// A notification holds less than 8000 bytes ("NOTIFY" in PostgreSQL's manual).
const PAYLOAD_MAX: usize = 7000;

/// The names of our triggers on every table.
const TRIGGERS: [&str; 2] = ["nuthatch_changes", "nuthatch_truncate"];

/// The channel of a table: a name of up to 63 bytes.
fn channel(settings: &Settings) -> String {
    let name = format!("nuthatch:{}", settings.table);
    let end = (0..=name.len().min(63)).rev().find(|end| name.is_char_boundary(*end)).unwrap_or(0);
    name[..end].to_owned()
}

/// SQL that makes PostgreSQL tell of every change to the table of `settings`; to be run once by the table's owner. Keys of
/// bytes cannot be told, so a change to such a table tells that any row may have changed.
pub fn triggers(settings: &Settings, layout: &Layout) -> String {
    let quote = Quote::Double;
    let literal = |text: &str| format!("'{}'", text.replace('\'', "''"));
    let (table, channel) = (quote.table(layout), literal(&channel(settings)));
    let function = quote.name(&format!("nuthatch_{}", layout.table.join("_")));
    let separator = &settings.separator;
    let key = |row: &str| -> String {
        let whole: Option<Vec<String>> = layout
            .key
            .iter()
            .map(|column| {
                let text = format!("{row}.{}::text", quote.name(&column.name));
                match (&column.kind, layout.key.len()) {
                    (Kind::Binary { .. }, _) => None,
                    (_, 1) => Some(text),
                    _ => {
                        let slashes = format!("replace({text}, {}, {})", literal("\\"), literal("\\\\"));
                        let escaped = literal(&format!("\\{separator}"));
                        Some(format!("replace({slashes}, {}, {escaped})", literal(separator)))
                    }
                }
            })
            .collect();
        let whole = whole.map_or("''".to_owned(), |keys| keys.join(&format!(" || {} || ", literal(separator))));
        format!(
            "PERFORM pg_notify({channel}, CASE WHEN octet_length({whole}) > {PAYLOAD_MAX} THEN '' ELSE {whole} END);"
        )
    };
    let [changes, truncate] = TRIGGERS;
    format!(
        "CREATE OR REPLACE FUNCTION {function}() RETURNS trigger LANGUAGE plpgsql AS $nuthatch$\n\
         BEGIN\n\
         \x20 IF TG_OP = 'TRUNCATE' THEN\n\
         \x20   PERFORM pg_notify({channel}, '');\n\
         \x20   RETURN NULL;\n\
         \x20 END IF;\n\
         \x20 IF TG_OP <> 'INSERT' THEN\n\
         \x20   {}\n\
         \x20 END IF;\n\
         \x20 IF TG_OP <> 'DELETE' THEN\n\
         \x20   {}\n\
         \x20 END IF;\n\
         \x20 RETURN NULL;\n\
         END\n\
         $nuthatch$;\n\
         DROP TRIGGER IF EXISTS {changes} ON {table};\n\
         CREATE TRIGGER {changes} AFTER INSERT OR UPDATE OR DELETE ON {table}\n\
         \x20 FOR EACH ROW EXECUTE FUNCTION {function}();\n\
         DROP TRIGGER IF EXISTS {truncate} ON {table};\n\
         CREATE TRIGGER {truncate} AFTER TRUNCATE ON {table}\n\
         \x20 FOR EACH STATEMENT EXECUTE FUNCTION {function}();\n",
        key("OLD"),
        key("NEW"),
    )
}

/// Listens until that is not possible any more; then says why.
pub(super) fn watch(shared: &Shared, config: &Config, tls: Option<&MakeRustlsConnect>) -> Unheard {
    drive::watch(shared, follow(shared, config, tls))
}

async fn follow(shared: &Shared, config: &Config, tls: Option<&MakeRustlsConnect>) -> Result<Infallible, Unheard> {
    let place = shared.place();
    let said = |error: tokio_postgres::Error| match error.as_db_error() {
        Some(error) => Unheard::Refused(format!("changes of {place}: {}", error.message())),
        None => Unheard::Lost(format!("changes of {place}: {error}")),
    };
    let (hears, mut heard) = hearing();
    let connect = tokio::time::timeout(shared.settings.timeout, connect(config, tls, hears));
    let client = connect.await.map_err(|_| format!("{place}: cannot connect in time"))?.map_err(said)?;
    // The database may be another by now, and the number of the writer's session someone else's.
    shared.watchers.forget_own();
    client.batch_execute(&format!("LISTEN {}", Quote::Double.name(&channel(&shared.settings)))).await.map_err(said)?;
    ask_for_triggers(shared, &client).await.map_err(said)?.map_err(Unheard::Refused)?;
    shared.watchers.went_on();
    shared.watchers.tell(&Change::Gap);
    loop {
        match tokio::time::timeout(ASKED_EVERY, heard.next()).await {
            Ok(Some(News::Missed)) => {
                shared.counters.gaps.add(1);
                shared.watchers.tell(&Change::Gap);
            }
            Ok(Some(News::Heard(notification))) => {
                if shared.watchers.is_own_session(notification.process_id().into(), Instant::now()) {
                    continue;
                }
                shared.counters.heard.add(1);
                let key = notification.payload().as_bytes().to_vec();
                shared.watchers.tell(&if key.is_empty() { Change::All } else { Change::Key(key) });
            }
            Ok(None) => return Err(format!("changes of {place}: the connection is lost").into()),
            Err(_) => {
                let asked = tokio::time::timeout(shared.settings.timeout, ask_for_triggers(shared, &client)).await;
                let asked = asked.map_err(|_| format!("changes of {place}: the database is silent"))?;
                asked.map_err(said)?.map_err(Unheard::Refused)?;
            }
        }
    }
}

/// A queue of what is heard, that is never longer than [`HEARD_MAX`].
fn hearing<T>() -> (Hears<T>, HeardBy<T>) {
    let (sender, queue) = mpsc::channel(HEARD_MAX);
    let missed = Arc::new(AtomicBool::new(false));
    (Hears { sender, missed: Arc::clone(&missed) }, HeardBy { queue, missed })
}

/// Its end where something is heard.
struct Hears<T> {
    sender: mpsc::Sender<T>,
    missed: Arc<AtomicBool>,
}

impl<T> Hears<T> {
    /// Passes it on, or notes that it is missed. False: nobody listens any more.
    fn hear(&self, heard: T) -> bool {
        match self.sender.try_send(heard) {
            Ok(()) => true,
            Err(TrySendError::Full(_)) => {
                self.missed.store(true, Ordering::Release);
                true
            }
            Err(TrySendError::Closed(_)) => false,
        }
    }
}

/// Its other end.
struct HeardBy<T> {
    queue: mpsc::Receiver<T>,
    missed: Arc<AtomicBool>,
}

enum News<T> {
    Heard(T),
    /// Something came that did not fit. It is as good as everything that came until now.
    Missed,
}

impl<T> HeardBy<T> {
    /// What comes next; none after the end.
    async fn next(&mut self) -> Option<News<T>> {
        // While anything is missed the queue is full, so that nobody waits below.
        if self.missed.swap(false, Ordering::AcqRel) {
            while self.queue.try_recv().is_ok() {}
            return Some(News::Missed);
        }
        self.queue.recv().await.map(News::Heard)
    }
}

/// Whether the triggers are there and in force.
async fn ask_for_triggers(shared: &Shared, client: &Client) -> Result<Result<(), String>, tokio_postgres::Error> {
    let parts = shared.settings.table.splitn(2, '.').map(|part| Quote::Double.name(part));
    let table = parts.collect::<Vec<_>>().join(".");
    let row = client
        .query_one(
            "SELECT count(*) FROM pg_trigger WHERE tgrelid = to_regclass($1::text) AND tgenabled IN ('O', 'A') \
             AND tgname::text = ANY($2::text[])",
            &[&table, &TRIGGERS.as_slice()],
        )
        .await?;
    let there: i64 = row.try_get(0)?;
    Ok(if there == 2 {
        Ok(())
    } else {
        Err(format!("{} has no triggers to tell of changes; `nuthatch rows triggers` writes them", shared.place()))
    })
}

async fn connect(
    config: &Config,
    tls: Option<&MakeRustlsConnect>,
    hears: Hears<Notification>,
) -> Result<Client, tokio_postgres::Error> {
    Ok(match tls {
        None => {
            let (client, connection) = config.connect(NoTls).await?;
            tokio::spawn(pass_on(connection, hears));
            client
        }
        Some(tls) => {
            let (client, connection) = config.connect(tls.clone()).await?;
            tokio::spawn(pass_on(connection, hears));
            client
        }
    })
}

/// Drives a connection and passes on what it is told. Whoever listens learns of its end by the end of the channel.
async fn pass_on<S, T>(mut connection: Connection<S, T>, hears: Hears<Notification>)
where
    S: AsyncRead + AsyncWrite + Unpin,
    T: AsyncRead + AsyncWrite + Unpin,
{
    let mut messages = stream::poll_fn(move |context| connection.poll_message(context));
    while let Some(Ok(message)) = messages.next().await {
        if let AsyncMessage::Notification(notification) = message
            && !hears.hear(notification)
        {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_more_than_fits_a_gap_is_told_once_and_what_comes_later_as_it_comes() {
        let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
        let (hears, mut heard) = hearing();
        let mut next = || match runtime.block_on(heard.next()) {
            Some(News::Heard(number)) => Some(number),
            Some(News::Missed) => None,
            None => panic!("it has not ended"),
        };
        let heard_of = |numbers: std::ops::Range<usize>| numbers.for_each(|number| assert!(hears.hear(number)));
        heard_of(0..HEARD_MAX);
        assert_eq!(next(), Some(0), "what fits is told");
        heard_of(0..3);
        assert_eq!((next(), hears.sender.capacity()), (None, HEARD_MAX), "and nothing waits that the gap includes");
        heard_of(7..8);
        assert_eq!(next(), Some(7));
        drop(heard);
        assert!(!hears.hear(8), "nobody listens");
    }
}
