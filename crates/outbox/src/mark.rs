//! What becomes of a document, and how the database is told.

use mongodb::bson::{Bson, Document, doc};

use crate::letter::Reason;

/// What becomes of a document that is claimed.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Mark {
    pub(crate) id: Bson,
    pub(crate) fate: Fate,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Fate {
    /// The bus has it, at this place.
    Sent { seq: u64, is_duplicate: bool },
    /// The bus will never take it.
    Error(Reason),
    /// It is given back, and waits.
    GivenBack {
        /// Whether it was on its way to the bus: only that is an attempt.
        was_tried: bool,
    },
}

impl Mark {
    pub(crate) const fn given_back(id: Bson, was_tried: bool) -> Self {
        Self { id, fate: Fate::GivenBack { was_tried } }
    }

    /// One entry of an `update` command. It changes nothing where the claim is no longer `lease`.
    pub(crate) fn statement(&self, lease: &str) -> Document {
        let mut lease_ends = doc! { "lease_id": "", "lease_owner": "", "lease_until": "" };
        let change = match &self.fate {
            Fate::Sent { seq, .. } => {
                lease_ends.extend(doc! { "error": "", "error_at": "" });
                let seq = i64::try_from(*seq).unwrap_or(i64::MAX);
                doc! {
                    "$set": { "status": "sent", "seq": seq },
                    "$currentDate": { "sent_at": true },
                    "$unset": lease_ends,
                }
            }
            Fate::Error(Reason { code, message }) => doc! {
                "$set": { "status": "error", "error": { "code": *code, "message": message } },
                "$currentDate": { "error_at": true },
                "$unset": lease_ends,
            },
            Fate::GivenBack { was_tried: true } => doc! { "$unset": lease_ends },
            Fate::GivenBack { was_tried: false } => {
                doc! { "$unset": lease_ends, "$inc": { "attempts": -1 } }
            }
        };
        let ours = doc! { "_id": self.id.clone(), "lease_id": lease, "status": "pending" };
        doc! { "q": ours, "u": change }
    }
}
