//! A full file of the write-ahead log.

use std::collections::BTreeMap;
use std::sync::Arc;

use prombus_proto::{Seq, Timestamp, Topic};

use crate::disk::ids::ahead::NewestIds;
use crate::disk::ids::recent::RecentIds;
use crate::disk::read::topic_view::TopicView;
use crate::disk::wal::file::WalFile;

/// A full file of the write-ahead log, and what a checkpoint needs to know about it.
#[derive(Debug)]
pub(crate) struct SealedWal {
    pub(crate) file: Arc<WalFile>,
    /// The topics it changed, as they were after its last frame.
    pub(crate) touched: BTreeMap<Topic, TouchedTopic>,
    pub(crate) ids: Arc<RecentIds>,
    /// The offset at which the last frame ends.
    pub(crate) end: u64,
    /// The number of the first frame after this file.
    pub(crate) next_frame: u64,
    pub(crate) last_version: u64,
    /// Whether something in it is damaged, so that it has to go to quarantine.
    pub(crate) damaged: bool,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct TouchedTopic {
    pub(crate) first: Seq,
    pub(crate) next: Seq,
    pub(crate) newest_ids: NewestIds,
    pub(crate) rule: u64,
    pub(crate) trimmed_arrival: Timestamp,
    pub(crate) is_deleted: bool,
}

impl TouchedTopic {
    pub(crate) fn of(view: &TopicView) -> Self {
        Self {
            first: view.first,
            next: view.next,
            newest_ids: view.newest_ids,
            rule: view.rule,
            trimmed_arrival: view.trimmed_arrival,
            is_deleted: view.is_deleted,
        }
    }
}
