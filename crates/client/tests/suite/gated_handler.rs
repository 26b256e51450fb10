//! Handlers that wait until they are told to end.

use std::sync::Arc;

use prombus_client::Received;
use tokio::sync::Notify;

use crate::harness::Ledger;

/// What handlers wait for, and what they were given. Clones share it.
#[derive(Clone)]
pub(crate) struct HeldUp {
    pub(crate) begun: Ledger<u64>,
    may_end: Arc<Notify>,
}

impl HeldUp {
    pub(crate) fn new() -> Self {
        Self { begun: Ledger::new(), may_end: Arc::default() }
    }

    /// What a handler does with an event: notes it, and waits.
    pub(crate) async fn handle(&self, event: &Received<u64>) {
        self.begun.write(event.payload);
        self.wait().await;
    }

    pub(crate) async fn wait(&self) {
        self.may_end.notified().await;
    }

    /// Lets one of them end, now or when it begins to wait.
    pub(crate) fn let_one_end(&self) {
        self.may_end.notify_one();
    }
}
