//! What a table is told: where it is, which columns are mapped, and how it may be asked. Plain data; read by whoever reads
//! configuration, checked against the real table when it is opened.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use url::Url;

use crate::error::Error;

/// A table and its mapping, as configured.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// What it is called in messages and counters.
    pub name: String,
    /// Where its database is.
    pub database: Database,
    /// Its name, `schema.table` for one outside the database's default schema, or with a dot in its own name.
    pub table: String,
    /// The column, or columns, that hold the key.
    pub key: Vec<String>,
    /// The column, or columns, that hold the value.
    pub value: Vec<String>,
    /// The column that holds a client's flags.
    pub flags: Option<String>,
    /// The column that is given a new number by every write.
    pub cas: Option<String>,
    /// The column that holds the second, since 1970, in which a row expires.
    pub expiry: Option<String>,
    /// Whether rows are stored, counted or touched, and not only read and deleted: columns that the database generates are then not
    /// mapped.
    pub writes: bool,
    /// How several value columns become one value.
    pub format: Format,
    /// What stands between several columns, in keys too: one ASCII character, except between value columns in [`Format::Plain`].
    pub separator: String,
    /// How many connections read at once.
    pub readers: usize,
    /// How long the database has for one statement or one transaction.
    pub timeout: Duration,
    /// How long writes are gathered for, after a commit of several.
    pub gather: Duration,
    /// When a write is answered.
    pub commit: Commit,
    /// How often expired rows are deleted; never, unless set.
    pub reap: Option<Duration>,
}

impl Settings {
    /// What the separator was expected to be, when it is not.
    pub fn bad_separator(&self) -> Option<&'static str> {
        let is_one = |byte: u8| byte.is_ascii() && !byte.is_ascii_alphanumeric() && byte != b'\\';
        match (self.format, self.key.len(), self.separator.as_bytes()) {
            (Format::Plain, ..=1, []) => Some("one character or more"),
            (Format::Plain, ..=1, _) => None,
            (_, _, &[byte]) if is_one(byte) => None,
            _ => Some("one ASCII character that is no letter, digit or backslash"),
        }
    }

    /// Where the table is, as MySQL's plugin said it: `database/table`.
    pub fn place(&self) -> String {
        let database = match self.database.engine() {
            Engine::Sqlite => self.database.path().file_stem().unwrap_or_default().to_string_lossy().into_owned(),
            _ => self.database.database(),
        };
        match self.table.split_once('.') {
            Some((schema, table)) => format!("{schema}/{table}"),
            None => format!("{database}/{}", self.table),
        }
    }
}

/// How several value columns become one value.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Format {
    /// One after the other, with the separator between them, which a backslash makes part of one.
    #[default]
    Joined,
    /// As MySQL's InnoDB memcached plugin did: as they are, with the separator between them. NULL is empty; what is empty or is
    /// left out at the end is NULL where the column takes that.
    Plain,
    /// As a JSON object whose members are the columns.
    Json,
}

/// When a write is answered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Commit {
    /// When it is committed, as durably as the database commits.
    #[default]
    Durable,
    /// Before that: what was answered in up to this time before a crash may be missing.
    Relaxed(Duration),
}

impl Settings {
    /// A mapping of one key column and some value columns, everything else as by default.
    #[must_use]
    pub fn new(name: &str, database: Database, table: &str, key: &[&str], value: &[&str]) -> Settings {
        let owned = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        Settings {
            name: name.to_owned(),
            database,
            table: table.to_owned(),
            key: owned(key),
            value: owned(value),
            flags: None,
            cas: None,
            expiry: None,
            writes: true,
            format: Format::Joined,
            separator: "|".to_owned(),
            readers: 2,
            timeout: Duration::from_secs(1),
            gather: Duration::from_micros(300),
            commit: Commit::Durable,
            reap: None,
        }
    }
}

/// Where a database is and how it is reached.
#[derive(Clone, PartialEq, Eq)]
pub struct Database {
    url: Url,
    /// The password, when it is not taken from the URL.
    pub password: Option<String>,
    /// The file of certificates, in PEM, of those who may vouch for the server. Without it, those that browsers trust.
    pub authorities: Option<PathBuf>,
}

/// Which database it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Engine {
    /// A file.
    Sqlite,
    /// MySQL, MariaDB, and what speaks their protocol.
    Mysql,
    /// PostgreSQL, and what speaks its protocol.
    Postgres,
}

impl Database {
    /// From `sqlite:///path`, `mysql://user@host:3306/db` or `postgres://user@host:5432/db`.
    ///
    /// # Errors
    /// When it is no such URL.
    pub fn new(url: &str) -> Result<Database, Error> {
        let expected = "sqlite:///PATH, mysql://USER@HOST/DATABASE or postgres://USER@HOST/DATABASE";
        let bad = |why: &str| Error::Settings(format!("{}: {why}, expected {expected}", without_password(url)));
        let url = Url::parse(url).map_err(|error| bad(&error.to_string()))?;
        match url.scheme() {
            "sqlite" if url.path().len() > 1 && url.host_str().is_none_or(str::is_empty) => {}
            "mysql" | "mariadb" | "postgres" | "postgresql" if url.host_str().is_some() && url.path().len() > 1 => {}
            "sqlite" => return Err(bad("it names no file")),
            "mysql" | "mariadb" | "postgres" | "postgresql" => return Err(bad("it names no host or no database")),
            other => return Err(bad(&format!("{other} is no database known here"))),
        }
        Ok(Database { url, password: None, authorities: None })
    }

    /// None yet: what settings hold until they are told which.
    ///
    /// # Panics
    /// Never: it is a URL.
    #[must_use]
    pub fn unnamed() -> Database {
        Database::new("sqlite:///unnamed").expect("it is a URL")
    }

    /// A file of SQLite's.
    ///
    /// # Errors
    /// When the path cannot stand in a URL.
    pub fn sqlite(path: &std::path::Path) -> Result<Database, Error> {
        let url = Url::from_file_path(path)
            .map_err(|()| Error::Settings(format!("{}: expected a path from the root", path.display())))?;
        Database::new(&format!("sqlite://{}", url.path()))
    }

    /// Which database it is.
    pub fn engine(&self) -> Engine {
        match self.url.scheme() {
            "sqlite" => Engine::Sqlite,
            "mysql" | "mariadb" => Engine::Mysql,
            _ => Engine::Postgres,
        }
    }

    /// The file of an SQLite database.
    pub(crate) fn path(&self) -> PathBuf {
        PathBuf::from(decoded(self.url.path()))
    }

    /// The host's name or address.
    pub(crate) fn host(&self) -> String {
        decoded(self.url.host_str().unwrap_or_default()).trim_matches(['[', ']']).to_owned()
    }

    pub(crate) fn port(&self) -> Option<u16> {
        self.url.port()
    }

    pub(crate) fn user(&self) -> String {
        decoded(self.url.username())
    }

    /// The password: the one set, or the URL's.
    pub(crate) fn secret(&self) -> Option<String> {
        self.password.clone().or_else(|| self.url.password().map(decoded))
    }

    /// The database's name.
    pub(crate) fn database(&self) -> String {
        decoded(self.url.path().trim_start_matches('/'))
    }

    /// The URL of another database on the same server, without the password.
    pub(crate) fn with_database(&self, name: &str) -> String {
        let mut url = self.url.clone();
        let _ = url.set_password(None);
        url.set_path(name);
        url.to_string()
    }

    /// A parameter after the question mark, such as `socket` or `tls`.
    pub(crate) fn parameter(&self, name: &str) -> Option<String> {
        self.url.query_pairs().find(|(key, _)| key == name).map(|(_, value)| value.into_owned())
    }

    /// Whether the connection is to be encrypted, and who is to be trusted, by the URL's `tls` parameter.
    ///
    /// # Errors
    /// When it is none of the words there are.
    pub(crate) fn tls(&self) -> Result<Tls, Error> {
        match self.parameter("tls").as_deref() {
            None if self.authorities.is_some() => Ok(Tls::Verified),
            None | Some("off") => Ok(Tls::Off),
            Some("verify" | "on") => Ok(Tls::Verified),
            Some(other) => Err(Error::Settings(format!("{self}: tls={other} is unknown, expected off or verify"))),
        }
    }
}

/// How a connection is encrypted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tls {
    Off,
    Verified,
}

/// Without the password, so that it can stand in a message.
impl fmt::Display for Database {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&without_password(self.url.as_str()))
    }
}

impl fmt::Debug for Database {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Database({self})")
    }
}

fn without_password(url: &str) -> String {
    match Url::parse(url) {
        Ok(mut url) => {
            let _ = url.set_password(None);
            url.set_query(None);
            url.to_string()
        }
        // Whatever it is, it may have a password in it.
        Err(_) => format!("{}…", url.split_once("://").map_or("", |(scheme, _)| scheme)),
    }
}

fn decoded(text: &str) -> String {
    let bytes = text.as_bytes();
    let mut out = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while at < bytes.len() {
        let digits = text.get(at + 1..at + 3).filter(|_| bytes[at] == b'%');
        match digits.and_then(|digits| u8::from_str_radix(digits, 16).ok()) {
            Some(byte) => {
                out.push(byte);
                at += 3;
            }
            None => {
                out.push(bytes[at]);
                at += 1;
            }
        }
    }
    String::from_utf8_lossy(&out).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_is_taken_apart_and_shown_without_its_password() {
        let database = Database::new("mysql://bird:s%20ecret@db.example:3307/shop?tls=verify").unwrap();
        assert_eq!((database.user(), database.secret()), ("bird".to_owned(), Some("s ecret".to_owned())));
        assert_eq!(
            (database.host(), database.port(), database.database()),
            ("db.example".into(), Some(3307), "shop".into())
        );
        assert_eq!(database.tls().unwrap(), Tls::Verified);
        assert_eq!(database.to_string(), "mysql://bird@db.example:3307/shop");
        assert!(!format!("{database:?}").contains("ecret"));
    }

    #[test]
    fn what_is_no_database_says_what_was_expected() {
        let expected = "expected sqlite:///PATH, mysql://USER@HOST/DATABASE or postgres://USER@HOST/DATABASE";
        for (url, why) in [
            ("oracle://host/db", "oracle://host/db: oracle is no database known here"),
            ("mysql://host", "mysql://host: it names no host or no database"),
            ("sqlite://", "sqlite://: it names no file"),
        ] {
            assert_eq!(Database::new(url).unwrap_err().to_string(), format!("{why}, {expected}"));
        }
    }
}
