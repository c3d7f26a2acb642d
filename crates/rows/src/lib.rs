//! Rows of SQL tables as memcached items: the mapping of columns, the meaning of memcached's commands on rows, and the way to
//! SQLite, MySQL, MariaDB and PostgreSQL.
//!
//! A [`Table`] is asked in memcached's words ([`Op`], [`Table::get_many`]) and answers when it is so in the database. Changes of
//! many clients share a transaction; each is answered after the commit and fails alone. No protocol and no cache is known here.
//!
//! ```text
//!  get_many ─▶ queue ─▶ a reader ─▶ one SELECT for all that wait
//!  apply    ─▶ queue ─▶ a writer ─▶ lock the rows ─▶ plan ─▶ write them ─▶ commit ─▶ answers
//! ```
//!
//! Readers and writers own a connection each. They are threads of the table's, or tasks of a [`Lane`] on the event loop of those who
//! ask.
//!
//! ```no_run
//! use std::sync::Arc;
//! use nuthatch_rows::{Database, Op, Settings, Table};
//!
//! # async fn example() -> Result<(), nuthatch_rows::Error> {
//! let database = Database::new("sqlite:///var/lib/nuthatch/shop.db")?;
//! let settings = Settings::new("accounts", database, "accounts", &["id"], &["name"]);
//! let table = Table::open_checked(settings, Arc::new(|| 1_700_000_000))?;
//! table.apply(Op::set(b"7", b"Ada")).await?;
//! assert_eq!(table.get_many(vec![b"7".to_vec()]).await?[0].as_ref().map(|item| &item.value[..]), Some(&b"Ada"[..]));
//! # Ok(())
//! # }
//! ```
#![forbid(unsafe_code)]

mod attached;
mod authorities;
mod budget;
mod cell;
mod commit;
mod dialect;
mod drive;
mod error;
mod fields;
mod lane;
mod layout;
mod link;
mod op;
mod plan;
mod queue;
mod reader;
mod settings;
mod shared;
mod sql;
mod table;
mod waiting;
mod watch;
mod writer;

pub use dialect::notify::triggers;
pub use dialect::plugin::import;
pub use error::Error;
pub use lane::Lane;
pub use layout::Layout;
pub use op::{Done, Item, Mode, Op, Range};
pub use settings::{Commit, Database, Engine, Format, Settings};
pub use shared::{Clock, Stats};
pub use table::{Answered, Table};
pub use watch::{Change, Listener};
