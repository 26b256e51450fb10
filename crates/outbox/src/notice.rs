//! What a worker tells whoever runs it.

use std::fmt;

/// Something that happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Notice {
    /// Documents were published and marked.
    Sent {
        /// How many.
        count: u64,
        /// How many of them the bus had already, from an earlier try.
        duplicates: u64,
    },
    /// A document is marked as an error.
    Refused {
        /// Its `_id`.
        id: String,
        /// The code, and a sentence.
        reason: String,
    },
    /// So many documents were taken over by other workers before this one could mark them.
    TakenOver(u64),
    /// There is no change stream, so new documents are asked for; this is why.
    Polling(String),
    /// The bus or the database cannot be used now; it is tried again.
    Trouble(String),
    /// After trouble, it goes on.
    GoesOn,
    /// The end came before leases could be given back; they end by themselves.
    LeasesLeft(u64),
}

/// What a worker did until it ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    /// Documents published and marked as sent.
    pub sent: u64,
    /// How many of them the bus had already, from an earlier try.
    pub duplicates: u64,
    /// Documents marked as errors.
    pub errors: u64,
    /// Documents that others took over.
    pub taken_over: u64,
}

impl Summary {
    pub(crate) fn count(&mut self, notice: &Notice) {
        match notice {
            Notice::Sent { count, duplicates } => {
                self.sent += count;
                self.duplicates += duplicates;
            }
            Notice::Refused { .. } => self.errors += 1,
            Notice::TakenOver(count) => self.taken_over += count,
            Notice::Polling(_) | Notice::Trouble(_) | Notice::GoesOn | Notice::LeasesLeft(_) => {}
        }
    }
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { sent, duplicates, errors, taken_over } = self;
        write!(f, "{sent} sent")?;
        for (count, what) in [
            (duplicates, "of them there already"),
            (errors, "refused"),
            (taken_over, "taken over by other workers"),
        ] {
            if *count > 0 {
                write!(f, ", {count} {what}")?;
            }
        }
        Ok(())
    }
}
