//! A call at the one server that has its key: which that is, who stands in for it, the second try of a read, and the keys of a
//! retrieval dealt out to their servers.

use std::future::poll_fn;
use std::sync::Arc;
use std::task::Poll;

use super::Error;
use super::config::OnDown;
use super::inner::Inner;
use super::keys::Taker;
use super::link::{Call, KEYS_PER_REQUEST, Link};
use super::request::{Answer, Arith, Item, MetaAnswer, MetaRequest, Request, Store, Want, Word, Write, Written};
use super::server::{Ring, Server};
use super::wire;

/// Expiry times above this many seconds are dates (memcached's `REALTIME_MAXDELTA`).
pub(super) const RELATIVE_SECONDS_MAX: i32 = 60 * 60 * 24 * 30;

impl Inner {
    /// Which server is asked for a key, and whether it is a spare one.
    #[inline]
    fn pick<'r>(&'r self, ring: &'r Ring, key: &[u8]) -> Result<(&'r Arc<Server>, bool), Error> {
        let server = ring.first(key)?;
        if server.takes(key) { Ok((server, false)) } else { self.pick_other(ring, key, server) }
    }

    #[cold]
    fn pick_other<'r>(
        &'r self,
        ring: &'r Ring,
        key: &[u8],
        server: &Arc<Server>,
    ) -> Result<(&'r Arc<Server>, bool), Error> {
        let other = match self.config.on_down {
            OnDown::Error | OnDown::Miss => None,
            // Until a tick sees that it is out, and for the keys that it does not have back yet, the next stands in.
            OnDown::Next | OnDown::Eject => ring.first_that_takes(key).map(|server| (server, false)),
            OnDown::Spare { .. } => {
                let spare = self.spare.as_ref().and_then(|spare| spare.first_that_takes(key));
                spare.map(|server| (server, true))
            }
        };
        other.ok_or_else(|| server.down())
    }

    /// Sends a request to the server of its key.
    #[inline]
    pub(super) fn start(&self, key: &[u8], request: &Request<'_>, deadline_us: Option<u64>) -> Result<Call, Error> {
        let ring = self.ring();
        let (server, is_spare) = self.pick(&ring, key)?;
        let link = server.link(key);
        match *request {
            Request::Write(write) if is_spare => link.submit(&Request::Write(self.shortened(write)), deadline_us),
            _ => link.submit(request, deadline_us),
        }
    }

    /// Sends one key of a retrieval to its server; `second_until_us` as in [`Link::ask`]. Whatever comes of it is told.
    pub(super) fn ask(&self, key: &[u8], want: Want, taker: &Taker, second_until_us: Option<u64>) {
        let asked = {
            let ring = self.ring();
            self.pick(&ring, key).and_then(|(server, _)| server.link(key).ask(key, want, taker, second_until_us))
        };
        if let Err(error) = asked {
            match self.miss_or(error) {
                Ok(_) => taker.tell(Ok(None)),
                Err(error) => taker.tell(Err(&error)),
            }
        }
    }

    /// The write with an expiry time that a spare server may keep.
    fn shortened<'a>(&self, write: Write<'a>) -> Write<'a> {
        let OnDown::Spare { ttl_seconds_max, .. } = self.config.on_down else { return write };
        let longest = i32::try_from(ttl_seconds_max).unwrap_or(i32::MAX).clamp(1, RELATIVE_SECONDS_MAX);
        // A date becomes the longest that is allowed: to know whether it comes earlier would take the servers' clock.
        let shorten = |exptime| if (1..longest).contains(&exptime) || exptime < 0 { exptime } else { longest };
        match write {
            Write::Store(store) => Write::Store(Store { exptime: shorten(store.exptime), ..store }),
            Write::Touch { key, exptime } => Write::Touch { key, exptime: shorten(exptime) },
            Write::Arith(arith) => {
                let initial = arith.initial.map(|(initial, exptime)| (initial, shorten(exptime)));
                Write::Arith(Arith { initial, ..arith })
            }
            Write::Delete { .. } => write,
        }
    }

    /// A read's answer. When the connection turns out to have ended, as it does when a server was restarted, the read is
    /// tried once more: it changes nothing.
    async fn read(&self, key: &[u8], request: &Request<'_>, deadline_us: Option<u64>) -> Result<Answer, Error> {
        let mut call = self.start(key, request, deadline_us)?;
        match (&mut call).await {
            Err(Error::Lost { .. }) => self.start(key, request, Some(call.deadline_us))?.await,
            answer => answer,
        }
    }

    pub(super) async fn retrieve(
        &self,
        key: &[u8],
        want: Want,
        touch: Option<i32>,
        deadline_us: Option<u64>,
    ) -> Result<Option<Item>, Error> {
        match self.read(key, &Request::Get { key, want, touch }, deadline_us).await {
            Ok(Answer::Item(item)) => Ok(item),
            Ok(answer) => unreachable!("a retrieval is not answered with {answer:?}"),
            Err(error) => self.miss_or(error),
        }
    }

    /// What a failed read is to the caller.
    pub(super) fn miss_or(&self, error: Error) -> Result<Option<Item>, Error> {
        match (&self.config.on_down, error) {
            (OnDown::Miss, Error::Down { .. }) => Ok(None),
            (_, error) => Err(error),
        }
    }

    pub(super) async fn retrieve_many(
        &self,
        keys: &[&[u8]],
        want: Want,
        touch: Option<i32>,
    ) -> Vec<Result<Option<Item>, Error>> {
        let mut results: Vec<Result<Option<Item>, Error>> = vec![Ok(None); keys.len()];
        let all: Vec<u32> = (0..keys.len() as u32).collect();
        let groups = self.start_many(keys, &all, &mut results, want, touch, None);
        let mut again = Vec::new();
        let mut deadline_us = u64::MAX;
        for (positions, mut call) in groups {
            match (&mut call).await {
                Err(Error::Lost { .. }) => {
                    again.extend(positions);
                    deadline_us = deadline_us.min(call.deadline_us);
                }
                answer => self.deal_out(&positions, answer, &mut results),
            }
        }
        if !again.is_empty() {
            for (positions, call) in self.start_many(keys, &again, &mut results, want, touch, Some(deadline_us)) {
                self.deal_out(&positions, call.await, &mut results);
            }
        }
        results
    }

    /// Sends the keys at these positions to their servers. What cannot be sent is an error in `results`.
    fn start_many(
        &self,
        keys: &[&[u8]],
        positions: &[u32],
        results: &mut [Result<Option<Item>, Error>],
        want: Want,
        touch: Option<i32>,
        deadline_us: Option<u64>,
    ) -> Vec<(Vec<u32>, Call)> {
        let ring = self.ring();
        let mut groups: Vec<(&Arc<Link>, Vec<u32>)> = Vec::new();
        for &position in positions {
            let key = keys[position as usize];
            let picked = wire::check_key(self.shared.spoken(), key).map_err(Error::Request);
            match picked.and_then(|()| self.pick(&ring, key)) {
                Ok((server, _)) => {
                    let link = server.link(key);
                    match groups.iter_mut().find(|(other, _)| Arc::ptr_eq(other, link)) {
                        Some((_, positions)) => positions.push(position),
                        None => groups.push((link, vec![position])),
                    }
                }
                Err(error) => results[position as usize] = self.miss_or(error),
            }
        }
        let mut calls = Vec::with_capacity(groups.len());
        let mut asked: Vec<&[u8]> = Vec::with_capacity(KEYS_PER_REQUEST);
        for (link, positions) in groups {
            for positions in positions.chunks(KEYS_PER_REQUEST) {
                asked.clear();
                asked.extend(positions.iter().map(|&position| keys[position as usize]));
                match link.submit(&Request::Many { keys: &asked, want, touch }, deadline_us) {
                    Ok(call) => calls.push((positions.to_vec(), call)),
                    Err(error) => self.deal_out(positions, Err(error), results),
                }
            }
        }
        calls
    }

    fn deal_out(&self, positions: &[u32], answer: Result<Answer, Error>, results: &mut [Result<Option<Item>, Error>]) {
        match answer {
            Ok(Answer::Items(items)) => {
                for (&position, item) in positions.iter().zip(items) {
                    results[position as usize] = Ok(item);
                }
            }
            Ok(answer) => unreachable!("a retrieval of several keys is not answered with {answer:?}"),
            Err(error) => {
                for &position in positions {
                    results[position as usize] = self.miss_or(error.clone());
                }
            }
        }
    }

    pub(super) async fn write(&self, write: Write<'_>, deadline_us: Option<u64>) -> Result<Written, Error> {
        self.check_value(&write)?;
        written(self.start(write.key(), &Request::Write(write), deadline_us)?).await
    }

    pub(super) fn check_value(&self, write: &Write<'_>) -> Result<(), Error> {
        let value_bytes_max = self.shared.limits.value_bytes_max;
        match write {
            Write::Store(Store { value, .. }) if value.len() > value_bytes_max => {
                Err(Error::ValueTooLong { value_bytes: value.len(), value_bytes_max })
            }
            _ => Ok(()),
        }
    }

    pub(super) async fn meta(&self, request: MetaRequest<'_>) -> Result<MetaAnswer, Error> {
        let value_bytes_max = self.shared.limits.value_bytes_max;
        if request.value.len() > value_bytes_max {
            return Err(Error::ValueTooLong { value_bytes: request.value.len(), value_bytes_max });
        }
        // `mg` with N or T, and all the rest, change something.
        let changes = request.word != Word::Get && request.word != Word::Debug;
        let answer = if changes {
            self.start(request.key, &Request::Meta(request), None)?.await?
        } else {
            self.read(request.key, &Request::Meta(request), None).await?
        };
        match answer {
            Answer::Meta(answer) => Ok(answer),
            answer => unreachable!("a meta command is not answered with {answer:?}"),
        }
    }

    pub(super) async fn write_behind(&self, write: Write<'_>) -> Result<(), Error> {
        self.check_value(&write)?;
        let mut deadline_us = None;
        poll_fn(|context| {
            let ring = self.ring();
            let (server, is_spare) = self.pick(&ring, write.key())?;
            let write = if is_spare { self.shortened(write) } else { write };
            let taken = server.link(write.key()).submit_quiet(&write, context.waker())?;
            if taken {
                return Poll::Ready(Ok(()));
            }
            let now_us = self.shared.clock.look();
            if now_us >= *deadline_us.get_or_insert(now_us + self.shared.limits.timeout_us()) {
                let server = server.identity.label.clone();
                return Poll::Ready(Err(Error::Timeout { server, after: self.shared.limits.timeout }));
            }
            Poll::Pending
        })
        .await
    }
}

/// How a write went.
pub(super) async fn written(call: Call) -> Result<Written, Error> {
    match call.await? {
        Answer::Written(written) => Ok(written),
        answer => unreachable!("a write is not answered with {answer:?}"),
    }
}
