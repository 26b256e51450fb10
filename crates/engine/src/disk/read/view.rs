//! The view: everything committed, and nothing half-written.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use prombus_proto::Topic;

use super::topic_view::TopicView;
use crate::disk::ids::TopicOrdinal;
use crate::disk::ids::ahead::NewestIds;
use crate::disk::state::change::StateChange;
use crate::disk::state::memtable::Memtable;
use crate::disk::wal::file::WalFile;
use crate::disk::wal::frame::FrameHeader;
use crate::disk::wal::{FrameExtent, WalExtent};

/// Everything committed. Each frame is applied at once, so that no reader sees a part of it.
#[derive(Debug)]
pub(crate) struct View {
    /// Boxed, so that growing the map moves little: commits wait for it.
    pub(crate) topics: HashMap<Topic, Box<TopicView>>,
    pub(crate) memtable: Memtable,
    /// The WAL files that are not checkpointed yet, and where the last frame that readers see ends.
    pub(crate) wal_ends: BTreeMap<u64, u64>,
    store_seed: u64,
    next_ordinal: TopicOrdinal,
}

impl View {
    pub(crate) fn new(store_seed: u64) -> Self {
        Self {
            topics: HashMap::new(),
            memtable: Memtable::default(),
            wal_ends: BTreeMap::new(),
            store_seed,
            next_ordinal: TopicOrdinal(0),
        }
    }

    /// Builds an empty topic, without adding it.
    pub(crate) fn new_topic(&self, topic: &Topic, ordinal: TopicOrdinal) -> TopicView {
        TopicView::new(topic, ordinal, self.store_seed)
    }

    /// The ordinal of the next new topic.
    pub(crate) fn next_ordinal(&self) -> TopicOrdinal {
        self.next_ordinal
    }

    /// Returns the view of `topic`, which it adds if it is new.
    pub(crate) fn topic_mut(&mut self, topic: &Topic) -> &mut TopicView {
        if !self.topics.contains_key(topic) {
            self.add_topic(topic, self.next_ordinal());
        }
        self.topics.get_mut(topic).expect("added above")
    }

    pub(crate) fn add_topic(&mut self, topic: &Topic, ordinal: TopicOrdinal) {
        self.topics.insert(topic.clone(), Box::new(self.new_topic(topic, ordinal)));
        self.next_ordinal = self.next_ordinal.max(TopicOrdinal(ordinal.0 + 1));
    }

    /// Drops those of `topics` that are still deleted, if no WAL file after `checkpointed` has a change of them:
    /// neither the catalog nor the log to be replayed knows their numbering any more.
    pub(crate) fn forget_deleted(&mut self, topics: &[Topic], checkpointed: u64) {
        for topic in topics {
            let view = self.topics.get(topic);
            if view.is_some_and(|view| view.is_deleted && view.changed_in <= checkpointed) {
                self.topics.remove(topic);
            }
        }
    }

    /// Applies a frame of `file`. `newest_ids` are those of each section's topic.
    pub(crate) fn apply(
        &mut self,
        file: &Arc<WalFile>,
        header: &FrameHeader,
        extents: &[FrameExtent],
        newest_ids: &[NewestIds],
        state: Vec<StateChange>,
    ) {
        let mut extents = extents.iter().peekable();
        for (index, section) in header.sections.iter().enumerate() {
            let view = self.topic_mut(&section.topic);
            while let Some(extent) = extents.next_if(|extent| extent.section == index) {
                view.push_wal_extent(WalExtent {
                    file: Arc::clone(file),
                    offset: extent.offset,
                    bytes: extent.bytes,
                    first: extent.first,
                    count: extent.count,
                    latest_ts: extent.latest_ts,
                    // Version 1 did not record it. The publisher's time is the best guess.
                    arrived: header.arrived.unwrap_or(extent.latest_ts),
                    newest_id_before: extent.newest_id_before.max(view.newest_ids.monotonic),
                    newest_id: extent.newest_id.max(view.newest_ids.monotonic),
                });
            }
            view.next = section.first.plus(u64::from(section.count));
            view.newest_ids = newest_ids[index];
            view.is_deleted = false;
            view.changed_in = file.number;
        }
        for deletion in &header.deletions {
            let view = self.topic_mut(&deletion.topic);
            view.delete(deletion.below);
            view.changed_in = file.number;
        }
        for trim in &header.trims {
            let view = self.topic_mut(&trim.topic);
            view.trim(trim.below);
            view.rule = view.rule.max(trim.rule);
            view.changed_in = file.number;
        }
        for change in state {
            self.memtable.apply(file.number, change);
        }
    }
}
