//! Progress of an outbox worker: a status line, and messages.

use std::sync::Arc;

use parking_lot::Mutex;
use prombus_outbox::Notice;

use crate::cli::status_line::StatusLine;

#[derive(Clone)]
pub(super) struct WorkerProgress(Arc<Mutex<State>>);

struct State {
    line: StatusLine,
    sent: u64,
    errors: u64,
    /// Trouble was reported and is not over; it is reported once, however often it repeats.
    is_in_trouble: bool,
}

impl WorkerProgress {
    pub(super) fn new() -> Self {
        let line = StatusLine::new(false);
        Self(Arc::new(Mutex::new(State { line, sent: 0, errors: 0, is_in_trouble: false })))
    }

    pub(super) fn report(&self, notice: &Notice) {
        self.0.lock().report(notice);
    }

    pub(super) fn println(&self, message: &str) {
        self.0.lock().line.println(message);
    }

    pub(super) fn finish(&self) {
        let state = self.0.lock();
        state.line.finish(&state.summary());
    }
}

impl State {
    fn report(&mut self, notice: &Notice) {
        match notice {
            Notice::Sent { count, .. } => {
                self.recovered();
                self.sent += count;
            }
            Notice::Rejected { id, reason } => {
                self.errors += 1;
                self.line.println(&format!("document {id} was rejected: {reason}"));
            }
            Notice::TakenOver(count) => {
                self.line.println(&format!(
                    "{count} documents were taken over by other workers: their leases expired"
                ));
            }
            Notice::Polling(reason) => {
                self.line.println(&format!("no change stream, polling instead: {reason}"));
            }
            Notice::Retrying(reason) => {
                if !self.is_in_trouble {
                    self.line.println(&format!("{reason}; retrying"));
                }
                self.is_in_trouble = true;
            }
            Notice::Recovered => self.recovered(),
            Notice::ClaimsLeft(count) => {
                self.line
                    .println(&format!("cannot update {count} documents; their leases will expire"));
            }
        }
        let summary = self.summary();
        self.line.update(|_| summary);
    }

    fn recovered(&mut self) {
        if std::mem::take(&mut self.is_in_trouble) {
            self.line.println("recovered");
        }
    }

    fn summary(&self) -> String {
        let rate = self.sent as f64 / self.line.seconds();
        match self.errors {
            0 => format!("{} documents sent, {rate:.0}/s", self.sent),
            errors => format!("{} documents sent, {rate:.0}/s, {errors} rejected", self.sent),
        }
    }
}
