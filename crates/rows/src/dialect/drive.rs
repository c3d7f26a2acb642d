//! The event loop of one thread's connection over the network: it runs while that thread waits for the database, and stands
//! still in between.

use std::convert::Infallible;
use std::future::Future;
use std::time::Duration;

use tokio::runtime::{Builder, Runtime};

use crate::link::Fault;
use crate::shared::Shared;

/// One connection's event loop.
pub(crate) struct Drive {
    runtime: Runtime,
    /// How long one statement may take.
    budget: Duration,
}

impl Drive {
    pub(crate) fn new(budget: Duration) -> Result<Drive, String> {
        let runtime = Builder::new_current_thread().enable_all().build();
        Ok(Drive { runtime: runtime.map_err(|error| format!("no event loop can be made: {error}"))?, budget })
    }

    /// Waits for one statement.
    pub(crate) fn wait<T>(&self, statement: impl Future<Output = Result<T, Fault>>) -> Result<T, Fault> {
        let budget = self.budget;
        self.runtime.block_on(async {
            match tokio::time::timeout(budget, statement).await {
                Ok(done) => done,
                Err(_) => Err(Fault::Overdue(format!("no answer within {budget:?}"))),
            }
        })
    }
}

/// Has `follow` hear of changes, on an event loop of its own, until that is not possible any more or the table is closed; then
/// says why.
pub(crate) fn watch(shared: &Shared, follow: impl Future<Output = Result<Infallible, String>>) -> String {
    let drive = match Drive::new(shared.settings.timeout) {
        Ok(drive) => drive,
        Err(why) => return why,
    };
    drive.runtime.block_on(async {
        tokio::select! {
            () = shared.closing.closed() => "the table is closed".to_owned(),
            ended = follow => match ended {
                Err(why) => why,
                Ok(never) => match never {},
            },
        }
    })
}
