//! The workers there are: starting, dismissing and ending them, and handing them connections in turn. Owned by the
//! control thread; what a worker does is in `worker`.
//!
//! Wanted are always those with the lowest numbers. A worker that is not wanted any more gets no new connection and
//! lives until the ones it has are closed; wanted again before that, it goes on.

use std::io;
use std::net::UdpSocket;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::mpsc::UnboundedSender;
use tokio::sync::watch;

use crate::log::Level;
use crate::settings::WORKERS_MAX;
use crate::shared::{Listener, Live, Shared};
use crate::worker::{self, Accepted, Message, WorkerHandle};

/// All workers.
pub(crate) struct Crew {
    shared: Arc<Shared>,
    /// By number; those up to `wanted` are there.
    workers: Vec<Option<WorkerHandle>>,
    wanted: usize,
    hand_out: Arc<HandOut>,
}

/// Gives connections to workers in turn, over all listeners together.
#[derive(Default)]
pub(crate) struct HandOut {
    inboxes: Mutex<Vec<UnboundedSender<Message>>>,
    turn: AtomicUsize,
}

impl HandOut {
    pub(crate) fn give(&self, accepted: Accepted) {
        let inboxes = self.inboxes.lock().unwrap_or_else(PoisonError::into_inner);
        let turn = self.turn.fetch_add(1, Ordering::Relaxed);
        // A worker that is gone drops the message, which closes the socket; that happens only while stopping.
        let _ = inboxes[turn % inboxes.len()].send(Message::Connection(accepted));
    }
}

impl Crew {
    /// Starts `wanted` workers, or none.
    pub(crate) fn start(shared: &Arc<Shared>, live: &Live, wanted: usize) -> io::Result<Crew> {
        let mut crew = Crew { shared: Arc::clone(shared), workers: Vec::new(), wanted: 0, hand_out: Arc::default() };
        match crew.resize(live, wanted) {
            Ok(()) => Ok(crew),
            Err(error) => {
                crew.stop();
                Err(error)
            }
        }
    }

    /// Where accepted connections go.
    pub(crate) fn hand_out(&self) -> &Arc<HandOut> {
        &self.hand_out
    }

    /// How many workers are wanted and there.
    pub(crate) fn wanted(&self) -> usize {
        self.wanted
    }

    /// Has `wanted` workers serve new connections. On an error there are as many as could be started, but no fewer than
    /// before. Workers that there are follow `live` already: see [`Crew::tell`].
    pub(crate) fn resize(&mut self, live: &Live, wanted: usize) -> io::Result<()> {
        let wanted = wanted.clamp(1, WORKERS_MAX);
        let mut outcome = Ok(());
        for number in 0..wanted {
            if let Err(error) = self.man(live, number) {
                outcome = Err(error);
                self.wanted = self.wanted.max(number);
                break;
            }
        }
        if outcome.is_ok() {
            self.wanted = wanted;
        }
        let inboxes = self.workers[..self.wanted].iter().flatten().map(|worker| worker.inbox.clone()).collect();
        *self.hand_out.inboxes.lock().unwrap_or_else(PoisonError::into_inner) = inboxes;
        self.dismiss_unwanted();
        outcome
    }

    /// Has a worker at `number`: the one that is there, or a new one.
    fn man(&mut self, live: &Live, number: usize) -> io::Result<()> {
        self.workers.resize_with(self.workers.len().max(number + 1), || None);
        if self.workers[number].as_ref().is_some_and(|worker| worker.post.recall()) {
            return Ok(());
        }
        if let Some(left) = self.workers[number].take() {
            self.join(left);
        }
        self.workers[number] = Some(worker::start(&self.shared, live, number)?);
        Ok(())
    }

    /// Has workers that are not wanted end if they have nothing to do. Called once a second as well.
    pub(crate) fn dismiss_unwanted(&mut self) {
        for number in self.wanted..self.workers.len() {
            let Some(worker) = &self.workers[number] else { continue };
            match worker.post.dismiss() {
                Some(round) => {
                    let _ = worker.inbox.send(Message::EndIfIdle(round));
                }
                None => {
                    if let Some(left) = self.workers[number].take() {
                        self.join(left);
                    }
                }
            }
        }
    }

    /// Sends every worker its copy of `live`. What is sent to a worker after this is served with it.
    pub(crate) fn tell(&self, live: &Live) {
        for worker in self.workers.iter().flatten() {
            // A worker that has left needs no settings.
            let _ = worker.inbox.send(Message::Reload(Arc::new(live.clone())));
        }
    }

    /// Has one of the workers, chosen by `turn`, serve a UDP socket until what is returned is true or gone. It is closed when the
    /// socket is.
    pub(crate) fn serve_datagrams(
        &self,
        turn: usize,
        socket: UdpSocket,
        listener: Arc<Listener>,
    ) -> watch::Sender<bool> {
        let (until, ended) = watch::channel(false);
        if let Some(worker) = &self.workers[turn % self.wanted] {
            let _ = worker.inbox.send(Message::Datagrams(socket, listener, ended));
        }
        until
    }

    /// Lets every worker finish what is in flight, and waits until they have ended.
    pub(crate) fn stop(&mut self) {
        for worker in self.workers.iter().flatten() {
            let _ = worker.inbox.send(Message::Stop);
        }
        for worker in std::mem::take(&mut self.workers).into_iter().flatten() {
            self.join(worker);
        }
    }

    fn join(&self, worker: WorkerHandle) {
        if worker.thread.join().is_err() {
            self.shared.log.line(Level::Error, format_args!("a worker ended by a panic"));
        }
    }
}
