//! The limit: a tokio loop that answers `get` and `set` from a hash map and does nothing else.
//!
//! No expiry, no limit of memory, no counters, no errors, no other command: what is left is the price of the sockets and of
//! tokio, and with `--calls` that of the sockets alone. The comparison (`nuthatch bench compare`) states how far Nuthatch is
//! from both. They trust their clients completely, so they are for measuring alone.
//!
//! Usage: `nuthatch-bare [--calls] HOST:PORT` or `nuthatch-bare [--calls] /path/of/socket`
#![forbid(unsafe_code)]

mod calls;

use std::cell::RefCell;
use std::collections::HashMap;
use std::env;
use std::io;
use std::process::ExitCode;
use std::rc::Rc;

use rapidhash::fast::RandomState;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, UnixListener};
use tokio::task::LocalSet;

type Items = Rc<RefCell<HashMap<Box<[u8]>, Box<[u8]>, RandomState>>>;

/// What one receive takes at the most.
const INPUT_BYTES: usize = 16 * 1024;

fn main() -> ExitCode {
    let words: Vec<String> = env::args().skip(1).collect();
    let (serve, place): (fn(&str) -> io::Result<()>, &str) = match &words[..] {
        [flag, place] if flag == "--calls" => (calls::serve, place),
        [place] if !place.starts_with("--") => (run, place),
        _ => {
            eprintln!("nuthatch-bare: expected [--calls] and HOST:PORT or the path of a socket to listen on");
            return ExitCode::from(2);
        }
    };
    match serve(place) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("nuthatch-bare: {place}: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(place: &str) -> io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build()?;
    let local = LocalSet::new();
    let items = Items::default();
    local.block_on(&runtime, async {
        if place.contains('/') {
            let listener = UnixListener::bind(place)?;
            loop {
                let (stream, _) = listener.accept().await?;
                tokio::task::spawn_local(serve(stream, Rc::clone(&items)));
            }
        }
        let listener = TcpListener::bind(place).await?;
        loop {
            let (stream, _) = listener.accept().await?;
            stream.set_nodelay(true)?;
            tokio::task::spawn_local(serve(stream, Rc::clone(&items)));
        }
    })
}

/// Reads requests and writes the answers to all that came at once. An error of the connection ends it.
async fn serve(mut stream: impl AsyncRead + AsyncWrite + Unpin, items: Items) -> io::Result<()> {
    let mut input = vec![0; INPUT_BYTES];
    let (mut filled, mut output) = (0, Vec::new());
    loop {
        if filled == input.len() {
            input.resize(filled * 2, 0);
        }
        match stream.read(&mut input[filled..]).await? {
            0 => return Ok(()),
            received => filled += received,
        }
        let used = answer_all(&input[..filled], &items, &mut output);
        input.copy_within(used..filled, 0);
        filled -= used;
        stream.write_all(&output).await?;
        output.clear();
    }
}

/// Answers every request that is whole and says how long they were.
fn answer_all(buf: &[u8], items: &Items, output: &mut Vec<u8>) -> usize {
    let mut used = 0;
    while let Some(request_bytes) = answer(&buf[used..], items, output) {
        used += request_bytes;
    }
    used
}

/// Answers the first request in `buf` and says how long it was; `None` while it is not all there.
fn answer(buf: &[u8], items: &Items, output: &mut Vec<u8>) -> Option<usize> {
    let line_end = buf.iter().position(|&byte| byte == b'\n')?;
    let line = &buf[..line_end.saturating_sub(1)];
    let mut words = line.split(|&byte| byte == b' ');
    match words.next() {
        Some(b"get") => {
            let items = items.borrow();
            for key in words {
                if let Some(value) = items.get(key) {
                    output.extend_from_slice(b"VALUE ");
                    output.extend_from_slice(key);
                    output.extend_from_slice(b" 0 ");
                    push_number(output, value.len());
                    output.extend_from_slice(b"\r\n");
                    output.extend_from_slice(value);
                    output.extend_from_slice(b"\r\n");
                }
            }
            output.extend_from_slice(b"END\r\n");
            Some(line_end + 1)
        }
        Some(b"set") => {
            let key = words.next()?;
            let value_bytes: usize = std::str::from_utf8(words.nth(2)?).ok()?.parse().ok()?;
            let value = buf.get(line_end + 1..line_end + 1 + value_bytes)?;
            buf.get(line_end + 1 + value_bytes + 1)?;
            let mut items = items.borrow_mut();
            match items.get_mut(key) {
                Some(kept) if kept.len() == value_bytes => kept.copy_from_slice(value),
                _ => drop(items.insert(key.into(), value.into())),
            }
            output.extend_from_slice(b"STORED\r\n");
            Some(line_end + 1 + value_bytes + 2)
        }
        _ => {
            output.extend_from_slice(b"VERSION bare\r\n");
            Some(line_end + 1)
        }
    }
}

fn push_number(output: &mut Vec<u8>, mut number: usize) {
    let mut digits = [0; 20];
    let mut at = digits.len();
    loop {
        at -= 1;
        digits[at] = b'0' + (number % 10) as u8;
        number /= 10;
        if number == 0 {
            return output.extend_from_slice(&digits[at..]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gets_find_what_sets_stored_wherever_requests_are_cut() {
        let (items, mut output) = (Items::default(), Vec::new());
        let requests = b"set a 0 0 3\r\nx\r\n\r\nset a 0 0 3\r\nabc\r\nget a b a\r\nversion\r\n";
        let mut used = 0;
        for end in 0..=requests.len() {
            used += answer_all(&requests[used..end], &items, &mut output);
        }
        assert_eq!(used, requests.len());
        let expected = "STORED\r\nSTORED\r\nVALUE a 0 3\r\nabc\r\nVALUE a 0 3\r\nabc\r\nEND\r\nVERSION bare\r\n";
        assert_eq!(String::from_utf8(output).unwrap(), expected);
    }
}
