//! `delete <key> [anything] [noreply]`.

use super::{Outcome, Reject, Request, checked_key, is_noreply};
use crate::scan::Tokens;

/// A deletion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Delete<'a> {
    /// The key, 1 to [`KEY_BYTES_MAX`](crate::KEY_BYTES_MAX) bytes.
    pub key: &'a [u8],
    /// No answer is wanted.
    pub noreply: bool,
}

pub(super) fn parse(args: &[u8]) -> Outcome<'_> {
    let mut tokens = Tokens::new(args);
    let key = tokens.next().ok_or(Reject::FORMAT)?;
    // Clients of old send a hold time here, which memcached once refused unless it was 0 and now does not look at.
    let noreply = is_noreply(tokens.last().unwrap_or(key));
    Ok(Request::Delete(Delete { key: checked_key(key, noreply)?, noreply }))
}

#[cfg(test)]
mod tests {
    use super::super::tests::{refusal, refused, request};
    use super::*;
    use crate::{KEY_BYTES_MAX, WireError};

    fn delete(line: &[u8]) -> Delete<'_> {
        let Request::Delete(delete) = request(line) else { panic!() };
        delete
    }

    #[test]
    fn every_form_that_clients_have_ever_sent_deletes() {
        for (line, noreply) in [
            (&b"delete k\r\n"[..], false),
            (b"delete k noreply\r\n", true),
            (b"delete k 0\r\n", false),
            (b"delete k 0 noreply\r\n", true),
            (b"delete k 600\r\n", false),
            (b"delete k any thing\r\n", false),
            (b"delete k noreply 0\r\n", false),
        ] {
            assert_eq!(delete(line), Delete { key: b"k", noreply });
        }
    }

    #[test]
    fn the_key_must_be_there_and_fit() {
        refused(b"delete\r\n", WireError::BadCommandLineFormat);
        let long = "k".repeat(KEY_BYTES_MAX + 1);
        refused(format!("delete {long}\r\n").as_bytes(), WireError::BadCommandLineFormat);
        assert_eq!(refusal(format!("delete {long} noreply\r\n").as_bytes()).reply(), b"");
    }
}
