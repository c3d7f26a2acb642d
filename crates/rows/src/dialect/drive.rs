//! The event loop of one thread's connection over the network: it runs while that thread waits for the database, and stands
//! still in between.

use std::future::Future;
use std::time::Duration;

use tokio::runtime::{Builder, Runtime};

use crate::link::Fault;

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

    /// Waits for something that has no end of its own.
    pub(crate) fn go<T>(&self, task: impl Future<Output = T>) -> T {
        self.runtime.block_on(task)
    }
}
