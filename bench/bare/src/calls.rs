//! The same answers without tokio: one epoll, and for a request that comes alone a wait, a receive and a send. What is left is the
//! kernel's part, and no server that waits by epoll can go below it.
//!
//! A second thread does nothing, since a server has more than one: the kernel finds a descriptor at once only in a process that has one
//! thread. An answer that the socket does not take at once ends its connection.

use std::io::{self, Read, Write};
use std::net::TcpListener;
use std::os::fd::AsFd;
use std::os::unix::net::UnixListener;

use rustix::buffer::spare_capacity;
use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};

use crate::{INPUT_BYTES, Items, answer_all};

/// The listener's place among the events; those of connections are above it.
const LISTENER: u64 = 0;

/// Serves whoever connects to `place`, until accepting or waiting fails.
pub(crate) fn serve(place: &str) -> io::Result<()> {
    std::thread::spawn(|| {
        loop {
            std::thread::park();
        }
    });
    if place.contains('/') {
        return run(&UnixListener::bind(place)?, |listener| {
            let (stream, _) = listener.accept()?;
            stream.set_nonblocking(true)?;
            Ok(stream)
        });
    }
    run(&TcpListener::bind(place)?, |listener| {
        let (stream, _) = listener.accept()?;
        stream.set_nodelay(true)?;
        stream.set_nonblocking(true)?;
        Ok(stream)
    })
}

struct Connection<S> {
    stream: S,
    /// What came and is not a whole request.
    kept: Vec<u8>,
}

fn run<L: AsFd, S: Read + Write + AsFd>(listener: &L, accept: fn(&L) -> io::Result<S>) -> io::Result<()> {
    let poll = epoll::create(CreateFlags::CLOEXEC)?;
    epoll::add(&poll, listener, EventData::new_u64(LISTENER), EventFlags::IN)?;
    let items = Items::default();
    let mut connections: Vec<Option<Connection<S>>> = Vec::new();
    let mut events = Vec::with_capacity(64);
    let (mut input, mut output) = (vec![0; INPUT_BYTES], Vec::new());
    loop {
        events.clear();
        match epoll::wait(&poll, spare_capacity(&mut events), None) {
            Ok(_) => {}
            Err(rustix::io::Errno::INTR) => continue,
            Err(error) => return Err(error.into()),
        }
        for event in &events {
            let number = event.data.u64();
            if number == LISTENER {
                let stream = accept(listener)?;
                let number = connections.len() as u64 + 1;
                epoll::add(&poll, &stream, EventData::new_u64(number), EventFlags::IN)?;
                connections.push(Some(Connection { stream, kept: Vec::new() }));
                continue;
            }
            let connection = &mut connections[number as usize - 1];
            if connection.as_mut().is_some_and(|open| turn(open, &items, &mut input, &mut output).is_err()) {
                // Its descriptor leaves the epoll as it closes.
                *connection = None;
            }
        }
    }
}

/// One receive, the answers to what is whole by then, one send. An error ends the connection.
fn turn<S: Read + Write>(
    connection: &mut Connection<S>,
    items: &Items,
    input: &mut Vec<u8>,
    output: &mut Vec<u8>,
) -> io::Result<()> {
    let kept = connection.kept.len();
    input.resize(input.len().max(kept + INPUT_BYTES), 0);
    input[..kept].copy_from_slice(&connection.kept);
    let filled = match connection.stream.read(&mut input[kept..]) {
        Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
        Ok(received) => kept + received,
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
        Err(error) => return Err(error),
    };
    output.clear();
    let used = answer_all(&input[..filled], items, output);
    connection.kept.clear();
    connection.kept.extend_from_slice(&input[used..filled]);
    connection.stream.write_all(output)
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixStream;

    use super::*;

    #[test]
    fn requests_cut_in_two_are_answered_and_a_client_that_goes_disturbs_nobody() {
        let path = std::env::temp_dir().join(format!("nuthatch-bare-{}", std::process::id()));
        let place = path.display().to_string();
        std::thread::spawn(move || serve(&place));
        let connect = || loop {
            match UnixStream::connect(&path) {
                Ok(stream) => return stream,
                Err(_) => std::thread::yield_now(),
            }
        };
        let (mut client, other) = (connect(), connect());
        client.write_all(b"set a 0 0 3\r\nab").unwrap();
        drop(other);
        client.write_all(b"c\r\nget a").unwrap();
        client.write_all(b" b\r\n").unwrap();
        let expected = b"STORED\r\nVALUE a 0 3\r\nabc\r\nEND\r\n";
        let mut answers = vec![0; expected.len()];
        client.read_exact(&mut answers).unwrap();
        assert_eq!(answers, expected);
        std::fs::remove_file(&path).unwrap();
    }
}
