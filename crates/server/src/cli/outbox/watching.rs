//! What a worker does, for a person who watches.

use std::sync::{Arc, Mutex, PoisonError};

use prombus_outbox::Notice;

use crate::cli::status_line::StatusLine;

/// A status line, and sentences that stay.
#[derive(Clone)]
pub(super) struct Watching(Arc<Mutex<Watched>>);

struct Watched {
    line: StatusLine,
    sent: u64,
    errors: u64,
    /// Said once, however often it happens in a row.
    is_in_trouble: bool,
}

impl Watching {
    pub(super) fn new() -> Self {
        let line = StatusLine::beside(false);
        Self(Arc::new(Mutex::new(Watched { line, sent: 0, errors: 0, is_in_trouble: false })))
    }

    pub(super) fn happened(&self, notice: &Notice) {
        self.with(|watched| watched.happened(notice));
    }

    pub(super) fn say(&self, sentence: &str) {
        self.with(|watched| watched.line.say(sentence));
    }

    pub(super) fn finish(&self) {
        self.with(|watched| watched.line.finish(&watched.summary()));
    }

    fn with(&self, act: impl FnOnce(&mut Watched)) {
        act(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner));
    }
}

impl Watched {
    fn happened(&mut self, notice: &Notice) {
        match notice {
            Notice::Sent { count, .. } => {
                self.goes_on();
                self.sent += count;
            }
            Notice::Refused { id, reason } => {
                self.errors += 1;
                self.line.say(&format!("document {id} is refused: {reason}"));
            }
            Notice::TakenOver(count) => {
                self.line.say(&format!(
                    "{count} documents were taken over by other workers, as this one took too long"
                ));
            }
            Notice::Polling(reason) => {
                self.line.say(&format!("no change stream, asking for documents: {reason}"));
            }
            Notice::Trouble(reason) => {
                if !self.is_in_trouble {
                    self.line.say(&format!("{reason}; trying again"));
                }
                self.is_in_trouble = true;
            }
            Notice::GoesOn => self.goes_on(),
            Notice::LeasesLeft(count) => {
                self.line.say(&format!(
                    "{count} documents could not be marked; their leases end by themselves"
                ));
            }
        }
        let summary = self.summary();
        self.line.now_and_then(|_| summary);
    }

    fn goes_on(&mut self) {
        if std::mem::take(&mut self.is_in_trouble) {
            self.line.say("goes on");
        }
    }

    fn summary(&self) -> String {
        let rate = self.sent as f64 / self.line.seconds();
        match self.errors {
            0 => format!("{} documents sent, {rate:.0} a second", self.sent),
            errors => {
                format!("{} documents sent, {rate:.0} a second, {errors} refused", self.sent)
            }
        }
    }
}
