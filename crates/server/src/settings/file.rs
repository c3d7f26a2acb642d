//! Reads the configuration file into the draft.
//!
//! Every complaint is one sentence that begins with `FILE:LINE:` and the key, and ends with what was expected.

use std::fs;
use std::ops::Range;
use std::path::Path;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::draft::{Draft, FleetDraft, ListenDraft, OriginDraft, PoolDraft, RouteDraft};
use super::knob::{Action, Effect, Knob};
use super::problem::{Kind, Note, Problem};
use super::table::TableDraft;
use super::{fleet, keys, pages, table};

/// Reads the file at `path` into `draft`.
pub(super) fn read(path: &Path, draft: &mut Draft) -> Result<(), Problem> {
    let text = fs::read(path).map_err(|error| {
        Problem::new(Kind::System, format!("{}: expected a configuration file: {error}", path.display()))
    })?;
    let text = String::from_utf8(text).map_err(|error| {
        let valid = &error.as_bytes()[..error.utf8_error().valid_up_to()];
        Problem::value(format!("{}:{}: expected TOML in UTF-8", path.display(), line_number(valid)))
    })?;
    Reader { path, text: &text }.read(draft)
}

struct Reader<'a> {
    path: &'a Path,
    text: &'a str,
}

impl Reader<'_> {
    fn read(&self, draft: &mut Draft) -> Result<(), Problem> {
        let document = DeTable::parse(self.text).map_err(|error| {
            let span = error.span().unwrap_or(0..0);
            let at = self.at(span.clone());
            // The parser knows no key yet; the line shows which it is.
            let line = self.text.lines().nth(line_number(self.before(span)) - 1).unwrap_or_default().trim();
            let line: String = line.chars().take(60).collect();
            Problem::value(format!("{at}: {line}: expected TOML: {}", error.message().replace('\n', " ")))
        })?;
        for (name, value) in document.get_ref() {
            let at = self.at(name.span());
            match name.get_ref().as_ref() {
                "server" => self.knobs("server", keys::SERVER, self.table("server", value)?, draft)?,
                "pool" => {
                    for (name, value) in self.table("pool", value)? {
                        self.pool(name, value, draft)?;
                    }
                }
                "fleet" => {
                    for (name, value) in self.table("fleet", value)? {
                        self.fleet(name, value, draft)?;
                    }
                }
                "origin" => {
                    for (name, value) in self.table("origin", value)? {
                        self.origin(name, value, draft)?;
                    }
                }
                "table" => {
                    for (name, value) in self.table("table", value)? {
                        self.sql_table(name, value, draft)?;
                    }
                }
                "listen" => {
                    for (value, place) in self.tables("listen", value)? {
                        let mut listen = ListenDraft { place, ..ListenDraft::default() };
                        self.knobs("listen", keys::LISTEN, value, &mut listen)?;
                        draft.listens.push(listen);
                    }
                }
                "route" => {
                    for (value, place) in self.tables("route", value)? {
                        let mut route = RouteDraft { place, ..RouteDraft::default() };
                        self.knobs("route", keys::ROUTE, value, &mut route)?;
                        draft.routes.push(route);
                    }
                }
                other => {
                    let later = keys::LATER.iter().find(|(name, _)| *name == other);
                    return Err(Problem::value(match later {
                        Some((_, reason)) => format!("{at}: {other}: {reason}"),
                        None => format!(
                            "{at}: {other}: no such table, expected [server], [pool.NAME], [fleet.NAME], [origin.NAME], [table.NAME], [[listen]] or [[route]]"
                        ),
                    }));
                }
            }
        }
        Ok(())
    }

    fn pool(
        &self,
        name: &Spanned<std::borrow::Cow<'_, str>>,
        value: &Spanned<DeValue<'_>>,
        draft: &mut Draft,
    ) -> Result<(), Problem> {
        let (title, what, at) = self.title("pool", name)?;
        let mut pool = PoolDraft::at(title, at);
        let table = self.table(&what, value)?;
        self.knobs(&what, keys::POOL, table, &mut pool)?;
        pool.item_place = table
            .iter()
            .find(|(key, _)| key.get_ref() == "item_max")
            .map(|(key, _)| format!("{}: {what}.item_max", self.at(key.span())));
        draft.pools.push(pool);
        Ok(())
    }

    fn origin(
        &self,
        name: &Spanned<std::borrow::Cow<'_, str>>,
        value: &Spanned<DeValue<'_>>,
        draft: &mut Draft,
    ) -> Result<(), Problem> {
        let (title, what, at) = self.title("origin", name)?;
        let mut origin = OriginDraft::default();
        origin.settings.name = title.to_owned();
        self.knobs(&what, pages::ORIGIN, self.table(&what, value)?, &mut origin)?;
        if let Some(problem) = pages::origin_problem(&origin.settings) {
            return Err(Problem::value(format!("{at}: {what}: {problem}")));
        }
        if origin.settings.tls.is_unverified {
            let text = format!(
                "{at}: {what}.tls_without_verification: whoever is between here and these servers can read and change what they send"
            );
            draft.notes.push(Note { always: true, text });
        }
        draft.origins.push(origin);
        Ok(())
    }

    fn fleet(
        &self,
        name: &Spanned<std::borrow::Cow<'_, str>>,
        value: &Spanned<DeValue<'_>>,
        draft: &mut Draft,
    ) -> Result<(), Problem> {
        let (title, what, at) = self.title("fleet", name)?;
        let mut fleet = FleetDraft::at(title, at);
        let table = self.table(&what, value)?;
        self.knobs(&what, fleet::KEYS, table, &mut fleet)?;
        fleet.key_places = table.iter().map(|(key, _)| (key.get_ref().to_string(), self.at(key.span()))).collect();
        draft.fleets.push(fleet);
        Ok(())
    }

    fn sql_table(
        &self,
        name: &Spanned<std::borrow::Cow<'_, str>>,
        value: &Spanned<DeValue<'_>>,
        draft: &mut Draft,
    ) -> Result<(), Problem> {
        let (title, what, at) = self.title("table", name)?;
        let mut sql = TableDraft::at(title, at);
        let table = self.table(&what, value)?;
        self.knobs(&what, table::KEYS, table, &mut sql)?;
        sql.key_places = table.iter().map(|(key, _)| (key.get_ref().to_string(), self.at(key.span()))).collect();
        draft.tables.push(sql);
        Ok(())
    }

    /// The name of a table of `kind`, the whole key that leads to it, and its place.
    fn title<'n>(
        &self,
        kind: &str,
        name: &'n Spanned<std::borrow::Cow<'_, str>>,
    ) -> Result<(&'n str, String, String), Problem> {
        let (at, title) = (self.at(name.span()), name.get_ref().as_ref());
        let is_name = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
        if title.is_empty() || title.len() > 64 || !title.bytes().all(is_name) {
            return Err(Problem::value(format!(
                "{at}: {kind}.{title}: expected a name of 1 to 64 letters, digits, - and _"
            )));
        }
        Ok((title, format!("{kind}.{title}"), at))
    }

    /// Puts every key of `table` into `draft`.
    fn knobs<T>(&self, what: &str, knobs: &[Knob<T>], table: &DeTable<'_>, draft: &mut T) -> Result<(), Problem> {
        for (key, value) in table {
            let name = key.get_ref().as_ref();
            let at = self.at(key.span());
            let Some(knob) = knobs.iter().find(|knob| knob.name == name) else {
                let known = knobs.iter().filter(|knob| !matches!(knob.effect, Effect::Refused(_)));
                let known: Vec<&str> = known.map(|knob| knob.name).collect();
                return Err(Problem::value(format!(
                    "{at}: {what}.{name}: no such key, expected one of {}",
                    known.join(", ")
                )));
            };
            if let Effect::Refused(reason) = knob.effect {
                return Err(Problem::value(format!("{at}: {what}.{name}: {reason}")));
            }
            if let (Action::Table { keys, open }, Some(table)) = (&knob.action, value.get_ref().as_table()) {
                open(draft);
                self.knobs(&format!("{what}.{name}"), keys, table, draft)?;
                continue;
            }
            if knob.is_list() {
                let elements = match value.get_ref() {
                    DeValue::Array(array) => &array[..],
                    DeValue::String(_) => std::slice::from_ref(value),
                    _ => &[],
                };
                if elements.is_empty() {
                    return Err(self.unexpected(value.span(), what, name, &knob.expected()));
                }
                for element in elements {
                    let text = element.get_ref().as_str().filter(|text| !text.is_empty() && !text.contains('\n'));
                    let taken = knob.add(draft, text);
                    taken.map_err(|expected| self.unexpected(element.span(), what, name, &expected))?;
                }
                continue;
            }
            let text = as_text(knob, value.get_ref());
            if !text.is_some_and(|text| knob.set(draft, Some(&text))) {
                return Err(self.unexpected(value.span(), what, name, &knob.expected()));
            }
        }
        Ok(())
    }

    /// Says that what stands at `span` is not what was expected.
    fn unexpected(&self, span: Range<usize>, what: &str, name: &str, expected: &str) -> Problem {
        let at = self.at(span.clone());
        let given = self.text.get(span).unwrap_or_default().lines().next().unwrap_or_default();
        Problem::value(format!("{at}: {what}.{name}: expected {expected}, not {given}"))
    }

    fn table<'v, 'i>(&self, what: &str, value: &'v Spanned<DeValue<'i>>) -> Result<&'v DeTable<'i>, Problem> {
        value.get_ref().as_table().ok_or_else(|| {
            Problem::value(format!(
                "{}: {what}: expected a table, not {}",
                self.at(value.span()),
                value.get_ref().type_str()
            ))
        })
    }

    /// The elements of an array of tables, each with its place.
    fn tables<'v, 'i>(
        &self,
        what: &str,
        value: &'v Spanned<DeValue<'i>>,
    ) -> Result<Vec<(&'v DeTable<'i>, String)>, Problem> {
        let array = value.get_ref().as_array().ok_or_else(|| {
            Problem::value(format!(
                "{}: {what}: expected an array of tables, each headed [[{what}]], not {}",
                self.at(value.span()),
                value.get_ref().type_str()
            ))
        })?;
        array.iter().map(|element| Ok((self.table(what, element)?, self.at(element.span())))).collect()
    }

    /// `FILE:LINE` of the place where `span` begins.
    fn at(&self, span: Range<usize>) -> String {
        format!("{}:{}", self.path.display(), line_number(self.before(span)))
    }

    fn before(&self, span: Range<usize>) -> &[u8] {
        &self.text.as_bytes()[..span.start.min(self.text.len())]
    }
}

/// The number of the line that follows `before`, counted from 1.
fn line_number(before: &[u8]) -> usize {
    1 + before.iter().filter(|byte| **byte == b'\n').count()
}

/// A value as the text its knob reads, if it is of the TOML type that the knob takes: sizes and times may be numbers or strings.
fn as_text<T>(knob: &Knob<T>, value: &DeValue<'_>) -> Option<String> {
    let whole = |value: &DeValue<'_>| {
        let integer = value.as_integer()?;
        i64::from_str_radix(integer.as_str(), integer.radix()).ok().map(|number| number.to_string())
    };
    let string = |value: &DeValue<'_>| value.as_str().map(str::to_owned);
    match &knob.action {
        Action::Switch(_) => value.as_bool().map(|on| on.to_string()),
        Action::Integer { .. } => whole(value),
        Action::Real { .. } => value.as_float().map(|float| float.as_str().to_owned()).or_else(|| whole(value)),
        Action::Size { .. } | Action::Seconds(_) | Action::Time { .. } => string(value).or_else(|| whole(value)),
        Action::Choice(..) | Action::Text { .. } => string(value),
        Action::Table { .. } | Action::List { .. } | Action::Texts { .. } => None,
    }
}
