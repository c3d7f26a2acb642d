//! Statements for databases that take a question mark for a parameter. Names are quoted, keys and values are parameters.

use std::fmt::Write as _;

use crate::cell::Column;
use crate::layout::Layout;

/// How one database writes what the others write otherwise.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Quote {
    /// `"name"`, standard SQL.
    Double,
    /// `` `name` ``, MySQL.
    Back,
}

impl Quote {
    /// A name as it stands in a statement, whatever is in it.
    pub(crate) fn name(self, name: &str) -> String {
        let mark = match self {
            Quote::Double => '"',
            Quote::Back => '`',
        };
        let mut quoted = String::with_capacity(name.len() + 2);
        quoted.push(mark);
        for letter in name.chars() {
            quoted.extend(std::iter::repeat_n(letter, 1 + usize::from(letter == mark)));
        }
        quoted.push(mark);
        quoted
    }

    pub(crate) fn table(self, layout: &Layout) -> String {
        layout.table.iter().map(|part| self.name(part)).collect::<Vec<_>>().join(".")
    }

    pub(crate) fn names<'a>(self, columns: impl IntoIterator<Item = &'a Column>) -> String {
        columns.into_iter().map(|column| self.name(&column.name)).collect::<Vec<_>>().join(", ")
    }
}

/// A statement on a table, whatever the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Shape {
    Select { rows: usize, lock: bool },
    Range { from: Option<bool>, to: Option<bool> },
    Insert { rows: usize },
    Update,
    Upsert { rows: usize },
    Delete { rows: usize },
    Purge { expired: bool },
}

/// The statements on one table.
#[derive(Clone, Debug)]
pub(crate) struct Statements {
    quote: Quote,
    table: String,
    all: String,
    keys: Vec<String>,
    others: Vec<String>,
    expiry: Option<String>,
}

impl Statements {
    pub(crate) fn new(quote: Quote, layout: &Layout) -> Statements {
        let keys: Vec<String> = layout.key.iter().map(|column| quote.name(&column.name)).collect();
        Statements {
            quote,
            table: quote.table(layout),
            all: quote.names(layout.columns()),
            others: layout.columns().skip(keys.len()).map(|column| quote.name(&column.name)).collect(),
            keys,
            expiry: layout.expiry.as_ref().map(|column| quote.name(&column.name)),
        }
    }

    pub(crate) fn text(&self, shape: Shape) -> String {
        match shape {
            Shape::Select { rows, lock } => self.select(rows, lock),
            Shape::Range { from, to } => self.range(from, to),
            Shape::Insert { rows } => self.insert(rows),
            Shape::Update => self.update(),
            Shape::Upsert { rows } => self.upsert(rows),
            Shape::Delete { rows } => self.delete(rows),
            Shape::Purge { expired } => self.purge(expired),
        }
    }

    /// `WHERE` with parameters for the key columns of `count` rows.
    fn where_keys(&self, count: usize) -> String {
        let tuple = |open: &str| marks(self.keys.len(), open);
        match &self.keys[..] {
            [key] if count == 1 => format!(" WHERE {key} = ?"),
            [key] => format!(" WHERE {key} IN ({})", marks(count, "")),
            keys if count == 1 => format!(" WHERE {} = ?", keys.join(" = ? AND ")),
            keys => format!(" WHERE ({}) IN ({})", keys.join(", "), vec![tuple("("); count].join(", ")),
        }
    }

    pub(crate) fn select(&self, count: usize, lock: bool) -> String {
        let lock = if lock { " FOR UPDATE" } else { "" };
        let (all, table, keys) = (&self.all, &self.table, self.where_keys(count));
        format!("SELECT {all} FROM {table}{keys}{lock}")
    }

    /// Locks rows against writers, as MySQL and MariaDB write it in all their versions.
    pub(crate) fn lock_shared(&self, count: usize) -> String {
        format!("SELECT {} FROM {}{} LOCK IN SHARE MODE", self.keys.join(", "), self.table, self.where_keys(count))
    }

    /// Parameters: the bounds that there are, then `now` if rows expire, then the limit.
    pub(crate) fn range(&self, from: Option<bool>, to: Option<bool>) -> String {
        let key = &self.keys[0];
        let mut conditions = Vec::new();
        if let Some(inclusive) = from {
            conditions.push(format!("{key} {} ?", if inclusive { ">=" } else { ">" }));
        }
        if let Some(inclusive) = to {
            conditions.push(format!("{key} {} ?", if inclusive { "<=" } else { "<" }));
        }
        if let Some(expiry) = &self.expiry {
            conditions.push(format!("({expiry} IS NULL OR {expiry} = 0 OR {expiry} > ?)"));
        }
        let mut text = format!("SELECT {} FROM {}", self.all, self.table);
        if !conditions.is_empty() {
            let _ = write!(text, " WHERE {}", conditions.join(" AND "));
        }
        let _ = write!(text, " ORDER BY {key} LIMIT ?");
        text
    }

    pub(crate) fn insert(&self, count: usize) -> String {
        let tuple = marks(self.keys.len() + self.others.len(), "(");
        format!("INSERT INTO {} ({}) VALUES {}", self.table, self.all, vec![tuple; count].join(", "))
    }

    /// Parameters: the other columns, then the key columns, of one row.
    pub(crate) fn update(&self) -> String {
        let keys = self.where_keys(1);
        format!("UPDATE {} SET {} = ?{keys}", self.table, self.others.join(" = ?, "))
    }

    pub(crate) fn upsert(&self, count: usize) -> String {
        let insert = self.insert(count);
        let set = |new: fn(&str) -> String| {
            self.others.iter().map(|name| format!("{name} = {}", new(name))).collect::<Vec<_>>().join(", ")
        };
        match self.quote {
            Quote::Double => {
                let set = set(|name| format!("excluded.{name}"));
                format!("{insert} ON CONFLICT ({}) DO UPDATE SET {set}", self.keys.join(", "))
            }
            Quote::Back => format!("{insert} ON DUPLICATE KEY UPDATE {}", set(|name| format!("VALUES({name})"))),
        }
    }

    pub(crate) fn delete(&self, count: usize) -> String {
        format!("DELETE FROM {}{}", self.table, self.where_keys(count))
    }

    /// Parameters: `now` if `expired`, then the limit.
    pub(crate) fn purge(&self, expired: bool) -> String {
        let condition = match (&self.expiry, expired) {
            (Some(expiry), true) => format!(" WHERE {expiry} <> 0 AND {expiry} <= ?"),
            _ => String::new(),
        };
        let (table, keys) = (&self.table, self.keys.join(", "));
        match self.quote {
            Quote::Back => format!("DELETE FROM {table}{condition} LIMIT ?"),
            Quote::Double => {
                format!("DELETE FROM {table} WHERE ({keys}) IN (SELECT {keys} FROM {table}{condition} LIMIT ?)")
            }
        }
    }
}

fn marks(count: usize, open: &str) -> String {
    let close = if open.is_empty() { "" } else { ")" };
    format!("{open}{}{close}", vec!["?"; count].join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_cannot_leave_its_quotes() {
        assert_eq!(Quote::Double.name("a\"; DROP TABLE t; --"), "\"a\"\"; DROP TABLE t; --\"");
        assert_eq!(Quote::Back.name("a`b"), "`a``b`");
    }
}
