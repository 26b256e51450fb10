//! What readers see: everything committed, nothing half.

use std::collections::HashMap;
use std::sync::Arc;

use prombus_proto::Topic;

use crate::disk::ids::Ordinal;
use crate::disk::read::topic_view::{TopicView, WalPiece};
use crate::disk::state::memtable::Overlay;
use crate::disk::wal::file::WalFile;
use crate::disk::wal::frame::{FrameHead, StateChange};
use crate::disk::wal::scan::Piece;

/// Everything committed. Changed in one go per frame, so that nobody sees a part of one.
#[derive(Debug)]
pub(crate) struct View {
    pub(crate) topics: HashMap<Topic, TopicView>,
    pub(crate) overlay: Overlay,
    store_seed: u64,
    next_ordinal: Ordinal,
}

impl View {
    pub(crate) fn new(store_seed: u64) -> Self {
        Self {
            topics: HashMap::new(),
            overlay: Overlay::default(),
            store_seed,
            next_ordinal: Ordinal(0),
        }
    }

    /// A topic that nothing was appended to yet.
    pub(crate) fn new_topic(&self, topic: &Topic, ordinal: Ordinal) -> TopicView {
        TopicView::new(topic, ordinal, self.store_seed)
    }

    /// The number that the next new topic gets; none is ever given twice.
    pub(crate) fn next_ordinal(&self) -> Ordinal {
        self.next_ordinal
    }

    /// The view of `topic`, made if it is new.
    pub(crate) fn topic_mut(&mut self, topic: &Topic) -> &mut TopicView {
        if !self.topics.contains_key(topic) {
            self.add_topic(topic, self.next_ordinal());
        }
        self.topics.get_mut(topic).expect("just made")
    }

    pub(crate) fn add_topic(&mut self, topic: &Topic, ordinal: Ordinal) {
        self.topics.insert(topic.clone(), self.new_topic(topic, ordinal));
        self.next_ordinal = self.next_ordinal.max(Ordinal(ordinal.0 + 1));
    }

    /// Shows a frame that is in `file`. `newest_time_ordered` tells for each run the newest UUIDv7 in
    /// it.
    pub(crate) fn apply(
        &mut self,
        file: &Arc<WalFile>,
        head: &FrameHead,
        pieces: &[Piece],
        newest_time_ordered: &[u128],
        state: Vec<StateChange>,
    ) {
        let mut pieces = pieces.iter().peekable();
        for (index, run) in head.runs.iter().enumerate() {
            let view = self.topic_mut(&run.topic);
            while let Some(piece) = pieces.next_if(|piece| piece.run == index) {
                view.push_piece(WalPiece {
                    file: Arc::clone(file),
                    offset: piece.offset,
                    bytes: piece.bytes,
                    first: piece.first,
                    count: piece.count,
                    latest_ts: piece.latest_ts,
                    newest_id_before: piece.newest_id_before.max(view.newest_time_ordered),
                });
            }
            view.next = run.first.plus(u64::from(run.count));
            view.newest_time_ordered = view.newest_time_ordered.max(newest_time_ordered[index]);
        }
        for trim in &head.trims {
            let view = self.topic_mut(&trim.topic);
            view.trim(trim.below);
            view.rule = view.rule.max(trim.rule);
        }
        for change in state {
            self.overlay.apply(file.number, change);
        }
    }
}
