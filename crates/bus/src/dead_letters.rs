//! Dead letters: the events that groups gave up on, in the topic `dlq.<topic>`, and what operators do with them.
//!
//! | what | where |
//! |---|---|
//! | a letter, as a group stores it and as it is read back | `letter` |
//! | the letters of a topic, page by page | `pages`, `list` |
//! | delivering them again to the groups that failed | `redrive` |
//! | dropping them | `discard` |
//!
//! A letter cannot be changed, so a record beside it says what was done with it (`stored/letter.rs`).

mod discard;
mod letter;
mod list;
mod pages;
mod redrive;

use prombus_proto::{EventId, Group, Seq, Timestamp};
use serde_json::value::RawValue;

pub use discard::Discarded;
pub use letter::dead_letter_topic;
pub(crate) use letter::{DeadLetter, ReadLetter, dead_letters_of};
pub use list::LetterPage;
pub use redrive::Redriven;

/// Which dead letters of a topic.
#[derive(Clone, Debug, Default)]
pub struct LetterSelection {
    /// Only those of this group.
    pub group: Option<Group>,
    /// Only those with one of these ids, of the letter or of its original.
    pub ids: Option<Vec<EventId>>,
    /// Only those behind this letter.
    pub after: Option<EventId>,
    /// Only those before this position of `dlq.<topic>`, so that requests that follow each other leave out letters
    /// that arrive in between.
    pub before: Option<Seq>,
    /// The maximum number of letters.
    pub limit: usize,
}

/// A dead letter.
#[derive(Debug)]
pub struct Letter {
    pub seq: Seq,
    /// Of the letter, not of the original.
    pub id: EventId,
    pub group: Group,
    /// The event as it was delivered; `None` if it could not be read or was too large for its letter.
    pub original: Option<Box<RawValue>>,
    /// `None` if the event could not be read.
    pub original_id: Option<EventId>,
    pub error: String,
    pub attempts: u32,
    pub ts: Timestamp,
    /// Whether the letter was redriven.
    pub redriven: bool,
}

impl LetterSelection {
    fn contains(&self, letter: &Letter) -> bool {
        let is_of_group = self.group.as_ref().is_none_or(|group| *group == letter.group);
        is_of_group
            && self.ids.as_ref().is_none_or(|ids| {
                ids.contains(&letter.id)
                    || letter.original_id.as_ref().is_some_and(|id| ids.contains(id))
            })
    }
}
