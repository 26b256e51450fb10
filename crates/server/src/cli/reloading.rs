//! When the server reloads tokens, keys and certificates: on SIGHUP, and when their files change.

use std::io::{self, IsTerminal};
use std::sync::Arc;
use std::time::Duration;

use prombus_server::reload::{Reloadable, Reloader};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::task::spawn_blocking;
use tokio::time::{MissedTickBehavior, interval};

/// How often the server looks whether a file has changed.
const LOOK_INTERVAL: Duration = Duration::from_secs(5);

/// SIGHUP: a request to reload, unless the terminal of the server was closed.
pub(super) struct HangupSignal {
    hangup: Signal,
    has_terminal: bool,
}

impl HangupSignal {
    /// Starts to listen: from now on, the signal no longer ends the process.
    pub(super) fn new() -> io::Result<Self> {
        let hangup = signal(SignalKind::hangup())?;
        Ok(Self { hangup, has_terminal: io::stdout().is_terminal() })
    }

    fn lost_terminal(&self) -> bool {
        self.has_terminal && !io::stdout().is_terminal()
    }
}

/// Reloads until the terminal of the server is closed.
pub(super) async fn keep_reloading(
    mut reloader: Reloader,
    target: Arc<Reloadable>,
    mut hangup: HangupSignal,
) {
    let mut look = interval(LOOK_INTERVAL);
    look.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        let is_requested = tokio::select! {
            _ = hangup.hangup.recv() => true,
            _ = look.tick() => false,
        };
        if is_requested && hangup.lost_terminal() {
            return;
        }
        let target = Arc::clone(&target);
        // Files may be on a slow disk, and this thread serves connections.
        let reloading = spawn_blocking(move || {
            if is_requested {
                tracing::info!("received SIGHUP; reloading");
                reloader.reload(&target);
            } else {
                reloader.reload_if_changed(&target);
            }
            reloader
        });
        reloader = match reloading.await {
            Ok(reloader) => reloader,
            // The panic was logged, or the runtime is shutting down.
            Err(error) => panic!("reloading has ended: {error}"),
        };
    }
}
