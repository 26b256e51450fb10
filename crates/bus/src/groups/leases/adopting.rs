//! Events that turn out to be done when what is stored was read again: the commit that finished them was reported as
//! failed.

use prombus_proto::{EventId, Seq};

use super::slot::SlotState;
use super::{Leases, MemberId};
use crate::stored::cursor::{Cursor, Progress};
use crate::stored::redrive::Redrive;

/// An event that the stored cursor counts as done, unlike the lease table until then.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Adopted {
    pub(crate) seq: Seq,
    /// Unknown if this process never delivered the event.
    pub(crate) id: Option<EventId>,
    /// The member whose lease ended.
    pub(crate) member: Option<MemberId>,
}

impl Leases {
    /// Finishes the events that the stored `cursor` counts as done, and those redriven ones that are not stored any
    /// more. The lease table misses them if the commit that stored this was reported as failed.
    pub(crate) fn adopt_done(
        &mut self,
        cursor: &Cursor,
        redrives: &[(Seq, Redrive)],
    ) -> Vec<Adopted> {
        let above: Vec<_> = cursor.above().collect();
        let is_done_in_store = |seq: Seq| {
            let index = seq.0.checked_sub(cursor.floor.0 + 1);
            index.is_none_or(|index| {
                let index = usize::try_from(index).unwrap_or(usize::MAX);
                above.get(index) == Some(&Progress::Done)
            })
        };
        let open = self.window_seqs_where(|state| state != SlotState::Done);
        let missed: Vec<_> = open
            .filter(|seq| is_done_in_store(*seq))
            .chain(self.redrives_done_in_store(redrives))
            .collect();
        missed.into_iter().filter_map(|seq| self.adopt(seq)).collect()
    }

    fn adopt(&mut self, seq: Seq) -> Option<Adopted> {
        let slot = self.slot(seq)?;
        let id = slot.identity.as_ref().map(|(id, _)| id.clone());
        let member = match slot.state {
            SlotState::Leased(lease) => Some(lease.member),
            _ => None,
        };
        self.forget_id(seq);
        self.finish(seq);
        Some(Adopted { seq, id, member })
    }
}
