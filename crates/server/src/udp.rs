//! UDP: one request per datagram, answered in as many datagrams as it takes. Off unless `-U` asks for it, because whoever
//! can forge an address can have answers sent to it.

use std::io;
use std::net::SocketAddr;
use std::os::fd::AsRawFd;
use std::sync::Arc;

use nuthatch_proto::udp;
use tokio::net::UdpSocket;
use tokio::sync::watch;

use crate::conn::{Output, Pause, Session};
use crate::counters::ListenerCounter;
use crate::exec::Exec;
use crate::log::Level;
use crate::shared::{ConnectionInfo, Listener, Peer};
use crate::worker::{self, Worker};

/// The largest datagram there is.
const DATAGRAM_BYTES_MAX: usize = 64 * 1024;

/// Longest answer to one datagram: room for an item of the default limit. Dumps of the store do not go over UDP.
const ANSWER_BYTES_MAX: usize = 2 * 1024 * 1024;

/// What is answered at most of what has arrived when a socket closes: whoever keeps sending does not keep it open.
const DATAGRAMS_QUEUED_MAX: u32 = 10_000;

/// Serves `socket` until the other end of `until` says so or goes, and answers what has arrived by then.
pub(crate) async fn serve(socket: UdpSocket, listener: Arc<Listener>, mut until: watch::Receiver<bool>) {
    let mut datagram = vec![0; DATAGRAM_BYTES_MAX];
    let mut is_well = true;
    let mut is_ending = false;
    let mut queued_max = DATAGRAMS_QUEUED_MAX;
    while is_well && queued_max > 0 {
        let received = if is_ending {
            queued_max -= 1;
            // Whoever serves the socket from now on, if anyone does, reads from the same queue.
            socket.try_recv_from(&mut datagram)
        } else {
            tokio::select! {
                biased;
                _ = until.changed() => {
                    is_ending = true;
                    continue;
                }
                received = socket.recv_from(&mut datagram) => received,
            }
        };
        if is_ending && received.as_ref().is_err_and(|error| error.kind() == io::ErrorKind::WouldBlock) {
            break;
        }
        is_well = respond(&socket, &datagram, received, &listener).await;
    }
    // Whoever waits for the end of `until` may want the port.
    drop(socket);
    drop(until);
    worker::with(|worker| worker.datagram_sockets -= 1);
}

/// Answers one datagram. False when the socket is of no use any more.
async fn respond(
    socket: &UdpSocket,
    datagram: &[u8],
    received: io::Result<(usize, SocketAddr)>,
    listener: &Arc<Listener>,
) -> bool {
    let (bytes, from) = match received {
        Ok(received) => received,
        // A destination that was unreachable for an earlier answer is reported here; it concerns no other client.
        Err(error) if is_about_one_client(&error) => return true,
        Err(error) => {
            worker::with(|worker| {
                let name = &listener.name;
                worker.shared.log.line(Level::Error, format_args!("listener {name} gave up: {error}"));
            });
            return false;
        }
    };
    let Some((request_id, reply)) = answer(&datagram[..bytes], from, socket.as_raw_fd(), listener) else { return true };
    let Some(parts) = udp::split(request_id, &reply) else { return true };
    for (header, payload) in parts {
        let part = [&header[..], payload].concat();
        // A datagram that cannot be sent is lost, as datagrams may be.
        let _ = socket.send_to(&part, from).await;
    }
    true
}

/// The answer to one datagram and the number it is asked under; `None` when there is none.
fn answer(datagram: &[u8], from: SocketAddr, fd: i32, listener: &Arc<Listener>) -> Option<(u16, Vec<u8>)> {
    worker::with(|worker| {
        let count = |counter, n| listener.counters.add(worker.number, counter, n);
        count(ListenerCounter::BytesRead, datagram.len() as u64);
        let Some((request_id, request)) = udp::request(datagram) else {
            count(ListenerCounter::DatagramsDropped, 1);
            return None;
        };
        let now = worker.shared.clock.now();
        let info = ConnectionInfo::new(u64::MAX, fd, Peer::Internet(from), Arc::clone(listener), now);
        let reply = execute(worker, &info, request);
        let shared = &worker.shared;
        if reply.is_none() {
            listener.counters.add(worker.number, ListenerCounter::DatagramsDropped, 1);
        }
        shared.log.line(Level::Detail, format_args!("datagram of {} bytes from {from}", datagram.len()));
        let reply = reply?;
        listener.counters.add(worker.number, ListenerCounter::Requests, 1);
        listener.counters.add(worker.number, ListenerCounter::BytesWritten, reply.len() as u64);
        Some((request_id, reply))
    })
}

/// Executes everything in `request`; `None` when the answer is too long or would never end.
fn execute(worker: &mut Worker, info: &ConnectionInfo, request: &[u8]) -> Option<Vec<u8>> {
    let mut session = Session::new(&info.listener.access, false);
    let mut reply = Vec::new();
    let mut at = 0;
    let mut output = Output::default();
    // There is nobody on this datagram's connection to be kept waiting.
    let mut turns = u32::MAX;
    loop {
        let Worker { shared, live, number, handles, .. } = worker;
        let mut exec = Exec::new(shared, live, handles, *number, &mut output, info);
        let (used, pause) = session.run(&mut exec, &request[at..], &mut turns);
        at += used;
        reply.extend_from_slice(&output.flatten());
        output.clear();
        if let Some(watcher) = session.watcher() {
            // Nobody could be sent what is watched.
            worker.shared.watchers.remove(watcher);
            return None;
        }
        if reply.len() > ANSWER_BYTES_MAX {
            return None;
        }
        if pause != Pause::Full {
            return Some(reply);
        }
    }
}

fn is_about_one_client(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::ConnectionRefused | io::ErrorKind::ConnectionReset | io::ErrorKind::Interrupted
    ) || error.kind() == io::ErrorKind::HostUnreachable
}
