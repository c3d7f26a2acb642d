//! UDP framing: eight bytes in front of every datagram.
//!
//! Owns the header, the rule which datagrams are requests, the splitting of answers and the client's putting them
//! together again. What the datagrams carry is text or meta commands. Source: `doc/protocol.txt`, "UDP protocol".

/// Length of a datagram's header.
pub const HEADER_BYTES: usize = 8;

/// Longest datagram that is sent; it fits an Ethernet frame.
pub const DATAGRAM_BYTES_MAX: usize = 1400;

/// Longest part of an answer that one datagram carries.
pub const PAYLOAD_BYTES_MAX: usize = DATAGRAM_BYTES_MAX - HEADER_BYTES;

/// Longest answer that can be numbered: 65,535 datagrams, 87 MiB.
pub const REPLY_BYTES_MAX: usize = u16::MAX as usize * PAYLOAD_BYTES_MAX;

/// The header of a datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// Chosen by the client; answers repeat it.
    pub request_id: u16,
    /// Place of this datagram in the message, from 0.
    pub sequence: u16,
    /// Datagrams in the message.
    pub total: u16,
}

impl Header {
    /// The header of a request, which is always one datagram.
    #[must_use]
    pub const fn request(request_id: u16) -> Header {
        Header { request_id, sequence: 0, total: 1 }
    }

    /// Splits a datagram into header and payload; `None` when it is shorter than a header.
    #[must_use]
    pub fn read(datagram: &[u8]) -> Option<(Header, &[u8])> {
        let (&[i0, i1, s0, s1, t0, t1, _, _], payload) = datagram.split_first_chunk::<HEADER_BYTES>()?;
        let [request_id, sequence, total] = [[i0, i1], [s0, s1], [t0, t1]].map(u16::from_be_bytes);
        Some((Header { request_id, sequence, total }, payload))
    }

    /// The header as it is sent; the last two bytes are reserved and 0.
    #[must_use]
    pub const fn to_bytes(&self) -> [u8; HEADER_BYTES] {
        let [[i0, i1], [s0, s1], [t0, t1]] =
            [self.request_id.to_be_bytes(), self.sequence.to_be_bytes(), self.total.to_be_bytes()];
        [i0, i1, s0, s1, t0, t1, 0, 0]
    }
}

/// The request that a datagram carries and its id. `None`: drop the datagram without a word, because it is too short or
/// part of a message of several (which memcached does not put together, and an answer would serve those who forge their
/// address).
#[must_use]
pub fn request(datagram: &[u8]) -> Option<(u16, &[u8])> {
    let (header, payload) = Header::read(datagram)?;
    (header.total == 1 && !payload.is_empty()).then_some((header.request_id, payload))
}

/// Splits an answer into datagrams, header and payload each. An empty answer has none. `None` when it is longer than
/// [`REPLY_BYTES_MAX`].
#[must_use]
pub fn split(request_id: u16, reply: &[u8]) -> Option<impl ExactSizeIterator<Item = ([u8; HEADER_BYTES], &[u8])>> {
    let total = u16::try_from(reply.len().div_ceil(PAYLOAD_BYTES_MAX)).ok()?;
    let chunks = reply.chunks(PAYLOAD_BYTES_MAX).zip(0..total);
    Some(chunks.map(move |(payload, sequence)| (Header { request_id, sequence, total }.to_bytes(), payload)))
}

/// A client's answer in the making: datagrams come in any order, some twice, some of other requests.
#[derive(Debug)]
pub struct Assembly {
    request_id: u16,
    bytes_max: usize,
    bytes: usize,
    missing: usize,
    parts: Vec<Option<Vec<u8>>>,
}

impl Assembly {
    /// Waits for the answer to `request_id`, of at most `bytes_max` bytes.
    #[must_use]
    pub const fn new(request_id: u16, bytes_max: usize) -> Assembly {
        Assembly { request_id, bytes_max, bytes: 0, missing: 0, parts: Vec::new() }
    }

    /// Takes a datagram; the whole answer with the last missing one. Datagrams that do not fit are left out.
    pub fn push(&mut self, datagram: &[u8]) -> Option<Vec<u8>> {
        let (header, payload) = Header::read(datagram)?;
        if header.request_id != self.request_id || header.sequence >= header.total {
            return None;
        }
        if self.parts.is_empty() {
            self.parts.resize_with(usize::from(header.total), || None);
            self.missing = self.parts.len();
        }
        let slot = self.parts.get_mut(usize::from(header.sequence))?;
        if slot.is_some() || self.bytes + payload.len() > self.bytes_max {
            return None;
        }
        *slot = Some(payload.to_vec());
        self.bytes += payload.len();
        self.missing -= 1;
        (self.missing == 0).then(|| self.parts.drain(..).flatten().flatten().collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_go_both_ways() {
        let header = Header { request_id: 0x0102, sequence: 0x0304, total: 0x0506 };
        assert_eq!(header.to_bytes(), [1, 2, 3, 4, 5, 6, 0, 0]);
        assert_eq!(Header::read(&[1, 2, 3, 4, 5, 6, 7, 8, 9]), Some((header, &[9][..])));
        assert_eq!(Header::read(&[0; 7]), None);
    }

    #[test]
    fn only_single_datagrams_are_requests() {
        let datagram = |header: &[u8], payload: &[u8]| [header, payload].concat();
        let good = datagram(&Header::request(7).to_bytes(), b"get k\r\n");
        assert_eq!(request(&good), Some((7, &b"get k\r\n"[..])));
        // CVE-2022-48571: a message of several datagrams.
        for total in [0u16, 2, 0x0100, 0x0101, u16::MAX] {
            let header = Header { request_id: 7, sequence: 0, total };
            assert_eq!(request(&datagram(&header.to_bytes(), b"get k\r\n")), None);
        }
        assert_eq!(request(&Header::request(7).to_bytes()), None);
        assert_eq!(request(b""), None);
    }

    #[test]
    fn answers_split_at_1392_bytes_and_come_together_in_any_order() {
        for (reply_bytes, datagrams) in [(0, 0), (1, 1), (1392, 1), (1393, 2), (2784, 2), (100_000, 72)] {
            let reply: Vec<u8> = (0..reply_bytes).map(|i| (i % 251) as u8).collect();
            let mut sent: Vec<Vec<u8>> =
                split(9, &reply).unwrap().map(|(header, payload)| [&header[..], payload].concat()).collect();
            assert_eq!(sent.len(), datagrams);
            assert!(sent.iter().all(|datagram| datagram.len() <= DATAGRAM_BYTES_MAX));
            sent.reverse();
            let mut assembly = Assembly::new(9, 1 << 20);
            let mut whole = None;
            for datagram in &sent {
                assert_eq!(whole, None);
                assert_eq!(assembly.push(&Header::request(8).to_bytes()), None, "another request's");
                whole = assembly.push(datagram);
                if whole.is_none() {
                    assert_eq!(assembly.push(datagram), None, "a second copy");
                }
            }
            assert_eq!(whole.unwrap_or_default(), reply);
        }
    }

    #[test]
    fn an_answer_too_long_to_be_numbered_is_not_split() {
        let reply = vec![0; REPLY_BYTES_MAX + 1];
        assert!(split(0, &reply).is_none());
        assert_eq!(split(0, &reply[..REPLY_BYTES_MAX]).unwrap().len(), 65_535);
    }

    #[test]
    fn an_assembly_keeps_to_its_limit() {
        let mut assembly = Assembly::new(1, 3);
        let datagram = [&Header::request(1).to_bytes()[..], b"four"].concat();
        assert_eq!(assembly.push(&datagram), None);
        let lying = [&Header { request_id: 1, sequence: 5, total: 2 }.to_bytes()[..], b"x"].concat();
        assert_eq!(assembly.push(&lying), None);
    }
}
