//! What stands in one column of one row, and what a column can hold. Pure; every dialect turns its own types into these.
//!
//! A cell never becomes SQL text: dialects bind it as a parameter.

use std::fmt;

/// The content of one column of one row.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Cell {
    /// SQL's NULL.
    Null,
    /// A whole number; wide enough for signed and unsigned 64-bit columns.
    Int(i128),
    /// Text in UTF-8, or bytes.
    Bytes(Vec<u8>),
}

impl Cell {
    /// The bytes that stand for it in a key or a value; none for NULL. A number becomes decimal digits.
    pub(crate) fn into_field(self) -> Option<Vec<u8>> {
        match self {
            Cell::Null => None,
            Cell::Int(number) => Some(number.to_string().into_bytes()),
            Cell::Bytes(bytes) => Some(bytes),
        }
    }

    /// The number in it, if it is one and fits.
    pub(crate) fn number<T: TryFrom<i128>>(&self) -> Option<T> {
        match self {
            Cell::Int(number) => T::try_from(*number).ok(),
            _ => None,
        }
    }
}

/// What a column can hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Whole numbers.
    Integer {
        /// The least.
        min: i128,
        /// The greatest.
        max: i128,
    },
    /// Characters.
    Text {
        /// How many characters at most.
        chars_max: Option<u64>,
        /// How many bytes at most.
        bytes_max: Option<u64>,
        /// Spaces at the end are not kept (`CHAR`).
        padded: bool,
        /// A byte of 0 can be held.
        zero_bytes: bool,
        /// What is no UTF-8 can be held too.
        any_bytes: bool,
    },
    /// Bytes.
    Binary {
        /// How many at most.
        bytes_max: Option<u64>,
        /// Exactly that many (`BINARY`).
        fixed: bool,
    },
    /// Something this crate does not map, by the database's name for it.
    Other(String),
}

impl Kind {
    /// Signed whole numbers of `bits` bits.
    pub(crate) const fn signed(bits: u32) -> Kind {
        Kind::Integer { min: -(1 << (bits - 1)), max: (1 << (bits - 1)) - 1 }
    }

    /// Unsigned whole numbers of `bits` bits.
    pub(crate) const fn unsigned(bits: u32) -> Kind {
        Kind::Integer { min: 0, max: (1 << bits) - 1 }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Kind::Integer { .. } => f.write_str("whole numbers"),
            Kind::Text { .. } => f.write_str("text"),
            Kind::Binary { .. } => f.write_str("bytes"),
            Kind::Other(name) => write!(f, "type {name}"),
        }
    }
}

/// One column as the database describes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Column {
    /// Its name.
    pub(crate) name: String,
    /// What it can hold.
    pub(crate) kind: Kind,
    /// NULL is allowed.
    pub(crate) nullable: bool,
    /// A row can be inserted without naming it.
    pub(crate) fills_itself: bool,
    /// The database alone gives it its content, and refuses any other.
    pub(crate) generated: bool,
    /// The collation, if it takes different texts as equal.
    pub(crate) folds: Option<String>,
}

impl Column {
    /// The cell that a field of a key or a value stands for.
    ///
    /// # Errors
    /// One sentence's end, beginning with the column's name, when the column cannot hold it.
    pub(crate) fn cell(&self, field: Option<Vec<u8>>) -> Result<Cell, String> {
        let name = &self.name;
        let Some(mut bytes) = field else {
            if self.nullable {
                return Ok(Cell::Null);
            }
            return Err(format!("column {name} takes no NULL"));
        };
        match &self.kind {
            Kind::Integer { min, max } => {
                let number = std::str::from_utf8(&bytes).ok().map(str::trim).and_then(|text| text.parse::<i128>().ok());
                match number {
                    Some(number) if (*min..=*max).contains(&number) => Ok(Cell::Int(number)),
                    _ => Err(format!("column {name} holds whole numbers from {min} to {max}, not {}", shown(&bytes))),
                }
            }
            Kind::Text { chars_max, bytes_max, padded, zero_bytes, any_bytes } => {
                let text = std::str::from_utf8(&bytes);
                let chars = match text {
                    Ok(text) => text.chars().count(),
                    Err(_) if *any_bytes => bytes.len(),
                    Err(_) => return Err(format!("column {name} holds text in UTF-8, and {} is none", shown(&bytes))),
                };
                if !zero_bytes && bytes.contains(&0) {
                    return Err(format!("column {name} holds no zero byte"));
                }
                if *padded {
                    unpad(&mut bytes);
                }
                fits(name, chars, *chars_max, "characters")?;
                fits(name, bytes.len(), *bytes_max, "bytes")?;
                Ok(Cell::Bytes(bytes))
            }
            Kind::Binary { bytes_max, fixed } => {
                fits(name, bytes.len(), *bytes_max, "bytes")?;
                match bytes_max {
                    Some(exact) if *fixed && bytes.len() as u64 != *exact => {
                        Err(format!("column {name} holds exactly {exact} bytes, not {}", bytes.len()))
                    }
                    _ => Ok(Cell::Bytes(bytes)),
                }
            }
            Kind::Other(kind) => Err(format!("column {name} is of type {kind}")),
        }
    }

    /// What was read, as it would be written: the spaces that a `CHAR` is filled up with go.
    pub(crate) fn tidy(&self, mut cell: Cell) -> Cell {
        if let (Kind::Text { padded: true, .. }, Cell::Bytes(bytes)) = (&self.kind, &mut cell) {
            unpad(bytes);
        }
        cell
    }
}

fn fits(name: &str, length: usize, max: Option<u64>, unit: &str) -> Result<(), String> {
    match max {
        Some(max) if length as u64 > max => Err(format!("column {name} holds up to {max} {unit}, not {length}")),
        _ => Ok(()),
    }
}

fn unpad(bytes: &mut Vec<u8>) {
    while bytes.last() == Some(&b' ') {
        bytes.pop();
    }
}

/// The beginning of what a client sent, fit for a sentence.
pub(crate) fn shown(bytes: &[u8]) -> String {
    let cut = &bytes[..bytes.len().min(40)];
    let dots = if cut.len() < bytes.len() { "…" } else { "" };
    format!("\"{}{dots}\"", cut.escape_ascii())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn column(kind: Kind) -> Column {
        Column { name: "c".to_owned(), kind, nullable: false, fills_itself: false, generated: false, folds: None }
    }

    fn cell(kind: Kind, field: &[u8]) -> Result<Cell, String> {
        column(kind).cell(Some(field.to_vec()))
    }

    fn varchar(chars: u64) -> Kind {
        Kind::Text { chars_max: Some(chars), bytes_max: None, padded: false, zero_bytes: false, any_bytes: false }
    }

    #[test]
    fn what_a_column_cannot_hold_is_named_with_the_column_and_what_it_holds() {
        for (kind, field, sentence) in [
            (Kind::signed(8), &b"128"[..], "column c holds whole numbers from -128 to 127, not \"128\""),
            (Kind::signed(8), b"bird", "column c holds whole numbers from -128 to 127, not \"bird\""),
            (varchar(3), b"four", "column c holds up to 3 characters, not 4"),
            (varchar(3), b"a\0b", "column c holds no zero byte"),
            (varchar(3), b"\xff", "column c holds text in UTF-8, and \"\\xff\" is none"),
            (Kind::Binary { bytes_max: Some(2), fixed: false }, b"abc", "column c holds up to 2 bytes, not 3"),
            (Kind::Binary { bytes_max: Some(4), fixed: true }, b"abc", "column c holds exactly 4 bytes, not 3"),
        ] {
            assert_eq!(cell(kind, field).unwrap_err(), sentence);
        }
        assert_eq!(column(varchar(3)).cell(None).unwrap_err(), "column c takes no NULL");
    }

    #[test]
    fn lengths_of_text_are_counted_in_characters() {
        assert_eq!(cell(varchar(3), "äöü".as_bytes()), Ok(Cell::Bytes("äöü".into())));
    }

    #[test]
    fn the_widest_numbers_fit() {
        assert_eq!(cell(Kind::unsigned(64), b"18446744073709551615"), Ok(Cell::Int(u64::MAX.into())));
        assert_eq!(cell(Kind::signed(64), b"-9223372036854775808"), Ok(Cell::Int(i64::MIN.into())));
    }
}
