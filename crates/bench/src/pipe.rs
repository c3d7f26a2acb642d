//! One connection: requests that wait to be sent, requests that wait for their answers, and bytes received.
//!
//! A pipe never decides what to ask and never waits unless it is told to; the loops do. Its buffers keep their memory, so
//! once they have grown to the sizes of the run nothing is allocated.

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::net::{RecvFlags, SendFlags};

use crate::keys::Keys;
use crate::wire::{Asked, Codec, Kind, Progress, Reading, Tally};

/// Room for answers to begin with. Only what is received is touched.
const INPUT_BYTES: usize = 16 * 1024;

/// A connection and what is under way on it.
pub(crate) struct Pipe {
    socket: OwnedFd,
    out: Vec<u8>,
    out_sent: usize,
    input: Vec<u8>,
    input_start: usize,
    input_end: usize,
    input_wanted: usize,
    asked: VecDeque<Asked>,
    ids: VecDeque<u32>,
}

/// Why a connection cannot be gone on with.
pub(crate) type Lost = String;

impl Pipe {
    pub(crate) fn new(socket: OwnedFd) -> Pipe {
        Pipe {
            socket,
            out: Vec::with_capacity(4096),
            out_sent: 0,
            input: vec![0; INPUT_BYTES],
            input_start: 0,
            input_end: 0,
            input_wanted: 0,
            asked: VecDeque::with_capacity(64),
            ids: VecDeque::with_capacity(64),
        }
    }

    /// Requests whose answers are not complete.
    pub(crate) fn in_flight(&self) -> usize {
        self.asked.len()
    }

    /// Whether something waits to be sent.
    pub(crate) fn has_output(&self) -> bool {
        self.out_sent < self.out.len()
    }

    /// Queues a retrieval.
    #[inline]
    pub(crate) fn get(&mut self, codec: &Codec, keys: &Keys, ids: &[u32], started_ns: u64) {
        codec.get(&mut self.out, keys, ids);
        self.ids.extend(ids);
        self.ask(Kind::Get, ids.len() as u32, started_ns);
    }

    /// Queues a set of the key's own value.
    #[inline]
    pub(crate) fn set(&mut self, codec: &Codec, keys: &Keys, id: u32, ttl_seconds: u32, started_ns: u64) {
        codec.set(&mut self.out, keys, id, ttl_seconds, keys.value(id));
        self.ids.push_back(id);
        self.ask(Kind::Set, 1, started_ns);
    }

    /// Queues a deletion.
    #[inline]
    pub(crate) fn delete(&mut self, codec: &Codec, keys: &Keys, id: u32, started_ns: u64) {
        codec.delete(&mut self.out, keys, id);
        self.ids.push_back(id);
        self.ask(Kind::Delete, 1, started_ns);
    }

    fn ask(&mut self, kind: Kind, width: u32, started_ns: u64) {
        self.asked.push_back(Asked { kind, width, left: width, started_ns });
    }

    /// Sends what is queued, as far as the socket takes it, or all of it when told to wait.
    pub(crate) fn send(&mut self, wait: bool) -> Result<(), Lost> {
        let flags = if wait { SendFlags::NOSIGNAL } else { SendFlags::NOSIGNAL | SendFlags::DONTWAIT };
        while self.has_output() {
            match rustix::net::send(&self.socket, &self.out[self.out_sent..], flags) {
                Ok(sent) => self.out_sent += sent,
                Err(rustix::io::Errno::AGAIN) if !wait => return Ok(()),
                Err(rustix::io::Errno::INTR) => {}
                Err(errno) => return Err(lost("sending", errno.into())),
            }
        }
        self.out.clear();
        self.out_sent = 0;
        Ok(())
    }

    /// Receives once. Without waiting, nothing may have come.
    pub(crate) fn receive(&mut self, wait: bool) -> Result<usize, Lost> {
        self.make_room();
        let flags = if wait { RecvFlags::empty() } else { RecvFlags::DONTWAIT };
        loop {
            return match rustix::net::recv(&self.socket, &mut self.input[self.input_end..], flags) {
                Ok((0, _)) => Err("the server closed the connection".to_owned()),
                Ok((received, _)) => {
                    self.input_end += received;
                    Ok(received)
                }
                Err(rustix::io::Errno::AGAIN) if wait => Err("the server did not answer in time".to_owned()),
                Err(rustix::io::Errno::AGAIN) => Ok(0),
                Err(rustix::io::Errno::INTR) => continue,
                Err(errno) => Err(lost("receiving", errno.into())),
            };
        }
    }

    fn make_room(&mut self) {
        if self.input_start > 0 {
            self.input.copy_within(self.input_start..self.input_end, 0);
            self.input_end -= self.input_start;
            self.input_start = 0;
        }
        let wanted = self.input_wanted.max(self.input_end + 1);
        if wanted > self.input.len() {
            self.input.resize(wanted.next_power_of_two(), 0);
        }
    }

    /// Reads the answers that have come; `each` is called for each request that is now answered. How many were.
    pub(crate) fn answers(
        &mut self,
        codec: &mut Codec,
        keys: &Keys,
        tally: &mut Tally,
        mut missed: Option<&mut Vec<u32>>,
        mut each: impl FnMut(&Asked),
    ) -> Result<u32, Lost> {
        let mut answered = 0;
        self.input_wanted = 0;
        while self.input_start < self.input_end {
            let Some(asked) = self.asked.front_mut() else {
                return Err("the server sent more than it was asked for".to_owned());
            };
            let buf = &self.input[self.input_start..self.input_end];
            let mut reading = Reading { ids: &mut self.ids, tally, missed: missed.as_deref_mut() };
            match codec.read(buf, keys, asked, &mut reading) {
                Progress::Need(need_bytes) => {
                    self.input_wanted = need_bytes;
                    break;
                }
                Progress::Part(used) => self.input_start += used,
                Progress::Done(used) => {
                    self.input_start += used;
                    each(asked);
                    self.asked.pop_front();
                    answered += 1;
                }
                Progress::Broken(why) => return Err(why),
            }
        }
        if self.input_start == self.input_end {
            self.input_start = 0;
            self.input_end = 0;
        }
        Ok(answered)
    }
}

impl AsFd for Pipe {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

fn lost(what: &str, error: io::Error) -> Lost {
    format!("{what} failed: {error}")
}
