//! Changes that the binary log tells before they can be read.
//!
//! The log is written, and sent on, before InnoDB makes the transaction visible ("Semisynchronous replication" in MySQL's manual
//! calls the two moments sync and commit; a server that waits for a replica between them can take seconds). Who forgets a row
//! when it is told, and reads it again at once, can read it as it was, and would keep that. So a row that was told is locked:
//! its lock is given once the transaction that changed it is visible, and then the row is told again. Rows that others keep
//! locked are told again each time in between. The same for own writes of which it is not known how they ended.

use std::convert::Infallible;
use std::time::Duration;

use mysql_async::prelude::Queryable as _;
use mysql_async::{Conn, OptsBuilder, Params};

use super::mysql;
use crate::layout::Layout;
use crate::link::Fault;
use crate::shared::Shared;
use crate::sql::{Quote, Statements};
use crate::watch::{Change, Doubts};

/// Rows that are locked together.
const ROWS_MAX: usize = 64;
/// How long a statement may wait for locks, in seconds: the least that every server takes.
const LOCK_SECONDS: u32 = 1;
/// What has no key is told again after this long.
const REST: Duration = Duration::from_secs(1);
/// After a statement that failed for another reason than locks.
const PAUSE: Duration = Duration::from_millis(100);

/// Tells again what there are doubts of, until that is not possible any more; then says why.
pub(super) async fn tell_again(shared: &Shared, layout: &Layout, opts: OptsBuilder) -> Result<Infallible, String> {
    let said = |why: String| format!("rows of {} cannot be locked: {why}", shared.place());
    let opts = opts.setup(vec![
        "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED".to_owned(),
        format!("SET SESSION innodb_lock_wait_timeout = {LOCK_SECONDS}"),
    ]);
    let mut conn = Conn::new(opts).await.map_err(|error| said(error.to_string()))?;
    let statements = Statements::new(Quote::Back, layout);
    loop {
        let Doubts { keys, all } = shared.watchers.doubts().await;
        if all {
            tokio::time::sleep(REST).await;
            shared.watchers.tell(&Change::All);
        }
        let mut keys: Vec<Vec<u8>> = keys.into_iter().collect();
        while !keys.is_empty() {
            let some = keys.split_off(keys.len().saturating_sub(ROWS_MAX));
            let locked = lock(&mut conn, layout, &statements, &some).await;
            for key in &some {
                shared.watchers.tell(&Change::Key(key.clone()));
            }
            match locked {
                Ok(()) => {}
                Err(Fault::Lost(why) | Fault::Unready(why)) => return Err(said(why)),
                // Alone, so that one row that stays locked is in nobody's way. It comes again behind all others.
                Err(_) if some.len() > 1 => {
                    for key in some {
                        if lock(&mut conn, layout, &statements, std::slice::from_ref(&key)).await.is_err() {
                            shared.watchers.doubt(&key);
                        }
                        shared.watchers.tell(&Change::Key(key));
                    }
                }
                Err(_) => {
                    tokio::time::sleep(PAUSE).await;
                    some.iter().for_each(|key| shared.watchers.doubt(key));
                }
            }
        }
    }
}

async fn lock(conn: &mut Conn, layout: &Layout, statements: &Statements, keys: &[Vec<u8>]) -> Result<(), Fault> {
    let cells: Vec<_> = keys.iter().filter_map(|key| layout.key_cells(key).ok()).collect();
    if cells.is_empty() {
        return Ok(());
    }
    let text = statements.lock_shared(cells.len());
    conn.exec_drop(text, Params::Positional(mysql::values(&cells))).await.map_err(mysql::fault)
}
