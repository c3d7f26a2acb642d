//! A task's own connection: made when it is first needed, made again after it was lost, with growing pauses between attempts.
//!
//! While the pause lasts, whoever asks is told at once why the database is away; nobody waits for a connection to be tried.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::budget::Ticks;
use crate::error::Error;
use crate::layout::Layout;
use crate::link::{Fault, Link};
use crate::shared::Shared;

const PAUSE_FIRST: Duration = Duration::from_millis(50);
const PAUSE_LAST: Duration = Duration::from_secs(2);

/// A connection that was not used for this long is asked whether it stands before it is trusted.
const TRUSTED_FOR: Duration = Duration::from_secs(1);

pub(crate) struct Attached {
    shared: Arc<Shared>,
    writes: bool,
    /// Who looks at the clock, on an event loop without timers.
    ticks: Option<Arc<Ticks>>,
    link: Option<Box<dyn Link>>,
    /// What the link was told that the mapping is.
    layout: Option<Arc<Layout>>,
    /// The database's number of the link's session, where it tells changes with it.
    session: Option<i64>,
    used: Instant,
    away: Option<Away>,
}

struct Away {
    why: Error,
    until: Instant,
    pause: Duration,
}

impl Attached {
    pub(crate) fn new(shared: Arc<Shared>, writes: bool, ticks: Option<Arc<Ticks>>) -> Attached {
        Attached { shared, writes, ticks, link: None, layout: None, session: None, used: Instant::now(), away: None }
    }

    /// The connection, checked and knowing the mapping.
    pub(crate) async fn link(&mut self) -> Result<&mut (dyn Link + 'static), Error> {
        let now = Instant::now();
        if self.link.is_some() && now.duration_since(self.used) > TRUSTED_FOR {
            let stands = match &mut self.link {
                Some(link) => link.check().await.is_ok(),
                None => false,
            };
            if !stands {
                self.lose();
            }
        }
        if self.link.is_none() {
            if let Some(away) = self.away.as_ref().filter(|away| now < away.until) {
                return Err(away.why.clone());
            }
            match self.connect().await {
                Ok(link) => {
                    self.link = Some(link);
                    self.away = None;
                }
                Err(why) => {
                    self.pause(&why);
                    return Err(why);
                }
            }
        }
        self.look_again().await?;
        self.used = Instant::now();
        if let Some(session) = self.session {
            self.shared.watchers.uses_session(session, self.used);
        }
        self.link.as_deref_mut().ok_or_else(|| Error::Unreachable(format!("{}: no connection", self.shared.place())))
    }

    /// The same, with the mapping that it knows.
    pub(crate) async fn mapped(&mut self) -> Result<(&mut (dyn Link + 'static), Arc<Layout>), Error> {
        self.link().await?;
        match (&mut self.link, &self.layout) {
            (Some(link), Some(layout)) => Ok((&mut **link, Arc::clone(layout))),
            _ => Err(Error::Unreachable(format!("{}: it was not seen yet", self.shared.place()))),
        }
    }

    /// Whether the table is another than it was when it refused what was just asked: what was refused may then be asked again, where
    /// nothing of it has happened. Not within a transaction that the database has given up.
    pub(crate) async fn altered(&mut self) -> bool {
        self.shared.layout.doubt();
        let before = self.layout.clone();
        let looked = self.look_again().await.is_ok();
        let same = before.zip(self.layout.as_ref()).is_some_and(|(before, now)| Arc::ptr_eq(&before, now));
        looked && !same
    }

    /// Takes the table as it is now, where there was a doubt or another connection saw that it is another.
    async fn look_again(&mut self) -> Result<(), Error> {
        let Some(link) = &mut self.link else { return Ok(()) };
        if self.shared.layout.take_doubt() {
            match link.describe().await {
                // One that does not fit any more refuses what is asked of it, and is looked at again when it has.
                Ok(described) => drop(self.shared.fit(&described)),
                Err(fault) => return Err(self.fault(fault)),
            }
        }
        let seen = self.shared.layout.get();
        if let (Some(link), Some(seen)) = (&mut self.link, seen)
            && self.layout.as_ref().is_none_or(|layout| !Arc::ptr_eq(layout, &seen))
        {
            link.prepare(&seen);
            self.layout = Some(seen);
        }
        Ok(())
    }

    /// The connection there is, if there is one; none is made.
    pub(crate) fn standing(&mut self) -> Option<&mut (dyn Link + 'static)> {
        self.link.as_deref_mut()
    }

    /// The connection is of no use any more.
    pub(crate) fn lose(&mut self) {
        if self.link.take().is_some() {
            self.shared.counters.lost.add(1);
            if let Some(session) = self.session.take() {
                self.shared.watchers.ended_session(session);
            }
        }
    }

    async fn connect(&mut self) -> Result<Box<dyn Link>, Error> {
        let mut link = self.shared.dialect.connect(self.ticks.as_ref()).await?;
        self.shared.counters.connected.add(1);
        let layout = match self.shared.layout.get() {
            Some(layout) => layout,
            None => {
                let described = link.describe().await.map_err(|fault| self.shared.error(fault))?;
                self.shared.fit(&described)?
            }
        };
        link.prepare(&layout);
        self.layout = Some(layout);
        if self.writes {
            self.session = link.session().await.map_err(|fault| self.shared.error(fault))?;
        }
        Ok(link)
    }

    /// What a fault of this connection means to those who asked; a connection that is lost is let go.
    pub(crate) fn fault(&mut self, fault: Fault) -> Error {
        if matches!(fault, Fault::Lost(_) | Fault::Overdue(_) | Fault::Unready(_)) {
            self.lose();
        }
        if matches!(fault, Fault::Row(_) | Fault::Refused(_)) {
            self.shared.layout.doubt();
        }
        let is_unready = matches!(fault, Fault::Unready(_));
        let why = self.shared.error(fault);
        if is_unready {
            self.pause(&why);
        }
        why
    }

    /// Nobody tries again for a while.
    fn pause(&mut self, why: &Error) {
        let pause = self.away.as_ref().map_or(PAUSE_FIRST, |away| (away.pause * 2).min(PAUSE_LAST));
        self.away = Some(Away { why: why.clone(), until: Instant::now() + pause, pause });
    }
}

impl Drop for Attached {
    fn drop(&mut self) {
        if let Some(session) = self.session {
            self.shared.watchers.ended_session(session);
        }
    }
}
