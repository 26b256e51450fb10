//! Records what became of documents, and retries until the database has it.

use mongodb::bson::Bson;

use super::Worker;
use crate::OutboxError;
use crate::collection::Settled;
use crate::document::outcome::{DocumentOutcome, Outcome};
use crate::error::is_transient;
use crate::notice::Notice;

/// How often a worker that is being stopped tries.
const ATTEMPTS_WHEN_STOPPING: u32 = 5;

impl Worker {
    /// Records the outcomes of documents in the claim `claim_id`. Retries while the database is not
    /// available; an outcome changes nothing if the claim has expired meanwhile.
    pub(super) async fn settle(
        &mut self,
        outcomes: &[DocumentOutcome],
        claim_id: &str,
    ) -> Result<(), OutboxError> {
        if outcomes.is_empty() {
            return Ok(());
        }
        let mut failures = 0;
        loop {
            match self.outbox.settle(outcomes, claim_id).await {
                Ok(Settled { recorded, rejected, reason }) => {
                    self.recovered();
                    if rejected > 0 {
                        // They are retried once their claim has expired; others need not wait.
                        let reason = reason.unwrap_or_default();
                        let what = format!("cannot mark {rejected} documents: {reason}");
                        self.notify(&Notice::Retrying(format!("the outbox: {what}")));
                    }
                    // After a lost answer the documents are no longer in the claim, but settled.
                    let lost = match failures {
                        0 => (outcomes.len() as u64).saturating_sub(recorded + rejected),
                        _ => 0,
                    };
                    self.report(outcomes, lost, rejected);
                    return Ok(());
                }
                Err(error) if is_transient(&error) => {
                    failures += 1;
                    if self.is_stopped() && failures >= ATTEMPTS_WHEN_STOPPING {
                        self.notify(&Notice::ClaimsLeft(outcomes.len() as u64));
                        return Ok(());
                    }
                    self.pause_after(format!("the outbox: {error}")).await;
                }
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Reports what became of documents. It is not known which of them other workers took over.
    fn report(&mut self, outcomes: &[DocumentOutcome], lost: u64, rejected: u64) {
        if lost > 0 {
            self.notify(&Notice::TakenOver(lost));
        }
        if lost + rejected == outcomes.len() as u64 {
            return;
        }
        let (mut count, mut duplicates) = (0_u64, 0_u64);
        for DocumentOutcome { id, outcome } in outcomes {
            match outcome {
                Outcome::Sent { is_duplicate, .. } => {
                    count += 1;
                    duplicates += u64::from(*is_duplicate);
                }
                Outcome::Rejected(rejection) => {
                    let reason = format!("{}: {}", rejection.code, rejection.message);
                    self.notify(&Notice::Rejected { id: id_text(id), reason });
                }
                Outcome::Released { .. } => {}
            }
        }
        let count = count.saturating_sub(lost + rejected);
        if count > 0 {
            self.notify(&Notice::Sent { count, duplicates: duplicates.min(count) });
        }
    }
}

fn id_text(id: &Bson) -> String {
    match id {
        Bson::String(text) => text.clone(),
        other => other.to_string(),
    }
}
