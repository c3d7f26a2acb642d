//! What can be asked of a table in memcached's words, and what it comes to. Plain data.
//!
//! Moments are seconds since 1970; whoever asks has turned a client's relative time into one. `None` is never.

/// Under which condition a value is stored. Behind and before what is there, flags and expiry stay.
pub use nuthatch_store::SetMode as Mode;

/// A row as a client sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Item {
    /// The value columns.
    pub value: Vec<u8>,
    /// The flags column, or 0.
    pub flags: u32,
    /// The CAS unique; never 0.
    pub unique: u64,
    /// When it expires.
    pub expiry: Option<i64>,
}

/// A change to one row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Op {
    /// Writes a value.
    Store {
        /// The key.
        key: Vec<u8>,
        /// Under which condition.
        mode: Mode,
        /// Only over this CAS unique.
        compare: Option<u64>,
        /// The client's flags.
        flags: u32,
        /// When it expires.
        expiry: Option<i64>,
        /// The value.
        value: Vec<u8>,
        /// Append and prepend store an absent value, with this expiry.
        vivify: Option<Option<i64>>,
    },
    /// Takes a row away.
    Delete {
        /// The key.
        key: Vec<u8>,
        /// Only this CAS unique.
        compare: Option<u64>,
    },
    /// Counts a decimal number up, wrapping at 64 bits, or down to 0.
    Arith {
        /// The key.
        key: Vec<u8>,
        /// By how much.
        delta: u64,
        /// Down.
        down: bool,
        /// Only over this CAS unique.
        compare: Option<u64>,
        /// What an absent number begins with, and its expiry.
        initial: Option<(u64, Option<i64>)>,
        /// A new expiry for a number that is there.
        touch: Option<Option<i64>>,
    },
    /// Gives a row another expiry and reads it.
    Touch {
        /// The key.
        key: Vec<u8>,
        /// When it expires from now on.
        expiry: Option<i64>,
    },
}

impl Op {
    /// Of which row.
    pub fn key(&self) -> &[u8] {
        match self {
            Op::Store { key, .. } | Op::Delete { key, .. } | Op::Arith { key, .. } | Op::Touch { key, .. } => key,
        }
    }

    /// Memory it owns.
    pub(crate) fn bytes(&self) -> usize {
        let value = if let Op::Store { value, .. } = self { value.len() } else { 0 };
        size_of::<Op>() + self.key().len() + value
    }

    /// A set that never expires and compares nothing.
    pub fn set(key: &[u8], value: &[u8]) -> Op {
        Op::Store {
            key: key.to_vec(),
            mode: Mode::Set,
            compare: None,
            flags: 0,
            expiry: None,
            value: value.to_vec(),
            vivify: None,
        }
    }
}

/// What a change came to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Done {
    /// It is in the database.
    Stored {
        /// Its CAS unique now.
        unique: u64,
        /// Reading the row gives exactly what was sent: false when columns write it differently (`007`, JSON).
        as_sent: bool,
    },
    /// The mode's condition does not hold.
    NotStored,
    /// The CAS unique is another one.
    Exists,
    /// No row has the key.
    NotFound,
    /// It is gone from the database.
    Deleted,
    /// The new number, in the database.
    Counted {
        /// It.
        number: u64,
        /// The row's CAS unique now.
        unique: u64,
        /// When the row expires.
        expiry: Option<i64>,
    },
    /// What is there is no number.
    NonNumeric,
    /// The row, with its new expiry.
    Touched(Item),
}

/// Rows whose keys lie between two bounds, in the database's order of its key column.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Range {
    /// The lower bound, and whether it belongs to the range.
    pub from: Option<(Vec<u8>, bool)>,
    /// The upper bound, and whether it belongs to the range.
    pub to: Option<(Vec<u8>, bool)>,
    /// How many rows at most.
    pub limit: u32,
}
