//! One file for each database; nothing outside them knows which one it is talking to.

mod binlog;
mod mysql;
pub(crate) mod notify;
pub(crate) mod plugin;
mod postgres;
mod settled;
mod sqlite;

use crate::error::Error;
use crate::link::Dialect;
use crate::settings::{Engine, Settings};

/// The way to the database of `settings`.
pub(crate) fn of(settings: &Settings) -> Result<Box<dyn Dialect>, Error> {
    Ok(match settings.database.engine() {
        Engine::Sqlite => Box::new(sqlite::Sqlite::new(settings)),
        Engine::Mysql => Box::new(mysql::Mysql::new(settings)?),
        Engine::Postgres => Box::new(postgres::Postgres::new(settings)?),
    })
}
