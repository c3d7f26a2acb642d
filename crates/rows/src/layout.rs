//! A mapping that fits its table: the columns in their places, and the way from keys and values to cells and back. Pure.
//!
//! Made once, when a table is opened; whatever does not fit is one sentence here, and nothing later asks again.

use std::hash::Hasher;

use twox_hash::XxHash64;

use crate::cell::{Cell, Column, Kind, shown};
use crate::error::Error;
use crate::fields;
use crate::settings::{Format, Settings};

/// What a database says of a table.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Described {
    /// Its columns.
    pub(crate) columns: Vec<Column>,
    /// The columns of each of its unique indexes over whole columns and all rows.
    pub(crate) unique: Vec<Vec<String>>,
    /// There are further unique indexes, over parts or expressions.
    pub(crate) further_unique: bool,
}

/// The columns of a mapping.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layout {
    /// For sentences: the table's name in the settings.
    name: String,
    /// The table, in parts to be quoted: `schema`, `table` or only the latter.
    pub(crate) table: Vec<String>,
    pub(crate) key: Vec<Column>,
    /// Those of the value that are not of the key.
    pub(crate) value: Vec<Column>,
    /// The columns that clients see as the value, in their order.
    shown: Vec<Column>,
    /// Where the cell of each of those is.
    places: Vec<Place>,
    pub(crate) flags: Option<Column>,
    pub(crate) cas: Option<Column>,
    pub(crate) expiry: Option<Column>,
    format: Format,
    separator: String,
    /// No other unique index can be in the way of a row with this key.
    pub(crate) sole_unique: bool,
    /// Why no row can be inserted, if none can.
    pub(crate) uninsertable: Option<String>,
    /// Why none can be inserted or changed, if none can.
    pub(crate) unwritable: Option<String>,
    notes: Vec<String>,
}

/// Where the cell of a column that clients see is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    Key(usize),
    Value(usize),
}

/// A row, as far as it is mapped.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Row {
    pub(crate) key: Vec<Cell>,
    pub(crate) value: Vec<Cell>,
    pub(crate) flags: u32,
    pub(crate) cas: i64,
    /// In seconds since 1970.
    pub(crate) expiry: Option<i64>,
}

impl Row {
    pub(crate) fn expired(&self, now: i64) -> bool {
        self.expiry.is_some_and(|expiry| expiry <= now)
    }
}

impl Layout {
    /// The mapping of `settings` on a table that is as `described`.
    ///
    /// # Errors
    /// What does not fit, in one sentence.
    pub(crate) fn new(settings: &Settings, described: &Described) -> Result<Layout, Error> {
        let bad = |why: String| Error::Mapping(format!("table {}: {why}", settings.table));
        if described.columns.is_empty() {
            return Err(bad(format!("it does not exist in {}", settings.database)));
        }
        let mut taken: Vec<&str> = Vec::new();
        let mut column = |what: &str, name: &String, fits: fn(&Kind) -> Option<&'static str>| {
            let Some(found) = described.columns.iter().find(|column| column.name == *name) else {
                let there: Vec<&str> = described.columns.iter().map(|column| column.name.as_str()).collect();
                return Err(bad(format!("{what} column {name} does not exist, only {}", there.join(", "))));
            };
            if taken.contains(&found.name.as_str()) {
                return Err(bad(format!("column {name} is mapped twice")));
            }
            taken.push(&found.name);
            match fits(&found.kind) {
                Some(expected) => Err(bad(format!("{what} column {name} holds {}, expected {expected}", found.kind))),
                None => Ok(found.clone()),
            }
        };
        let mappable = |kind: &Kind| match kind {
            Kind::Other(_) => Some("text, bytes or whole numbers"),
            _ => None,
        };
        let in_json = |kind: &Kind| match kind {
            Kind::Other(_) | Kind::Binary { .. } => Some("text or whole numbers in JSON"),
            _ => None,
        };
        let flags_fit = |kind: &Kind| match kind {
            Kind::Integer { max, .. } if *max >= i32::MAX.into() => None,
            _ => Some("whole numbers of 32 bits or more"),
        };
        let seconds_fit = |kind: &Kind| match kind {
            Kind::Integer { max, .. } if *max >= i32::MAX.into() => None,
            _ => Some("whole numbers of 32 bits or more, as seconds since 1970"),
        };
        let cas_fits = |kind: &Kind| match kind {
            Kind::Integer { max, .. } if *max >= i64::MAX.into() => None,
            _ => Some("whole numbers of 64 bits"),
        };

        if settings.key.is_empty() || settings.value.is_empty() {
            return Err(bad("expected at least one key column and one value column".to_owned()));
        }
        if let Some(expected) = settings.bad_separator() {
            return Err(bad(format!("expected a separator that is {expected}, not {:?}", settings.separator)));
        }
        let mut generated: Option<String> = None;
        let mut column = |what: &str, name: &String, fits: fn(&Kind) -> Option<&'static str>| {
            let found = column(what, name, fits)?;
            if found.generated {
                generated.get_or_insert_with(|| format!("{what} column {name}"));
            }
            Ok(found)
        };
        let key = settings.key.iter().map(|name| column("key", name, mappable)).collect::<Result<Vec<_>, _>>()?;
        let value_fits = if settings.format == Format::Json { in_json } else { mappable };
        let (mut value, mut shown, mut places) = (Vec::new(), Vec::new(), Vec::new());
        for name in &settings.value {
            // A key can be seen in the value too.
            if let Some(at) = key.iter().position(|column| column.name == *name) {
                shown.push(key[at].clone());
                places.push(Place::Key(at));
                continue;
            }
            let found = column("value", name, value_fits)?;
            places.push(Place::Value(value.len()));
            shown.push(found.clone());
            value.push(found);
        }
        if value.is_empty() {
            return Err(bad("expected a value column that is none of the key's".to_owned()));
        }
        let flags = settings.flags.as_ref().map(|name| column("flags", name, flags_fit)).transpose()?;
        let cas = settings.cas.as_ref().map(|name| column("cas", name, cas_fits)).transpose()?;
        let expiry = settings.expiry.as_ref().map(|name| column("expiry", name, seconds_fit)).transpose()?;

        if let Some(column) = generated.as_ref().filter(|_| settings.writes) {
            return Err(bad(format!(
                "{column} is generated by the database and cannot be written, expected another column or a pool whose policy_set is \"disabled\""
            )));
        }
        let unwritable =
            generated.map(|column| format!("{column} of table {} is generated by the database", settings.table));

        let is_key = |index: &&Vec<String>| {
            index.len() == settings.key.len() && index.iter().all(|name| settings.key.contains(name))
        };
        if !described.unique.iter().any(|index| is_key(&index)) {
            return Err(bad(format!("expected a unique index on {}, which has none", settings.key.join(", "))));
        }
        let sole_unique = !described.further_unique && described.unique.iter().all(|index| is_key(&index));

        let missing: Vec<&str> = described
            .columns
            .iter()
            .filter(|column| !column.fills_itself && !column.nullable && !taken.contains(&column.name.as_str()))
            .map(|column| column.name.as_str())
            .collect();
        let uninsertable = (!missing.is_empty()).then(|| {
            format!(
                "{} of table {} is not mapped, takes no NULL and has no default",
                missing.join(", "),
                settings.table
            )
        });

        let mut layout = Layout {
            name: settings.name.clone(),
            table: settings.table.splitn(2, '.').map(str::to_owned).collect(),
            key,
            value,
            shown,
            places,
            flags,
            cas,
            expiry,
            format: settings.format,
            separator: settings.separator.clone(),
            sole_unique,
            uninsertable,
            unwritable,
            notes: Vec::new(),
        };
        layout.notes = layout.gives_up();
        Ok(layout)
    }

    /// What this mapping gives up, a sentence each.
    pub fn notes(&self) -> &[String] {
        &self.notes
    }

    fn gives_up(&self) -> Vec<String> {
        let mut notes = Vec::new();
        let mut note = |text: String| notes.push(format!("table {}: {text}", self.name));
        if self.flags.is_none() {
            note("without a flags column, clients' flags are not kept".to_owned());
        }
        if self.cas.is_none() {
            note(
                "without a cas column, a row that is given its old content again has its old CAS unique again"
                    .to_owned(),
            );
        }
        if self.expiry.is_none() {
            note("without an expiry column, rows never expire".to_owned());
        }
        if let Some(why) = &self.unwritable {
            note(format!("rows can be read and deleted but not written: {why}"));
        } else if let Some(why) = &self.uninsertable {
            note(format!("rows can be changed but not added: {why}"));
        }
        for column in &self.key {
            if let Some(collation) = &column.folds {
                note(format!(
                    "collation {collation} of key column {} takes different keys as equal; a key is served only as it is written in its row",
                    column.name
                ));
            }
        }
        notes
    }

    /// Every mapped column, in the order of [`Layout::cells`].
    pub(crate) fn columns(&self) -> impl Iterator<Item = &Column> {
        self.key.iter().chain(&self.value).chain(&self.flags).chain(&self.cas).chain(&self.expiry)
    }

    /// A row's cells, in the order of [`Layout::columns`].
    pub(crate) fn cells<'a>(&self, row: &'a Row) -> impl Iterator<Item = std::borrow::Cow<'a, Cell>> {
        use std::borrow::Cow;
        let number = |present: bool, number: i128| present.then_some(Cow::Owned(Cell::Int(number)));
        let expiry = self.expiry.as_ref().map(|column| {
            Cow::Owned(match row.expiry {
                Some(second) => Cell::Int(second.into()),
                None if column.nullable => Cell::Null,
                None => Cell::Int(0),
            })
        });
        let flags = match &self.flags {
            // A signed column of 32 bits holds the same bits.
            Some(Column { kind: Kind::Integer { max, .. }, .. }) if *max < i128::from(row.flags) => {
                number(true, i128::from(row.flags.cast_signed()))
            }
            flags => number(flags.is_some(), row.flags.into()),
        };
        let (keys, values) = (row.key.iter().map(Cow::Borrowed), row.value.iter().map(Cow::Borrowed));
        keys.chain(values).chain(flags).chain(number(self.cas.is_some(), row.cas.into())).chain(expiry)
    }

    /// The row whose cells a database read, in the order of [`Layout::columns`].
    pub(crate) fn row(&self, cells: Vec<Cell>) -> Row {
        let mut cells = cells.into_iter();
        let mut take = |columns: &[Column]| -> Vec<Cell> {
            columns.iter().map(|column| column.tidy(cells.next().unwrap_or(Cell::Null))).collect()
        };
        let (key, value) = (take(&self.key), take(&self.value));
        let mut next = |column: &Option<Column>| column.as_ref().and_then(|_| cells.next());
        let flags = next(&self.flags)
            .and_then(|cell| cell.number::<u32>().or_else(|| cell.number::<i32>().map(i32::cast_unsigned)));
        let cas = next(&self.cas)
            .and_then(|cell| cell.number::<i64>().or_else(|| cell.number::<u64>().map(u64::cast_signed)));
        let expiry = next(&self.expiry).and_then(|cell| cell.number::<i64>()).filter(|second| *second != 0);
        Row { key, value, flags: flags.unwrap_or(0), cas: cas.unwrap_or(0), expiry }
    }

    /// The cells of a client's key.
    ///
    /// # Errors
    /// When no row can have it.
    pub(crate) fn key_cells(&self, key: &[u8]) -> Result<Vec<Cell>, Error> {
        let bad = |why: String| Error::Client(format!("key {} of table {}: {why}", shown(key), self.name));
        let fields = match &self.key[..] {
            [_] => vec![Some(key.to_vec())],
            columns => {
                let fields = fields::split(key, self.escaped());
                if fields.len() != columns.len() {
                    return Err(bad(self.wrong_count(fields.len(), "", columns.len())));
                }
                fields
            }
        };
        let cells: Vec<Cell> = self
            .key
            .iter()
            .zip(fields)
            .map(|(column, field)| match field {
                None => Err(format!("column {} of a key takes no NULL", column.name)),
                field => column.cell(field),
            })
            .collect::<Result<_, _>>()
            .map_err(bad)?;
        // One row, one key: what the row would be read back as is the only way to write it.
        if self.key_bytes(&cells) != key {
            return Err(bad(format!("the same row is written {}", shown(&self.key_bytes(&cells)))));
        }
        Ok(cells)
    }

    /// The key of a row.
    pub(crate) fn key_bytes(&self, cells: &[Cell]) -> Vec<u8> {
        match cells {
            [cell] => cell.clone().into_field().unwrap_or_default(),
            cells => fields::join(cells.iter().cloned().map(Cell::into_field), self.escaped()),
        }
    }

    /// The separator that a backslash escapes.
    fn escaped(&self) -> u8 {
        self.separator.as_bytes()[0]
    }

    fn wrong_count(&self, is: usize, up_to: &str, expected: usize) -> String {
        format!("expected {up_to}{expected} fields with {} between them, not {is}", self.separator)
    }

    /// The cells of a client's value for the row whose key has these cells.
    ///
    /// # Errors
    /// When the columns cannot hold it.
    pub(crate) fn value_cells(&self, key: &[Cell], value: &[u8]) -> Result<Vec<Cell>, Error> {
        let bad = |why: String| {
            let key = shown(&self.key_bytes(key));
            Error::Client(format!("value of {key} for table {}: {why}", self.name))
        };
        let fields = match (self.format, &self.shown[..]) {
            (Format::Json, columns) => fields::from_json(columns, value).map_err(bad)?,
            (Format::Joined | Format::Plain, [_]) => vec![Some(value.to_vec())],
            (Format::Plain, columns) => {
                let mut fields = fields::split_plain(value, &self.separator);
                if fields.len() > columns.len() {
                    return Err(bad(self.wrong_count(fields.len(), "up to ", columns.len())));
                }
                fields.resize(columns.len(), None);
                // An empty text is as near as a column comes that takes no NULL.
                let empty = |(column, field): (&Column, Option<Vec<u8>>)| field.or((!column.nullable).then(Vec::new));
                columns.iter().zip(fields).map(empty).collect()
            }
            (Format::Joined, columns) => {
                let fields = fields::split(value, self.escaped());
                if fields.len() != columns.len() {
                    return Err(bad(self.wrong_count(fields.len(), "", columns.len())));
                }
                fields
            }
        };
        let mut cells = Vec::with_capacity(self.value.len());
        for ((column, place), field) in self.shown.iter().zip(&self.places).zip(fields) {
            let cell = column.cell(field).map_err(bad)?;
            match place {
                Place::Value(_) => cells.push(cell),
                Place::Key(at) if key[*at] == cell => {}
                Place::Key(_) => {
                    let other = shown(&cell.into_field().unwrap_or_default());
                    return Err(bad(format!("column {} is of the key and is not to become {other}", column.name)));
                }
            }
        }
        Ok(cells)
    }

    /// A row's value.
    pub(crate) fn value_bytes(&self, row: &Row) -> Vec<u8> {
        let cells = self.places.iter().map(|place| match place {
            Place::Key(at) => &row.key[*at],
            Place::Value(at) => &row.value[*at],
        });
        let mut cells = cells.cloned();
        match (self.format, &self.shown[..]) {
            (Format::Json, columns) => fields::to_json(columns, cells.collect()),
            (Format::Joined | Format::Plain, [_]) => cells.next().and_then(Cell::into_field).unwrap_or_default(),
            (Format::Joined, _) => fields::join(cells.map(Cell::into_field), self.escaped()),
            (Format::Plain, _) => fields::join_plain(cells.map(Cell::into_field), &self.separator),
        }
    }

    /// A row's CAS unique: a hash over its value, its flags and its cas column, so that it is another one whenever SQL changed
    /// either, and after any write through here that the cas column counts. Never 0, which is no unique.
    pub(crate) fn unique(&self, row: &Row) -> u64 {
        let mut hash = XxHash64::with_seed(0);
        hash.write_i64(row.cas);
        hash.write_u32(row.flags);
        for cell in &row.value {
            match cell {
                Cell::Null => hash.write_u8(0),
                Cell::Int(number) => {
                    hash.write_u8(1);
                    hash.write_i128(*number);
                }
                Cell::Bytes(bytes) => {
                    hash.write_u8(2);
                    hash.write_u64(bytes.len() as u64);
                    hash.write(bytes);
                }
            }
        }
        hash.finish().max(1)
    }
}
