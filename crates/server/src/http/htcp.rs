//! Purges over UDP: the CLR of HTCP (RFC 2756, section 4.4), as MediaWiki sends it to every cache of a site.
//!
//! The RFC has the opcode in the upper half of its byte; Squid once had it in the lower, and MediaWiki still sends it so.
//! A CLR is told by either, since as the other order neither is a request that is answered here. An answer is sent
//! only to who wants one, and to nobody who may not purge.

use std::net::SocketAddr;
use std::sync::Arc;

use nuthatch_pages::door::{Purged, Site};
use tokio::net::UdpSocket;
use tokio::sync::watch;

use crate::counters::ListenerCounter;
use crate::log::{Escaped, Level};
use crate::shared::Listener;
use crate::worker;

const DATAGRAM_BYTES_MAX: usize = 64 * 1024;

/// What is answered at most of what has arrived when a socket closes.
const DATAGRAMS_QUEUED_MAX: u32 = 10_000;

const CLR: u8 = 4;

/// Serves `socket` until the other end of `until` says so or goes, and obeys what has arrived by then.
pub(crate) async fn serve(
    socket: UdpSocket,
    listener: Arc<Listener>,
    site: Arc<Site>,
    mut until: watch::Receiver<bool>,
) {
    let mut datagram = vec![0; DATAGRAM_BYTES_MAX];
    loop {
        tokio::select! {
            biased;
            _ = until.changed() => break,
            received = socket.recv_from(&mut datagram) => {
                // An error is about an earlier answer that nobody took.
                let Ok((bytes, from)) = received else { continue };
                if let Some(answer) = obey(&datagram[..bytes], from, &listener, &site) {
                    // A datagram that cannot be sent is lost, as datagrams may be.
                    let _ = socket.send_to(&answer, from).await;
                }
            }
        }
    }
    for _ in 0..DATAGRAMS_QUEUED_MAX {
        let Ok((bytes, from)) = socket.try_recv_from(&mut datagram) else { break };
        if let Some(answer) = obey(&datagram[..bytes], from, &listener, &site) {
            let _ = socket.try_send_to(&answer, from);
        }
    }
    // Whoever waits for the end of `until` may want the port.
    drop(socket);
    drop(until);
    worker::with(|worker| worker.datagram_sockets -= 1);
}

/// Does what a datagram asks for: the answer, if one is wanted.
fn obey(datagram: &[u8], from: SocketAddr, listener: &Listener, site: &Arc<Site>) -> Option<Vec<u8>> {
    let count = |counter, by| worker::with(|worker| listener.counters.add(worker.number, counter, by));
    let warn = |line: std::fmt::Arguments<'_>| {
        worker::with(|worker| worker.shared.log.line(Level::Warning, line));
    };
    count(ListenerCounter::BytesRead, datagram.len() as u64);
    let Some(clear) = Clear::parse(datagram) else {
        count(ListenerCounter::DatagramsDropped, 1);
        warn(format_args!("htcp: expected a CLR of RFC 2756 from {from}"));
        return None;
    };
    count(ListenerCounter::Requests, 1);
    let response = match site.purge_url(Some(from.ip()), clear.url) {
        Purged::Gone => 0,
        Purged::NotThere => 2,
        Purged::Denied => {
            warn(format_args!("htcp: refused a CLR of {from}: its address is none that may purge"));
            return None;
        }
        Purged::NoUrl(why) => {
            warn(format_args!("htcp: {from}: {}: {why}", Escaped(clear.url)));
            return None;
        }
    };
    let answer = clear.answer(response)?;
    count(ListenerCounter::BytesWritten, answer.len() as u64);
    Some(answer)
}

/// A request to forget a URL.
#[derive(Debug, PartialEq, Eq)]
struct Clear<'a> {
    url: &'a [u8],
    wants_answer: bool,
    /// The opcode stands in the lower half of its byte.
    is_squids: bool,
    transaction: [u8; 4],
}

impl<'a> Clear<'a> {
    /// Reads a whole datagram: header, data, authentication. The latter is skipped: who may purge is told by address.
    fn parse(datagram: &'a [u8]) -> Option<Clear<'a>> {
        let (length, rest) = take_u16(datagram)?;
        // Major and minor version: 0.0 and 0.1 are the same for a CLR.
        let ([0, 0 | 1], data) = rest.split_at_checked(2)? else { return None };
        let (data_length, rest) = take_u16(data)?;
        if usize::from(length) > datagram.len() || usize::from(data_length) > data.len() || data_length < 10 {
            return None;
        }
        let is_squids = match rest[0] {
            byte if byte == CLR << 4 => false,
            CLR => true,
            _ => return None,
        };
        let wants_answer = rest[1] & 1 == 1;
        let transaction = rest[2..6].try_into().ok()?;
        // Two bytes of which four bits are the reason; then method, URL, version, fields, each with its length.
        let specifier = data.get(10..usize::from(data_length))?;
        let (_method, specifier) = take_counted(specifier)?;
        let (url, specifier) = take_counted(specifier)?;
        let (_version, specifier) = take_counted(specifier)?;
        take_counted(specifier)?;
        Some(Clear { url, wants_answer, is_squids, transaction })
    }

    /// The datagram that says what became of it, if that is wanted.
    fn answer(&self, response: u8) -> Option<Vec<u8>> {
        if !self.wants_answer {
            return None;
        }
        let code = if self.is_squids { response << 4 | CLR } else { CLR << 4 | response };
        // Length 14, version 0.0; data of 8 bytes: length, code, that it is a response; no authentication.
        let mut answer = vec![0, 14, 0, 0, 0, 8, code, 2];
        answer.extend_from_slice(&self.transaction);
        answer.extend_from_slice(&[0, 2]);
        Some(answer)
    }
}

fn take_u16(bytes: &[u8]) -> Option<(u16, &[u8])> {
    let (number, rest) = bytes.split_at_checked(2)?;
    Some((u16::from_be_bytes([number[0], number[1]]), rest))
}

fn take_counted(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let (count, rest) = take_u16(bytes)?;
    rest.split_at_checked(usize::from(count))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As MediaWiki packs it: `pack('nxxnCxNxxa*n', …)` around `pack('na4na*na8n', 4, 'HEAD', …)`.
    fn mediawikis(url: &[u8], code: u8, flags: u8) -> Vec<u8> {
        let mut specifier = vec![0, 4];
        specifier.extend_from_slice(b"HEAD");
        specifier.extend_from_slice(&(url.len() as u16).to_be_bytes());
        specifier.extend_from_slice(url);
        specifier.extend_from_slice(&[0, 8]);
        specifier.extend_from_slice(b"HTTP/1.0");
        specifier.extend_from_slice(&[0, 0]);
        let data_length = 8 + 2 + specifier.len() as u16;
        let length = 4 + data_length + 2;
        let mut packet = length.to_be_bytes().to_vec();
        packet.extend_from_slice(&[0, 0]);
        packet.extend_from_slice(&data_length.to_be_bytes());
        packet.extend_from_slice(&[code, flags, 1, 2, 3, 4, 0, 0]);
        packet.extend_from_slice(&specifier);
        packet.extend_from_slice(&[0, 2]);
        packet
    }

    #[test]
    fn a_clear_is_read_in_either_order_of_bits() {
        let url = b"http://wiki.example/wiki/Main_Page";
        for (code, is_squids, answer) in [(0x04, true, 0x24), (0x40, false, 0x42)] {
            let packet = mediawikis(url, code, 0);
            let clear = Clear::parse(&packet).expect("a CLR");
            let expected = Clear { url, wants_answer: false, is_squids, transaction: [1, 2, 3, 4] };
            assert_eq!((&clear, clear.answer(2)), (&expected, None));
            let packet = mediawikis(url, code, 1);
            let clear = Clear::parse(&packet).expect("a CLR");
            assert_eq!(clear.answer(2), Some(vec![0, 14, 0, 0, 0, 8, answer, 2, 1, 2, 3, 4, 0, 2]));
        }
    }

    #[test]
    fn what_is_no_clear_is_none_and_no_length_reads_past_the_end() {
        let packet = mediawikis(b"http://a/", 0x04, 0);
        for end in 0..packet.len() - 2 {
            assert_eq!(Clear::parse(&packet[..end]), None, "cut at {end}");
        }
        for at in 0..packet.len() {
            for value in [0, 1, 0x7f, 0xff] {
                let mut packet = packet.clone();
                packet[at] = value;
                // It may be read or not, but never past its end.
                let _ = Clear::parse(&packet);
            }
        }
        assert_eq!(Clear::parse(&mediawikis(b"http://a/", 0x01, 0)), None, "TST is not spoken");
    }
}
