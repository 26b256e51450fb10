//! Drops dead letters: they are not listed any more, and cannot be redriven.

use prombus_engine::{Durability, Expect, StateOp};
use prombus_proto::{EventId, Seq, Topic};

use super::LetterSelection;
use super::pages::{Found, LetterPages};
use crate::bus::Bus;
use crate::error::Refusal;
use crate::publish::Submission;
use crate::stored::StatePages;
use crate::stored::letter::LetterRecord;
use crate::stored::redrive::{self, Redrive};
use crate::topics::Purge;

/// What became of a request to drop dead letters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Discarded {
    pub dropped: u64,
    /// The last letter that was looked at, if there are more behind it.
    pub next: Option<EventId>,
    /// Where the selection ended: letters that came later are not among them.
    pub end: Seq,
}

impl Bus {
    /// Drops dead letters of `topic`. If all are dropped, their space becomes free; otherwise it does when retention
    /// removes them.
    ///
    /// # Errors
    ///
    /// As for [`Bus::dead_letters`], or if the store fails. What was dropped until then stays dropped.
    pub async fn drop_letters(
        &self,
        topic: &Topic,
        selection: LetterSelection,
    ) -> Result<Discarded, Refusal> {
        self.check_open()?;
        let mut pages = LetterPages::begin(self, topic, &selection).await?;
        let mut dropped = 0;
        while dropped < selection.limit
            && let Some(mut page) = pages.next().await?
        {
            if page.len() > selection.limit - dropped {
                page.truncate(selection.limit - dropped);
                pages.stop_behind(&page[page.len() - 1].letter);
            }
            dropped += page.len();
            let changes = page.iter().map(|found| mark_dropped(topic, found)).collect();
            self.store(Submission::of_state(changes, Durability::Fsync)).await?;
        }
        let next = pages.rest();
        let is_everything = selection.group.is_none()
            && selection.ids.is_none()
            && next.is_none()
            && self.are_all_dropped(topic, pages.end).await?;
        if is_everything && pages.end > Seq::FIRST {
            let below =
                self.first_copy_in_use(topic).await?.map_or(pages.end, |seq| seq.min(pages.end));
            self.purge_topic(&pages.dead_letters, Purge::BeforeSeq(below)).await?;
        }
        self.forget_removed_letters(topic, &pages.dead_letters).await?;
        Ok(Discarded { dropped: dropped as u64, next, end: pages.end })
    }

    /// Returns `true` if every letter before `end` is dropped, those that earlier requests dropped included.
    async fn are_all_dropped(&self, topic: &Topic, end: Seq) -> Result<bool, Refusal> {
        let all = LetterSelection { before: Some(end), ..LetterSelection::default() };
        let mut pages = LetterPages::begin(self, topic, &all).await?;
        while let Some(page) = pages.next().await? {
            if !page.is_empty() {
                return Ok(false);
            }
        }
        Ok(pages.rest().is_none())
    }

    /// Returns the first letter with an event that is being redriven.
    async fn first_copy_in_use(&self, topic: &Topic) -> Result<Option<Seq>, Refusal> {
        let prefix = redrive::prefix_of_topic(topic);
        let mut pages = StatePages::new(self.engine().as_ref(), &prefix);
        let mut first = None;
        loop {
            let page = pages.next().await?;
            if page.is_empty() {
                return Ok(first);
            }
            let letters = page.iter().filter_map(|entry| Redrive::read(entry).ok()?);
            let letters = letters.map(|(_, redrive)| redrive.letter);
            first = first.into_iter().chain(letters).min();
        }
    }

    /// Removes the records of letters that the topic of the dead letters does not have any more.
    pub(super) async fn forget_removed_letters(
        &self,
        topic: &Topic,
        dead_letters: &Topic,
    ) -> Result<(), Refusal> {
        let first = self.engine().bounds(dead_letters).await?.first;
        let prefix = LetterRecord::prefix_of(topic);
        let mut pages = StatePages::new(self.engine().as_ref(), &prefix);
        loop {
            let page = pages.next().await?;
            let is_removed = |seq: Option<Seq>| seq.is_some_and(|seq| seq < first);
            let count = page.len();
            let removed: Vec<_> = page
                .into_iter()
                .take_while(|entry| is_removed(LetterRecord::position(entry)))
                .map(|entry| StateOp::Delete { key: entry.key, expect: Expect::Any })
                .collect();
            let is_last = removed.len() < count || count == 0;
            if !removed.is_empty() {
                self.store(Submission::of_state(removed, Durability::Buffered)).await?;
            }
            if is_last {
                return Ok(());
            }
        }
    }
}

fn mark_dropped(topic: &Topic, found: &Found) -> StateOp {
    let record = LetterRecord { dropped: true, ..found.record };
    StateOp::Put {
        key: LetterRecord::key(topic, found.letter.seq),
        value: record.encode().into(),
        expires_at: None,
        expect: Expect::Any,
    }
}
