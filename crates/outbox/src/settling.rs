//! Telling the database what became of documents, until it knows.

use mongodb::bson::Bson;

use crate::OutboxError;
use crate::collection::Settled;
use crate::error::may_pass;
use crate::mark::{Fate, Mark};
use crate::notice::Notice;
use crate::worker::Worker;

/// How often it is tried when the worker is to end.
const TRIES_AT_THE_END: u32 = 5;

impl Worker {
    /// Marks documents that are claimed by `lease`. Where the database is away it is tried again: a
    /// lease that ended meanwhile makes it change nothing.
    pub(crate) async fn settle(&mut self, marks: &[Mark], lease: &str) -> Result<(), OutboxError> {
        if marks.is_empty() {
            return Ok(());
        }
        let mut failed = 0;
        loop {
            match self.outbox.settle(marks, lease).await {
                Ok(Settled { ours, refused, reason }) => {
                    self.went_well();
                    if refused > 0 {
                        // They are tried again when their lease is over; others need not wait.
                        let reason = reason.unwrap_or_default();
                        let what = format!("{refused} documents could not be marked: {reason}");
                        self.tell(&Notice::Trouble(format!("the outbox: {what}")));
                    }
                    // Where an answer was lost after the marks were made, nothing is ours any more.
                    let lost = match failed {
                        0 => (marks.len() as u64).saturating_sub(ours + refused),
                        _ => 0,
                    };
                    self.tell_fates(marks, lost, refused);
                    return Ok(());
                }
                Err(error) if may_pass(&error) => {
                    failed += 1;
                    if self.is_stopped() && failed >= TRIES_AT_THE_END {
                        self.tell(&Notice::LeasesLeft(marks.len() as u64));
                        return Ok(());
                    }
                    self.pause_after(format!("the outbox: {error}")).await;
                }
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Tells what became of documents. Which of them others took over is not known.
    fn tell_fates(&mut self, marks: &[Mark], lost: u64, refused: u64) {
        if lost > 0 {
            self.tell(&Notice::TakenOver(lost));
        }
        if lost + refused == marks.len() as u64 {
            return;
        }
        let (mut count, mut duplicates) = (0_u64, 0_u64);
        for Mark { id, fate } in marks {
            match fate {
                Fate::Sent { is_duplicate, .. } => {
                    count += 1;
                    duplicates += u64::from(*is_duplicate);
                }
                Fate::Error(reason) => {
                    let reason = format!("{}: {}", reason.code, reason.message);
                    self.tell(&Notice::Refused { id: shown(id), reason });
                }
                Fate::GivenBack { .. } => {}
            }
        }
        let count = count.saturating_sub(lost + refused);
        if count > 0 {
            self.tell(&Notice::Sent { count, duplicates: duplicates.min(count) });
        }
    }
}

fn shown(id: &Bson) -> String {
    match id {
        Bson::String(text) => text.clone(),
        other => other.to_string(),
    }
}
