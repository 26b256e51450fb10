//! Being asked to stop, by whoever runs a command.

use tokio::signal::unix::{Signal, SignalKind, signal};

/// ctrl-c, or a polite kill.
pub(super) struct Stopping {
    interrupt: Signal,
    terminate: Signal,
}

impl Stopping {
    pub(super) fn new() -> std::io::Result<Self> {
        let interrupt = signal(SignalKind::interrupt())?;
        Ok(Self { interrupt, terminate: signal(SignalKind::terminate())? })
    }

    pub(super) async fn asked(&mut self) {
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
        }
    }
}
