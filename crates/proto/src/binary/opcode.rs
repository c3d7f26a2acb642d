//! What a binary request can ask. The quiet ones (`…Q`) are answered only when things do not go as usual.

macro_rules! opcodes {
    ($($(#[$doc:meta])* $name:ident = $number:literal,)*) => {
        /// An opcode that this crate knows.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum Opcode {
            $($(#[$doc])* $name,)*
        }

        impl Opcode {
            /// Every opcode there is.
            pub const ALL: &'static [Opcode] = &[$(Opcode::$name,)*];

            /// The opcode with this number.
            #[inline]
            #[must_use]
            pub const fn from_wire(number: u8) -> Option<Opcode> {
                match number {
                    $($number => Some(Opcode::$name),)*
                    _ => None,
                }
            }

            /// The number on the wire.
            #[must_use]
            pub const fn as_wire(self) -> u8 {
                match self { $(Opcode::$name => $number,)* }
            }
        }
    };
}

opcodes! {
    /// Value of a key.
    Get = 0x00,
    /// Store whatever was there.
    Set = 0x01,
    /// Store if nothing was there.
    Add = 0x02,
    /// Store if something was there.
    Replace = 0x03,
    /// Remove.
    Delete = 0x04,
    /// Count up.
    Increment = 0x05,
    /// Count down.
    Decrement = 0x06,
    /// Say goodbye.
    Quit = 0x07,
    /// Remove everything.
    Flush = 0x08,
    /// Get, silent about a miss.
    GetQ = 0x09,
    /// Answer, and send what is buffered.
    Noop = 0x0a,
    /// The server's version.
    Version = 0x0b,
    /// Get, showing the key.
    GetK = 0x0c,
    /// Get, showing the key, silent about a miss.
    GetKQ = 0x0d,
    /// Store behind.
    Append = 0x0e,
    /// Store in front.
    Prepend = 0x0f,
    /// Counters.
    Stat = 0x10,
    /// Set, silent about success.
    SetQ = 0x11,
    /// Add, silent about success.
    AddQ = 0x12,
    /// Replace, silent about success.
    ReplaceQ = 0x13,
    /// Delete, silent about success.
    DeleteQ = 0x14,
    /// Increment, silent about success.
    IncrementQ = 0x15,
    /// Decrement, silent about success.
    DecrementQ = 0x16,
    /// Quit without an answer.
    QuitQ = 0x17,
    /// Flush, silent about success.
    FlushQ = 0x18,
    /// Append, silent about success.
    AppendQ = 0x19,
    /// Prepend, silent about success.
    PrependQ = 0x1a,
    /// Set the expiry time.
    Touch = 0x1c,
    /// Get and touch.
    Gat = 0x1d,
    /// Get and touch, silent about a miss.
    GatQ = 0x1e,
    /// Ways to authenticate.
    SaslListMechs = 0x20,
    /// Begin to authenticate.
    SaslAuth = 0x21,
    /// Go on authenticating.
    SaslStep = 0x22,
    /// Get and touch, showing the key.
    GatK = 0x23,
    /// Get and touch, showing the key, silent about a miss.
    GatKQ = 0x24,
}

impl Opcode {
    /// Whether the usual answer (a miss for retrievals, success for the rest) is left out.
    #[must_use]
    pub const fn quiet(self) -> bool {
        matches!(
            self,
            Opcode::GetQ
                | Opcode::GetKQ
                | Opcode::SetQ
                | Opcode::AddQ
                | Opcode::ReplaceQ
                | Opcode::DeleteQ
                | Opcode::IncrementQ
                | Opcode::DecrementQ
                | Opcode::QuitQ
                | Opcode::FlushQ
                | Opcode::AppendQ
                | Opcode::PrependQ
                | Opcode::GatQ
                | Opcode::GatKQ
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_go_both_ways_and_the_rest_are_unknown() {
        for &opcode in Opcode::ALL {
            assert_eq!(Opcode::from_wire(opcode.as_wire()), Some(opcode));
            let name = format!("{opcode:?}");
            assert_eq!(opcode.quiet(), name.ends_with('Q'), "{name}");
        }
        let known = (0..=u8::MAX).filter(|&number| Opcode::from_wire(number).is_some()).count();
        assert_eq!(known, Opcode::ALL.len());
        // 0x1b, verbosity, is in the protocol document, and memcached has never known it.
        for unknown in [0x1b, 0x1f, 0x25, 0x30, 0xff] {
            assert_eq!(Opcode::from_wire(unknown), None);
        }
    }
}
