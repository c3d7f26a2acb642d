//! Large values that have not arrived whole: where their bytes go meanwhile.

use std::sync::Arc;

use bytes::Bytes;
use nuthatch_store::Reservation;

use crate::exec::text_store::Plan;
use crate::shared::Live;

/// A large value on its way.
pub(super) struct ValueInProgress {
    /// The request's line, or header, extras and key: parsed again when the value is there.
    pub(super) front: Box<[u8]>,
    pub(super) place: ValuePlace,
    pub(super) value_bytes: usize,
    pub(super) binary: bool,
    /// What was in force when it began. Keeps the pool.
    pub(super) live: Arc<Live>,
}

/// Where a large value goes.
pub(super) enum ValuePlace {
    /// Into the store.
    Store(Plan, Reservation),
    /// Into memory of the connection, as a backend is given it whole.
    Memory(ValueBuffer),
}

/// Bytes read at once of a value that goes into memory, which grows as they come.
const VALUE_PIECE_BYTES: usize = 64 * 1024;

/// A value that is read into memory.
pub(super) struct ValueBuffer {
    bytes: Vec<u8>,
    /// How much of it has come.
    filled: usize,
    value_bytes: usize,
}

impl ValueBuffer {
    /// For a value of `value_bytes`, none of which is there.
    pub(super) fn new(value_bytes: usize) -> ValueBuffer {
        ValueBuffer { bytes: Vec::new(), filled: 0, value_bytes }
    }

    pub(super) fn remaining(&self) -> usize {
        self.value_bytes - self.filled
    }

    pub(super) fn next_piece(&mut self) -> &mut [u8] {
        let end = self.filled + self.remaining().min(VALUE_PIECE_BYTES);
        self.bytes.resize(self.bytes.len().max(end), 0);
        &mut self.bytes[self.filled..end]
    }

    pub(super) fn write(&mut self, bytes: &[u8]) -> usize {
        let taken = bytes.len().min(self.remaining());
        self.bytes.truncate(self.filled);
        self.bytes.extend_from_slice(&bytes[..taken]);
        self.filled += taken;
        taken
    }
}

impl ValuePlace {
    /// Memory of the connection's own.
    pub(super) fn owned_bytes(&self) -> usize {
        match self {
            ValuePlace::Store(..) => 0,
            ValuePlace::Memory(buffer) => buffer.bytes.capacity(),
        }
    }

    /// Takes a value out of memory.
    pub(super) fn take_bytes(&mut self) -> Bytes {
        match self {
            ValuePlace::Store(..) => Bytes::new(),
            ValuePlace::Memory(buffer) => {
                buffer.bytes.truncate(buffer.filled);
                std::mem::take(&mut buffer.bytes).into()
            }
        }
    }

    pub(super) fn remaining(&self) -> usize {
        match self {
            ValuePlace::Store(_, reservation) => reservation.remaining(),
            ValuePlace::Memory(buffer) => buffer.remaining(),
        }
    }

    pub(super) fn next_piece(&mut self) -> &mut [u8] {
        match self {
            ValuePlace::Store(_, reservation) => reservation.next_piece(),
            ValuePlace::Memory(buffer) => buffer.next_piece(),
        }
    }

    pub(super) fn advance(&mut self, bytes: usize) {
        match self {
            ValuePlace::Store(_, reservation) => reservation.advance(bytes),
            ValuePlace::Memory(buffer) => buffer.filled += bytes,
        }
    }

    pub(super) fn write(&mut self, bytes: &[u8]) -> usize {
        match self {
            ValuePlace::Store(_, reservation) => reservation.write(bytes),
            ValuePlace::Memory(buffer) => buffer.write(bytes),
        }
    }
}
