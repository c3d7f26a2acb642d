//! A web server behind the caches that are compared: it answers at once, or after a while, with as many bytes as a path begins with,
//! and counts what it is asked.

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, SystemTime};

use crate::failure::Failure;

/// What a path ends in whose answer takes its time.
pub(super) const SLOW: &str = "slow";

/// How long it takes: longer than it takes everybody to ask.
const SLOW_TIME: Duration = Duration::from_millis(300);

/// A running one. It ends with the program.
pub(super) struct Origin {
    pub(super) address: SocketAddr,
    asked: Arc<Mutex<HashMap<String, u64>>>,
}

impl Origin {
    pub(super) fn start() -> Result<Origin, Failure> {
        let failed = |error| Failure::run(format!("bench: expected to listen on a port of 127.0.0.1: {error}"));
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).map_err(failed)?;
        let origin = Origin { address: listener.local_addr().map_err(failed)?, asked: Arc::default() };
        let asked = Arc::clone(&origin.asked);
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let asked = Arc::clone(&asked);
                thread::spawn(move || serve(&stream, &asked));
            }
        });
        Ok(origin)
    }

    /// How often it was asked for a path.
    pub(super) fn asked(&self, path: &str) -> u64 {
        lock(&self.asked).get(path).copied().unwrap_or(0)
    }
}

fn lock(asked: &Mutex<HashMap<String, u64>>) -> MutexGuard<'_, HashMap<String, u64>> {
    asked.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Answers until the client goes.
fn serve(mut stream: &TcpStream, asked: &Mutex<HashMap<String, u64>>) {
    let mut reader = BufReader::new(stream);
    loop {
        let mut request = String::new();
        while !request.ends_with("\r\n\r\n") {
            if !matches!(reader.read_line(&mut request), Ok(1..)) {
                return;
            }
        }
        let path = request.split(' ').nth(1).unwrap_or("/").to_owned();
        if path.ends_with(SLOW) {
            thread::sleep(SLOW_TIME);
        }
        let bytes = path.split('/').nth(1).and_then(|bytes| bytes.parse().ok()).unwrap_or(0);
        *lock(asked).entry(path).or_default() += 1;
        // Bytes that nobody would compress, of a type that nobody would. Squid keeps nothing that has no date.
        let body = vec![b'x'; bytes];
        let date = httpdate::fmt_http_date(SystemTime::now());
        let head = format!(
            "HTTP/1.1 200 OK\r\nContent-Type: application/octet-stream\r\nCache-Control: max-age=3600\r\n\
             Date: {date}\r\nContent-Length: {bytes}\r\n\r\n"
        );
        if stream.write_all(&[head.as_bytes(), &body].concat()).is_err() {
            return;
        }
    }
}
