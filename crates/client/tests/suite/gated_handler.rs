//! Handlers that wait until the test releases them.

use std::sync::Arc;

use prombus_client::Received;
use tokio::sync::Notify;

use crate::harness::Ledger;

/// Records the events that handlers started with, and blocks the handlers. Clones share it.
#[derive(Clone)]
pub(crate) struct GatedHandler {
    pub(crate) started: Ledger<u64>,
    released: Arc<Notify>,
}

impl GatedHandler {
    pub(crate) fn new() -> Self {
        Self { started: Ledger::new(), released: Arc::default() }
    }

    /// Records the event and waits.
    pub(crate) async fn handle(&self, event: &Received<u64>) {
        self.started.write(event.payload);
        self.wait().await;
    }

    pub(crate) async fn wait(&self) {
        self.released.notified().await;
    }

    /// Releases one handler, now or when it starts to wait.
    pub(crate) fn release_one(&self) {
        self.released.notify_one();
    }
}
