//! The load itself: threads, their connections, and when each request is sent.
//!
//! In a closed loop a connection sends its next requests, as many as its depth, when the last are all answered. In an open
//! loop requests are due at fixed times whatever the server does; those that are due while a connection is full wait, and
//! their latency counts from when they were due, so that a stall of the server is seen by every request it held up.
//!
//! One thread drives its connections through one epoll. A turn of a connection is one receive and one send.

use std::collections::VecDeque;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::sync::{Condvar, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use rustix::buffer::spare_capacity;
use rustix::event::Timespec;
use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};
use rustix::net::sockopt::{Timeout, set_socket_timeout};

use crate::failure::Failure;
use crate::keys::{Chooser, Keys, Sizes, share};
use crate::pipe::{Lost, Pipe};
use crate::process::{self, Usage};
use crate::progress::Progress;
use crate::report::{Measured, Report};
use crate::settings::{Settings, Stop};
use crate::wire::{Codec, Tally};

/// Sets sent together while keys are stored before the run, and how many bytes of values they may have.
const PRELOAD_DEPTH: u32 = 32;
const PRELOAD_BYTES: u32 = 256 * 1024;

/// What one turn of a lone connection may send and receive without the help of epoll: well within what socket buffers hold,
/// so that neither side can wait for the other to read.
const DIRECT_BYTES_MAX: u64 = 64 * 1024;

/// How long after the end of an open loop what is still due may be sent.
const OVERTIME: Duration = Duration::from_secs(1);

/// Latencies are kept to three digits up to an hour.
const LATENCY_NS_MAX: u64 = 3_600_000_000_000;

/// Runs the load and says what came of it.
pub(crate) fn run(settings: &Settings) -> Result<Report, Failure> {
    let keys = Keys::new(
        settings.names(),
        Sizes::Drawn(settings.value_bytes.clone()),
        settings.ttl_seconds.clone(),
        settings.value_bytes.max(),
        settings.common.seed,
    );
    let shared = Shared {
        clock: Instant::now(),
        start: Gate::default(),
        aborted: AtomicBool::new(false),
        done: (0..settings.threads).map(|_| AtomicU64::new(0)).collect(),
    };
    let (notes, inbox) = mpsc::channel();
    thread::scope(|scope| {
        let threads: Vec<_> = (0..settings.threads)
            .map(|index| {
                let (keys, shared, notes) = (&keys, &shared, notes.clone());
                thread::Builder::new()
                    .name(format!("bench-{index}"))
                    .spawn_scoped(scope, move || work(settings, keys, shared, index, &notes))
                    .map_err(|error| Failure::run(format!("bench: expected to start thread {index}: {error}")))
            })
            .collect();
        drop(notes);
        let running = threads.iter().flatten().count();
        if running < threads.len() {
            shared.aborted.store(true, Ordering::Relaxed);
        }
        let mut progress = Progress::new(settings.common.quiet || settings.common.json, settings.stop());
        let count = || shared.done.iter().map(|done| done.load(Ordering::Relaxed)).sum();
        wait_for(&inbox, running, || progress.prepare(count(), u64::from(settings.keys)));
        let usage = || settings.common.server_pid.map(Usage::of).transpose();
        let (before, own_before_ns) = (usage(), process::own_cpu_ns());
        if before.is_err() {
            shared.aborted.store(true, Ordering::Relaxed);
        }
        shared.done.iter().for_each(|done| done.store(0, Ordering::Relaxed));
        let began_ns = shared.now_ns();
        shared.start.open();
        wait_for(&inbox, running, || progress.running(count()));
        let (after, own_after_ns) = (usage(), process::own_cpu_ns());
        progress.finish();

        let mut outcomes = Vec::new();
        for thread in threads {
            match thread?.join() {
                Ok(outcome) => outcomes.push(outcome),
                Err(panic) => std::panic::resume_unwind(panic),
            }
        }
        // One connection's end often takes others along: the first sentence is the cause.
        if let Some(lost) = outcomes.iter().find_map(|outcome| outcome.as_ref().err().filter(|lost| !lost.is_empty())) {
            return Err(Failure::run(format!("bench: {lost}")));
        }
        let mut measured = Measured::new(began_ns);
        for outcome in outcomes.into_iter().flatten() {
            measured.tally.add(outcome.tally);
            measured.ended_ns = measured.ended_ns.max(outcome.ended_ns);
            measured.unsent += outcome.unsent;
            measured.latencies.add(&outcome.latencies).expect("all threads keep the same range");
        }
        measured.own_cpu_ns = own_after_ns - own_before_ns;
        measured.server = before?.zip(after?);
        Ok(Report::new(settings, &measured))
    })
}

/// Waits until `count` threads have said something, calling `each_second` meanwhile.
fn wait_for(inbox: &mpsc::Receiver<()>, count: usize, mut each_second: impl FnMut()) {
    let mut said = 0;
    while said < count {
        match inbox.recv_timeout(Duration::from_secs(1)) {
            Ok(()) => said += 1,
            Err(RecvTimeoutError::Timeout) => each_second(),
            Err(RecvTimeoutError::Disconnected) => return,
        }
    }
}

/// What the threads share.
struct Shared {
    clock: Instant,
    start: Gate,
    aborted: AtomicBool,
    /// Requests of each thread, for progress.
    done: Vec<AtomicU64>,
}

impl Shared {
    fn now_ns(&self) -> u64 {
        self.clock.elapsed().as_nanos() as u64
    }
}

/// Where threads wait until all are ready.
#[derive(Default)]
struct Gate {
    is_open: Mutex<bool>,
    opened: Condvar,
}

impl Gate {
    fn wait(&self) {
        let is_open = self.is_open.lock().unwrap_or_else(PoisonError::into_inner);
        drop(self.opened.wait_while(is_open, |is_open| !*is_open));
    }

    fn open(&self) {
        *self.is_open.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.opened.notify_all();
    }
}

/// What a thread has to tell.
struct Outcome {
    tally: Tally,
    latencies: Histogram<u64>,
    ended_ns: u64,
    unsent: u64,
}

/// A histogram for latencies in nanoseconds.
pub(crate) fn latencies() -> Histogram<u64> {
    Histogram::new_with_bounds(1, LATENCY_NS_MAX, 3).expect("the bounds are in order")
}

fn work(settings: &Settings, keys: &Keys, shared: &Shared, index: u32, notes: &Sender<()>) -> Result<Outcome, Lost> {
    let ready = Thread::prepare(settings, keys, shared, index);
    if ready.is_err() {
        shared.aborted.store(true, Ordering::Relaxed);
    }
    let _ = notes.send(());
    shared.start.wait();
    let outcome = ready.and_then(Thread::measure);
    if outcome.is_err() {
        shared.aborted.store(true, Ordering::Relaxed);
    }
    let _ = notes.send(());
    outcome
}

/// One connection and what it still has to do.
struct Lane {
    pipe: Pipe,
    number: u32,
    chooser: Chooser,
    /// Requests it may still send.
    remaining: u64,
    /// Keys to store before the run: from the first to before the last.
    preload: (u32, u32),
    /// When requests of an open loop are due.
    due: VecDeque<u64>,
    missed: Vec<u32>,
    /// Whether epoll watches for room to send.
    wants_room: bool,
}

/// What the connections are doing.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Job {
    Preload,
    Load { until_ns: u64 },
}

/// When an open loop's requests are due, and on which connection.
struct Schedule {
    due_ns: f64,
    interval_ns: f64,
    until_ns: f64,
    poisson: bool,
    left: u64,
    lane: usize,
}

impl Schedule {
    fn new(thread: &Thread<'_>, rate: f64, until_ns: u64) -> Schedule {
        // Threads share the rate as they share the connections, each beginning a part of an interval later.
        let settings = thread.settings;
        let interval_ns = 1e9 / rate * f64::from(settings.connections) / thread.lanes.len() as f64;
        let offset = f64::from(thread.index) / f64::from(settings.threads);
        Schedule {
            due_ns: thread.shared.now_ns() as f64 + interval_ns * offset,
            interval_ns,
            until_ns: until_ns as f64,
            poisson: settings.poisson,
            left: thread.lanes.iter().map(|lane| lane.remaining).fold(0, u64::saturating_add),
            lane: 0,
        }
    }

    /// Notes the next request that is due by now with its connection, and says which that is.
    fn next(&mut self, lanes: &mut [Lane], now_ns: u64) -> Option<usize> {
        if self.is_over() || self.due_ns > now_ns as f64 {
            return None;
        }
        // A count that does not divide evenly leaves some connections without a last request.
        while lanes[self.lane].remaining == 0 {
            self.lane = (self.lane + 1) % lanes.len();
        }
        let index = self.lane;
        lanes[index].remaining -= 1;
        lanes[index].due.push_back(self.due_ns as u64);
        self.left -= 1;
        self.lane = (index + 1) % lanes.len();
        self.due_ns += self.interval_ns * if self.poisson { lanes[0].chooser.exponential() } else { 1.0 };
        Some(index)
    }

    fn is_over(&self) -> bool {
        self.left == 0 || self.due_ns >= self.until_ns
    }
}

/// One thread with its connections.
struct Thread<'a> {
    settings: &'a Settings,
    keys: &'a Keys,
    shared: &'a Shared,
    index: u32,
    codec: Codec,
    lanes: Vec<Lane>,
    epoll: OwnedFd,
    events: Vec<Event>,
    ids: Vec<u32>,
    tally: Tally,
    latencies: Histogram<u64>,
    unsent: u64,
}

impl<'a> Thread<'a> {
    /// Connects, stores the keys and warms up.
    fn prepare(settings: &'a Settings, keys: &'a Keys, shared: &'a Shared, index: u32) -> Result<Thread<'a>, Lost> {
        let epoll = epoll::create(CreateFlags::CLOEXEC).map_err(|errno| format!("expected an epoll: {errno}"))?;
        // Sleeps of the open loop end when they should, not up to 50 us later.
        let _ = rustix::thread::set_current_timer_slack(std::num::NonZeroU64::new(1));
        let (first, end) = share(settings.connections, index, settings.threads);
        let mut lanes = Vec::new();
        for number in first..end {
            let lane = Lane::open(settings, number)?;
            epoll::add(&epoll, &lane.pipe, EventData::new_u64(lanes.len() as u64), EventFlags::IN)
                .map_err(|errno| format!("expected to watch connection {number}: {errno}"))?;
            lanes.push(lane);
        }
        let mut thread = Thread {
            settings,
            keys,
            shared,
            index,
            codec: Codec::new(settings.common.protocol, settings.common.verify),
            events: Vec::with_capacity(lanes.len().clamp(1, 1024)),
            lanes,
            epoll,
            ids: Vec::with_capacity(settings.width as usize),
            tally: Tally::default(),
            latencies: latencies(),
            unsent: 0,
        };
        if settings.preloads() {
            thread.closed(Job::Preload)?;
            if thread.tally.errors > 0 {
                let first = thread.tally.first_problem.take().unwrap_or_default();
                return Err(format!("{} of {} keys could not be stored: {first}", thread.tally.errors, settings.keys));
            }
            thread.forget();
        }
        if settings.warmup_seconds > 0.0 {
            thread.load(settings.warmup_seconds)?;
            thread.forget();
        }
        Ok(thread)
    }

    /// The run that counts.
    fn measure(mut self) -> Result<Outcome, Lost> {
        if self.shared.aborted.load(Ordering::Relaxed) {
            return Err(Lost::new());
        }
        match self.settings.stop() {
            Stop::Seconds(seconds) => self.load(seconds)?,
            Stop::Requests(count) => {
                // Shared out like the keys, so that as many requests as keys, in sequence, meet each key once.
                let at =
                    |lane: u32| (u128::from(count) * u128::from(lane) / u128::from(self.settings.connections)) as u64;
                for lane in &mut self.lanes {
                    lane.remaining = at(lane.number + 1) - at(lane.number);
                }
                self.load(f64::INFINITY)?;
            }
        }
        let ended_ns = self.shared.now_ns();
        Ok(Outcome { tally: self.tally, latencies: self.latencies, ended_ns, unsent: self.unsent })
    }

    fn forget(&mut self) {
        self.tally = Tally::default();
        self.latencies.reset();
        self.unsent = 0;
    }

    fn load(&mut self, seconds: f64) -> Result<(), Lost> {
        let until_ns = self.shared.now_ns().saturating_add((seconds * 1e9) as u64);
        match self.settings.rate {
            None => self.closed(Job::Load { until_ns }),
            Some(rate) => self.open(rate, until_ns),
        }
    }

    // ---- closed loop ------------------------------------------------------------------------------------------------------------

    fn closed(&mut self, job: Job) -> Result<(), Lost> {
        let now_ns = self.shared.now_ns();
        let mut busy = 0;
        for lane in 0..self.lanes.len() {
            self.fill(lane, job, now_ns);
            busy += usize::from(self.lanes[lane].pipe.in_flight() > 0);
        }
        if self.lanes.len() == 1 && self.fits_direct() {
            return self.direct(job);
        }
        for lane in 0..self.lanes.len() {
            self.send(lane)?;
        }
        while busy > 0 {
            self.wait(Some(Duration::from_secs_f64(self.settings.timeout_seconds)))?;
            if self.events.is_empty() {
                return Err(format!("no answer came within {} s", self.settings.timeout_seconds));
            }
            for event in 0..self.events.len() {
                let lane = self.events[event].data.u64() as usize;
                let was_busy = self.lanes[lane].pipe.in_flight() > 0;
                let now_ns = self.turn(lane)?;
                if was_busy && self.lanes[lane].pipe.in_flight() == 0 {
                    self.fill(lane, job, now_ns);
                    busy -= usize::from(self.lanes[lane].pipe.in_flight() == 0);
                }
                self.send(lane)?;
            }
            self.publish()?;
        }
        Ok(())
    }

    /// A lone connection needs no epoll: it waits in the receive itself.
    fn direct(&mut self, job: Job) -> Result<(), Lost> {
        while self.lanes[0].pipe.in_flight() > 0 {
            let lane = &mut self.lanes[0];
            let exchanged = lane.pipe.send(true).and_then(|()| lane.pipe.receive(true));
            exchanged.map_err(|lost| self.on(0, &lost))?;
            let now_ns = self.answers(0)?;
            if self.lanes[0].pipe.in_flight() == 0 {
                self.fill(0, job, now_ns);
            }
            self.publish()?;
        }
        Ok(())
    }

    fn fits_direct(&self) -> bool {
        let settings = self.settings;
        let each = u64::from(settings.value_bytes.max()) + u64::from(settings.key_bytes.max()) + 64;
        let depth = u64::from(settings.depth.max(PRELOAD_DEPTH));
        each * depth * u64::from(settings.width) <= DIRECT_BYTES_MAX
    }

    /// Queues the next requests of a connection whose last are all answered.
    fn fill(&mut self, lane: usize, job: Job, now_ns: u64) {
        let lane = &mut self.lanes[lane];
        match job {
            Job::Preload => {
                let depth = PRELOAD_DEPTH.min(PRELOAD_BYTES / self.settings.value_bytes.max().max(1)).max(1);
                let (next, end) = lane.preload;
                let last = next.saturating_add(depth).min(end);
                for id in next..last {
                    lane.pipe.set(&self.codec, self.keys, id, self.keys.ttl_seconds(id), now_ns);
                }
                lane.preload.0 = last;
            }
            Job::Load { until_ns } if now_ns < until_ns => {
                let count = lane.remaining.min(u64::from(self.settings.depth));
                lane.remaining -= count;
                for _ in 0..count {
                    lane.queue(self.settings, &self.codec, self.keys, &mut self.ids, now_ns);
                }
            }
            Job::Load { .. } => {}
        }
    }

    // ---- open loop --------------------------------------------------------------------------------------------------------------

    fn open(&mut self, rate: f64, until_ns: u64) -> Result<(), Lost> {
        let timeout_ns = (self.settings.timeout_seconds * 1e9) as u64;
        let overtime_ns = until_ns.saturating_add(OVERTIME.as_nanos() as u64);
        let mut schedule = Schedule::new(self, rate, until_ns);
        let mut heard_ns = self.shared.now_ns();
        loop {
            let now_ns = self.shared.now_ns();
            while let Some(lane) = schedule.next(&mut self.lanes, now_ns) {
                self.pump(lane)?;
            }
            let in_flight: usize = self.lanes.iter().map(|lane| lane.pipe.in_flight()).sum();
            if in_flight == 0 {
                if schedule.is_over() {
                    return Ok(());
                }
                heard_ns = now_ns;
            }
            if now_ns > heard_ns + timeout_ns {
                return Err(format!("no answer came within {} s", self.settings.timeout_seconds));
            }
            if now_ns > overtime_ns {
                for lane in &mut self.lanes {
                    self.unsent += lane.due.len() as u64;
                    lane.due.clear();
                }
            }
            let wake_ns = if schedule.is_over() { now_ns + 100_000_000 } else { schedule.due_ns as u64 };
            let wake_ns = wake_ns.min(heard_ns + timeout_ns + 1);
            self.wait(Some(Duration::from_nanos(wake_ns.saturating_sub(self.shared.now_ns()))))?;
            for event in 0..self.events.len() {
                let lane = self.events[event].data.u64() as usize;
                heard_ns = self.turn(lane)?;
                self.pump(lane)?;
            }
            self.publish()?;
        }
    }

    /// Sends what is due on a connection, as far as its depth allows.
    fn pump(&mut self, index: usize) -> Result<(), Lost> {
        let lane = &mut self.lanes[index];
        while lane.pipe.in_flight() < self.settings.depth as usize
            && let Some(due_ns) = lane.due.pop_front()
        {
            lane.queue(self.settings, &self.codec, self.keys, &mut self.ids, due_ns);
        }
        self.send(index)
    }

    // ---- both -------------------------------------------------------------------------------------------------------------------

    /// Takes what a connection has received. Returns the time.
    fn turn(&mut self, index: usize) -> Result<u64, Lost> {
        let received = self.lanes[index].pipe.receive(false).map_err(|lost| self.on(index, &lost))?;
        if received == 0 {
            return Ok(self.shared.now_ns());
        }
        self.answers(index)
    }

    /// Reads answers and notes how long they took. Returns the time.
    fn answers(&mut self, index: usize) -> Result<u64, Lost> {
        let now_ns = self.shared.now_ns();
        let lane = &mut self.lanes[index];
        let missed = if self.settings.fill_misses { Some(&mut lane.missed) } else { None };
        let latencies = &mut self.latencies;
        let answered = lane.pipe.answers(&mut self.codec, self.keys, &mut self.tally, missed, |asked| {
            latencies.saturating_record(now_ns.saturating_sub(asked.started_ns).max(1));
        });
        match answered {
            Ok(_) => Ok(now_ns),
            Err(lost) => Err(self.on(index, &lost)),
        }
    }

    fn on(&self, index: usize, lost: &str) -> Lost {
        format!("connection {} of {}: {lost}", self.lanes[index].number + 1, self.settings.connections)
    }

    /// Sends what is queued; what the socket does not take, epoll reports when it will.
    fn send(&mut self, index: usize) -> Result<(), Lost> {
        let lane = &mut self.lanes[index];
        if !lane.pipe.has_output() && !lane.wants_room {
            return Ok(());
        }
        if let Err(lost) = lane.pipe.send(false) {
            return Err(self.on(index, &lost));
        }
        if lane.wants_room != lane.pipe.has_output() {
            lane.wants_room = lane.pipe.has_output();
            let flags = if lane.wants_room { EventFlags::IN | EventFlags::OUT } else { EventFlags::IN };
            epoll::modify(&self.epoll, &lane.pipe, EventData::new_u64(index as u64), flags)
                .map_err(|errno| format!("expected to watch connection {}: {errno}", lane.number))?;
        }
        Ok(())
    }

    fn wait(&mut self, timeout: Option<Duration>) -> Result<(), Lost> {
        self.events.clear();
        let timeout = timeout.map(|time| Timespec::try_from(time).unwrap_or(Timespec { tv_sec: 3600, tv_nsec: 0 }));
        match epoll::wait(&self.epoll, spare_capacity(&mut self.events), timeout.as_ref()) {
            Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
            Err(errno) => Err(format!("expected to wait for answers: {errno}")),
        }
    }

    /// Tells the others how far this thread is, and hears whether one of them failed.
    fn publish(&self) -> Result<(), Lost> {
        self.shared.done[self.index as usize].store(self.tally.requests, Ordering::Relaxed);
        if self.shared.aborted.load(Ordering::Relaxed) { Err(Lost::new()) } else { Ok(()) }
    }
}

impl Lane {
    fn open(settings: &Settings, number: u32) -> Result<Lane, Lost> {
        let socket = settings.common.server.connect().map_err(|error| {
            format!("expected to connect to {} (connection {}): {error}", settings.common.server, number + 1)
        })?;
        let timeout = Duration::from_secs_f64(settings.timeout_seconds);
        set_socket_timeout(&socket, Timeout::Recv, Some(timeout))
            .and_then(|()| set_socket_timeout(&socket, Timeout::Send, Some(timeout)))
            .map_err(|errno| format!("expected to set a time limit: {errno}"))?;
        Ok(Lane {
            pipe: Pipe::new(socket),
            number,
            chooser: Chooser::new(settings.order, settings.keys, settings.common.seed, number, settings.connections),
            remaining: u64::MAX,
            preload: share(settings.keys, number, settings.connections),
            due: VecDeque::new(),
            missed: Vec::new(),
            wants_room: false,
        })
    }

    /// Queues one request of the mix.
    fn queue(&mut self, settings: &Settings, codec: &Codec, keys: &Keys, ids: &mut Vec<u32>, started_ns: u64) {
        if let Some(id) = self.missed.pop() {
            return self.pipe.set(codec, keys, id, keys.ttl_seconds(id), started_ns);
        }
        let [sets, gets, deletes] = settings.mix;
        let total = sets + gets + deletes;
        // Where there is but one kind nothing is drawn.
        let drawn = if total == sets.max(gets).max(deletes) { 0 } else { self.chooser.below(total) };
        if gets > 0 && drawn < gets {
            ids.clear();
            ids.extend((0..settings.width).map(|_| self.chooser.key()));
            self.pipe.get(codec, keys, ids, started_ns);
        } else if sets > 0 && drawn < gets + sets {
            let id = self.chooser.key();
            self.pipe.set(codec, keys, id, keys.ttl_seconds(id), started_ns);
        } else {
            let id = self.chooser.key();
            self.pipe.delete(codec, keys, id, started_ns);
        }
    }
}
