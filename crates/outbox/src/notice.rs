//! What a worker reports while it runs, and at the end.

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Notice {
    /// Documents were published and marked as sent.
    Sent {
        count: u64,
        /// How many of them the bus had stored already, from an earlier attempt.
        duplicates: u64,
    },
    /// A document was marked as an error.
    Rejected {
        /// Its `_id`.
        id: String,
        /// An error code and a message.
        reason: String,
    },
    /// This many documents were claimed by other workers before this one could mark them.
    TakenOver(u64),
    /// No change stream could be opened, for this reason, so the worker polls.
    Polling(String),
    /// The bus or the database is not available, for this reason; the worker retries.
    Retrying(String),
    /// The bus and the database are available again.
    Recovered,
    /// The worker stopped before it could release this many documents; their leases will expire.
    ClaimsLeft(u64),
}

/// What a worker did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    /// Documents published and marked as sent.
    pub sent: u64,
    /// How many of them the bus had stored already, from an earlier attempt.
    pub duplicates: u64,
    /// Documents marked as errors.
    pub errors: u64,
    /// Documents claimed by other workers before they could be marked.
    pub taken_over: u64,
}

impl Summary {
    pub(crate) fn count(&mut self, notice: &Notice) {
        match notice {
            Notice::Sent { count, duplicates } => {
                self.sent += count;
                self.duplicates += duplicates;
            }
            Notice::Rejected { .. } => self.errors += 1,
            Notice::TakenOver(count) => self.taken_over += count,
            Notice::Polling(_)
            | Notice::Retrying(_)
            | Notice::Recovered
            | Notice::ClaimsLeft(_) => {}
        }
    }
}
