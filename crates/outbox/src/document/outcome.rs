//! What became of a claimed document, and the update that records it.

use mongodb::bson::{Bson, Document, doc};

use super::event::Rejection;

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct DocumentOutcome {
    pub(crate) id: Bson,
    pub(crate) outcome: Outcome,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Outcome {
    /// The bus stored the event at `seq`.
    Sent { seq: u64, is_duplicate: bool },
    /// The bus will never accept the event.
    Rejected(Rejection),
    /// The claim is given up, and the document stays pending.
    Released {
        /// The document was sent to the bus without an answer. Only then it counts as an attempt.
        was_tried: bool,
    },
}

impl DocumentOutcome {
    pub(crate) const fn released(id: Bson, was_tried: bool) -> Self {
        Self { id, outcome: Outcome::Released { was_tried } }
    }

    /// Returns one statement of an `update` command. It changes nothing once the claim is no longer
    /// `claim_id`.
    pub(crate) fn statement(&self, claim_id: &str) -> Document {
        let mut unset = doc! { "lease_id": "", "lease_owner": "", "lease_until": "" };
        let update = match &self.outcome {
            Outcome::Sent { seq, .. } => {
                unset.extend(doc! { "error": "", "error_at": "" });
                let seq = i64::try_from(*seq).unwrap_or(i64::MAX);
                doc! {
                    "$set": { "status": "sent", "seq": seq },
                    "$currentDate": { "sent_at": true },
                    "$unset": unset,
                }
            }
            Outcome::Rejected(Rejection { code, message }) => doc! {
                "$set": { "status": "error", "error": { "code": *code, "message": message } },
                "$currentDate": { "error_at": true },
                "$unset": unset,
            },
            Outcome::Released { was_tried: true } => doc! { "$unset": unset },
            Outcome::Released { was_tried: false } => {
                doc! { "$unset": unset, "$inc": { "attempts": -1 } }
            }
        };
        let claimed = doc! { "_id": self.id.clone(), "lease_id": claim_id, "status": "pending" };
        doc! { "q": claimed, "u": update }
    }
}
