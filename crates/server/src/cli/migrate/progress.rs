//! Progress of a migration, and its cancellation by a stop signal.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;
use prombus_engine_mongo::Progress;
use tokio::task::JoinHandle;

use crate::cli::status_line::StatusLine;
use crate::cli::stop_signal::StopSignal;

pub(super) struct MigrationProgress {
    line: Mutex<StatusLine>,
    is_stopped: Arc<AtomicBool>,
    signal_task: JoinHandle<()>,
}

impl MigrationProgress {
    pub(super) fn new(line: StatusLine, mut stop_signal: StopSignal) -> Self {
        let is_stopped = Arc::new(AtomicBool::new(false));
        let flag = Arc::clone(&is_stopped);
        let signal_task = tokio::spawn(async move {
            stop_signal.recv().await;
            flag.store(true, Ordering::SeqCst);
        });
        Self { line: Mutex::new(line), is_stopped, signal_task }
    }

    /// Shows the progress. Breaks after a stop signal.
    pub(super) fn report(&self, progress: &Progress<'_>) -> ControlFlow<()> {
        self.line.lock().update(|_| {
            let Progress { step, done, total } = progress;
            match total {
                0 => format!("{step}"),
                total => format!("{}% ({done} of {total}): {step}", done * 100 / total),
            }
        });
        match self.is_stopped.load(Ordering::SeqCst) {
            true => ControlFlow::Break(()),
            false => ControlFlow::Continue(()),
        }
    }

    pub(super) fn println(&self, message: &str) {
        self.line.lock().println(message);
    }

    /// Erases the status line.
    pub(super) fn finish(&self) {
        self.signal_task.abort();
        self.line.lock().set("");
    }
}
