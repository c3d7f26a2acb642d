//! Several columns in one value, or one key: joined by a separator that can be escaped, plainly joined, or as a JSON object. Pure.
//!
//! Joined: a backslash takes the meaning from the separator or backslash after it, and `\N` alone in its field is NULL, as in
//! the text formats of PostgreSQL's `COPY` and MySQL's `LOAD DATA`. An empty field is an empty text wherever it stands. A
//! backslash before anything else stands for itself, so that a client who knows nothing of this loses nothing.
//!
//! Plain: the columns' bytes with the separator between them, as MySQL's InnoDB memcached plugin showed them. Nothing is escaped,
//! and NULL is empty; so a column that has the separator in it cannot be told from two.

use serde_json::{Map, Value as Json};

use crate::cell::{Cell, Column, Kind, shown};

const ESCAPE: u8 = b'\\';

/// Appends fields to one value.
pub(crate) fn join(fields: impl Iterator<Item = Option<Vec<u8>>>, separator: u8) -> Vec<u8> {
    let mut joined = Vec::new();
    for (n, field) in fields.enumerate() {
        if n > 0 {
            joined.push(separator);
        }
        match field {
            None => joined.extend_from_slice(b"\\N"),
            Some(field) => {
                for byte in field {
                    if byte == separator || byte == ESCAPE {
                        joined.push(ESCAPE);
                    }
                    joined.push(byte);
                }
            }
        }
    }
    joined
}

/// The fields of a joined value; `None` is NULL.
pub(crate) fn split(joined: &[u8], separator: u8) -> Vec<Option<Vec<u8>>> {
    let mut fields = Vec::new();
    let (mut field, mut start, mut at) = (Vec::new(), 0, 0);
    loop {
        match joined.get(at) {
            Some(&byte) if byte != separator => {
                let next =
                    joined.get(at + 1).filter(|next| byte == ESCAPE && (**next == separator || **next == ESCAPE));
                at += next.map_or(1, |_| 2);
                field.push(*next.unwrap_or(&byte));
            }
            end => {
                let null = &joined[start..at] == b"\\N";
                let whole = std::mem::take(&mut field);
                fields.push((!null).then_some(whole));
                if end.is_none() {
                    return fields;
                }
                at += 1;
                start = at;
            }
        }
    }
}

/// Appends fields to one value, and escapes nothing.
pub(crate) fn join_plain(fields: impl Iterator<Item = Option<Vec<u8>>>, separator: &str) -> Vec<u8> {
    fields.map(Option::unwrap_or_default).collect::<Vec<_>>().join(separator.as_bytes())
}

/// The fields of a plainly joined value; `None` is an empty one.
pub(crate) fn split_plain(joined: &[u8], separator: &str) -> Vec<Option<Vec<u8>>> {
    let (mut fields, mut rest) = (Vec::new(), joined);
    loop {
        let end = rest.windows(separator.len()).position(|window| window == separator.as_bytes());
        let field = &rest[..end.unwrap_or(rest.len())];
        fields.push(Some(field.to_vec()).filter(|field| !field.is_empty()));
        match end {
            Some(end) => rest = &rest[end + separator.len()..],
            None => return fields,
        }
    }
}

/// A row's value columns as one JSON object.
pub(crate) fn to_json(columns: &[Column], cells: Vec<Cell>) -> Vec<u8> {
    let mut object = Map::new();
    for (column, cell) in columns.iter().zip(cells) {
        let json = match cell {
            Cell::Null => Json::Null,
            Cell::Int(number) => match (i64::try_from(number), u64::try_from(number)) {
                (Ok(number), _) => Json::from(number),
                (_, Ok(number)) => Json::from(number),
                _ => Json::from(number.to_string()),
            },
            Cell::Bytes(bytes) => Json::from(String::from_utf8_lossy(&bytes).into_owned()),
        };
        object.insert(column.name.clone(), json);
    }
    serde_json::to_vec(&Json::Object(object)).unwrap_or_default()
}

/// The fields of a JSON object, in the columns' order. A member that is missing is NULL.
///
/// # Errors
/// One sentence's end when it is no object, or a member is none of the columns or of another type.
pub(crate) fn from_json(columns: &[Column], json: &[u8]) -> Result<Vec<Option<Vec<u8>>>, String> {
    let Ok(Json::Object(mut object)) = serde_json::from_slice(json) else {
        return Err(format!("expected a JSON object, not {}", shown(json)));
    };
    let mut fields = Vec::with_capacity(columns.len());
    for column in columns {
        fields.push(match (object.remove(&column.name), &column.kind) {
            (None | Some(Json::Null), _) => None,
            (Some(Json::Number(number)), Kind::Integer { .. }) => Some(number.to_string().into_bytes()),
            (Some(Json::String(text)), Kind::Text { .. }) => Some(text.into_bytes()),
            (Some(other), kind) => return Err(format!("column {} holds {kind}, not {other}", column.name)),
        });
    }
    match object.keys().next() {
        Some(other) => Err(format!("{} is none of the mapped columns", shown(other.as_bytes()))),
        None => Ok(fields),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn field(text: &str) -> Option<Vec<u8>> {
        Some(text.as_bytes().to_vec())
    }

    #[test]
    fn any_fields_come_back_as_they_were() {
        let samples = ["", "a", "|", "\\", "\\N", "N", "a|b", "\\|", "||", "a\\", "\\\\N"];
        let mut all: Vec<Option<Vec<u8>>> = samples.iter().map(|text| field(text)).collect();
        all.push(None);
        for a in &all {
            for b in &all {
                for c in &all {
                    let fields = [a.clone(), b.clone(), c.clone()];
                    let joined = join(fields.iter().cloned(), b'|');
                    assert_eq!(split(&joined, b'|'), fields, "{}", joined.escape_ascii());
                }
            }
        }
    }

    #[test]
    fn empty_middle_fields_and_null_are_told_apart() {
        assert_eq!(split(b"a||c", b'|'), [field("a"), field(""), field("c")]);
        assert_eq!(split(b"a|\\N|c", b'|'), [field("a"), None, field("c")]);
        assert_eq!(split(b"C:\\new|\\d", b'|'), [field("C:\\new"), field("\\d")]);
    }

    #[test]
    fn plain_fields_have_separators_of_any_length_and_no_escapes() {
        for separator in ["|", "+++", "ü", "0"] {
            let fields = [field("a\\"), None, field("c")];
            let joined = join_plain(fields.iter().cloned(), separator);
            assert_eq!(joined, format!("a\\{separator}{separator}c").as_bytes());
            assert_eq!(split_plain(&joined, separator), fields);
        }
        assert_eq!(split_plain(b"", "|"), [None]);
        assert_eq!(split_plain(b"a+++++", "+++"), [field("a"), field("++")]);
    }

    #[test]
    fn json_members_are_held_to_their_columns() {
        let text = Kind::Text { chars_max: None, bytes_max: None, padded: false, zero_bytes: false, any_bytes: false };
        let columns: Vec<Column> = [("name", text), ("age", Kind::signed(32))]
            .into_iter()
            .map(|(name, kind)| Column {
                name: name.into(),
                kind,
                nullable: true,
                fills_itself: true,
                generated: false,
                folds: None,
            })
            .collect();
        assert_eq!(from_json(&columns, br#"{"age":7,"name":"Ada"}"#), Ok(vec![field("Ada"), field("7")]));
        assert_eq!(from_json(&columns, br#"{"age":7}"#), Ok(vec![None, field("7")]));
        let wrong = |json: &str| from_json(&columns, json.as_bytes()).unwrap_err();
        assert_eq!(wrong("[]"), "expected a JSON object, not \"[]\"");
        assert_eq!(wrong(r#"{"size":1}"#), "\"size\" is none of the mapped columns");
        assert_eq!(wrong(r#"{"age":"old"}"#), "column age holds whole numbers, not \"old\"");
        let cells = vec![Cell::Null, Cell::Int(7)];
        assert_eq!(to_json(&columns, cells), br#"{"name":null,"age":7}"#);
    }
}
