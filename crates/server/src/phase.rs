//! What the server tells all its connections.

use tokio::sync::watch;

/// Watched by every connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    /// Each reload of tokens and keys counts: connections check what their client presented again.
    Serving {
        reloads: u64,
    },
    Stopping,
}

impl Phase {
    pub(crate) const START: Self = Self::Serving { reloads: 0 };

    pub(crate) fn is_stopping(self) -> bool {
        self == Self::Stopping
    }
}

/// Waits for a phase other than `seen`.
pub(crate) async fn next_phase(phases: &mut watch::Receiver<Phase>, seen: Phase) -> Phase {
    // An error means that the server is gone, which is the same as a stop.
    phases.wait_for(|phase| *phase != seen).await.map_or(Phase::Stopping, |phase| *phase)
}
