//! The wiki's database: a table of titles and texts. It is in memory and gone with the process.

use std::sync::{Mutex, MutexGuard, PoisonError};

use rusqlite::{Connection, OptionalExtension, params};

/// The page that one comes in by.
pub(crate) const FIRST: &str = "Nuthatch";

/// What there is to read at the start.
const TEXTS: &[(&str, &str)] = &[
    (
        "Nuthatch",
        "A nuthatch is a small, quick bird that hoards food in crevices and finds it again.\n\nThis page took a while to make. Ask for it again: the answer comes from memory, and X-Cache says so. [[How this works]]",
    ),
    (
        "How this works",
        "A page listener stands in front of this wiki. What the wiki says may be kept is kept for a minute as an item called page:http://HOST/wiki/NAME, which any memcached client can read and delete. See [[Purging]] and [[Stampede]].",
    ),
    (
        "Purging",
        "PURGE of a page forgets it, and so does delete by a memcached client, and so does saving a text by POST. The next who asks has the page made anew. Back to [[Nuthatch]].",
    ),
    (
        "Stampede",
        "When a hundred readers want a page that nobody has, the wiki makes it once, and all of them get it as it comes. Back to [[Nuthatch]].",
    ),
];

/// See the module.
pub(crate) struct Pages(Mutex<Connection>);

impl Pages {
    pub(crate) fn new() -> rusqlite::Result<Pages> {
        let database = Connection::open_in_memory()?;
        database.execute_batch("CREATE TABLE page (title TEXT PRIMARY KEY, text TEXT NOT NULL) WITHOUT ROWID")?;
        let pages = Pages(Mutex::new(database));
        for (title, text) in TEXTS {
            pages.save(title, text)?;
        }
        Ok(pages)
    }

    fn lock(&self) -> MutexGuard<'_, Connection> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn text(&self, title: &str) -> rusqlite::Result<Option<String>> {
        let database = self.lock();
        let mut query = database.prepare_cached("SELECT text FROM page WHERE title = ?1")?;
        query.query_row(params![title], |row| row.get(0)).optional()
    }

    pub(crate) fn save(&self, title: &str, text: &str) -> rusqlite::Result<()> {
        let database = self.lock();
        let sql =
            "INSERT INTO page (title, text) VALUES (?1, ?2) ON CONFLICT (title) DO UPDATE SET text = excluded.text";
        database.prepare_cached(sql)?.execute(params![title, text])?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_saved_is_read_and_every_link_leads_somewhere() {
        let pages = Pages::new().expect("a database");
        assert_eq!(pages.text("New").expect("an answer"), None);
        pages.save("New", "one").expect("saved");
        pages.save("New", "two").expect("saved");
        assert_eq!(pages.text("New").expect("an answer").as_deref(), Some("two"));
        for (_, text) in TEXTS {
            for link in text.split("[[").skip(1).filter_map(|rest| rest.split("]]").next()) {
                assert!(pages.text(link).expect("an answer").is_some(), "{link}");
            }
        }
    }
}
