//! The event loop of one thread: it runs while that thread waits for the database, and stands still in between.

use std::convert::Infallible;
use std::future::Future;

use tokio::runtime::{Builder, Runtime};

use crate::shared::Shared;
use crate::watch::Unheard;

/// One thread's event loop.
pub(crate) struct Drive(Runtime);

impl Drive {
    pub(crate) fn new() -> Result<Drive, String> {
        let runtime = Builder::new_current_thread().enable_all().build();
        Ok(Drive(runtime.map_err(|error| format!("no event loop can be made: {error}"))?))
    }

    /// Waits for what is asked of a database.
    pub(crate) fn wait<T>(&self, asked: impl Future<Output = T>) -> T {
        self.0.block_on(asked)
    }
}

/// Has `follow` hear of changes, on an event loop of its own, until that is not possible any more or the table is closed; then
/// says why.
pub(crate) fn watch(shared: &Shared, follow: impl Future<Output = Result<Infallible, Unheard>>) -> Unheard {
    let drive = match Drive::new() {
        Ok(drive) => drive,
        Err(why) => return why.into(),
    };
    drive.wait(async {
        tokio::select! {
            () = shared.closing.closed() => "the table is closed".to_owned().into(),
            ended = follow => match ended {
                Err(why) => why,
                Ok(never) => match never {},
            },
        }
    })
}
