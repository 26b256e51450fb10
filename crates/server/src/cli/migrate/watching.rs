//! How far a migration is, for a person who watches, and when to stop.

use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use prombus_engine_mongo::Progress;
use tokio::task::JoinHandle;

use crate::cli::status_line::StatusLine;
use crate::cli::stopping::Stopping;

pub(super) struct Watching {
    line: Mutex<StatusLine>,
    is_asked_to_stop: Arc<AtomicBool>,
    listening: JoinHandle<()>,
}

impl Watching {
    pub(super) fn new(line: StatusLine, mut stopping: Stopping) -> Self {
        let is_asked_to_stop = Arc::new(AtomicBool::new(false));
        let asked = Arc::clone(&is_asked_to_stop);
        let listening = tokio::spawn(async move {
            stopping.asked().await;
            asked.store(true, Ordering::SeqCst);
        });
        Self { line: Mutex::new(line), is_asked_to_stop, listening }
    }

    /// Shows how far it is, and says whether to go on.
    pub(super) fn see(&self, progress: &Progress<'_>) -> ControlFlow<()> {
        let mut line = self.line.lock().unwrap_or_else(PoisonError::into_inner);
        line.now_and_then(|_| {
            let Progress { step, done, total } = progress;
            match total {
                0 => format!("{step}"),
                total => format!("{}% ({done} of {total}): {step}", done * 100 / total),
            }
        });
        match self.is_asked_to_stop.load(Ordering::SeqCst) {
            true => ControlFlow::Break(()),
            false => ControlFlow::Continue(()),
        }
    }

    pub(super) fn say(&self, sentence: &str) {
        self.line.lock().unwrap_or_else(PoisonError::into_inner).say(sentence);
    }

    /// What is said next stands on a line of its own.
    pub(super) fn finish(&self) {
        self.listening.abort();
        self.line.lock().unwrap_or_else(PoisonError::into_inner).show("");
    }
}
