//! A staged frame, encoded and ready to be written.

use prombus_proto::Topic;

use super::Staging;
use super::topic::{StagedIds, StagedTopic};
use crate::Version;
use crate::disk::ids::ahead::NewestIds;
use crate::disk::ids::recent::RecentIds;
use crate::disk::ids::{IdSeed, TopicOrdinal};
use crate::disk::state::change::StateChange;
use crate::disk::storage::checksum::checksum;
use crate::disk::wal::FrameExtent;
use crate::disk::wal::frame::{FrameEnd, FrameHeader};

/// A frame ready to be written.
pub(crate) struct StagedFrame {
    pub(crate) header: FrameHeader,
    /// Their offsets count from the start of the frame.
    pub(crate) extents: Vec<FrameExtent>,
    pub(crate) state: Vec<StateChange>,
    /// The newest ids of the topic of each section.
    pub(crate) newest_ids: Vec<NewestIds>,
    pub(crate) new_topics: Vec<(Topic, TopicOrdinal)>,
    /// The topics that its commits delete. Its header may repeat earlier deletions.
    pub(crate) deleted_topics: Vec<Topic>,
    /// The header, the records of each section, and the state changes with the footer.
    parts: Vec<Vec<u8>>,
    buffers: RecordBuffers,
    ids: Vec<(TopicOrdinal, IdSeed, StagedIds)>,
}

impl StagedFrame {
    /// The bytes to write, in order.
    pub(crate) fn parts(&self) -> Vec<&[u8]> {
        self.parts.iter().map(Vec::as_slice).collect()
    }

    /// Takes the record buffers for the next frame.
    pub(crate) fn take_buffers(&mut self) -> RecordBuffers {
        // Not those of the header and footer: they are small, and the next records would outgrow
        // them.
        let records = self.parts.drain(1..self.parts.len() - 1);
        records.for_each(|part| self.buffers.give_back(part));
        std::mem::take(&mut self.buffers)
    }

    /// Adds the ids of its events to `table`.
    pub(crate) fn add_ids(&self, table: &mut RecentIds) {
        for (topic, seed, ids) in &self.ids {
            ids.add_to(table, *topic, *seed);
        }
    }
}

impl Staging {
    /// Encodes everything that was staged.
    pub(crate) fn into_frame(self, number: u64, last_version: Version) -> StagedFrame {
        let mut tail = Vec::new();
        self.state_in_order.iter().for_each(|change| change.append_to(&mut tail));
        let topics: Vec<_> = self.topics.into_iter().filter(|topic| topic.count > 0).collect();
        let mut deletions = self.deletions;
        let deleted_topics = deletions.iter().map(|deletion| deletion.topic.clone()).collect();
        for earlier in topics.iter().filter_map(StagedTopic::earlier_deletion) {
            if !deletions.iter().any(|deletion| deletion.topic == earlier.topic) {
                deletions.push(earlier);
            }
        }
        let header = FrameHeader {
            number,
            last_version,
            arrived: Some(self.arrived),
            sections: topics.iter().map(StagedTopic::section).collect(),
            trims: self.trims,
            deletions,
            state_bytes: u32::try_from(tail.len()).expect("a frame is below 4 GiB"),
            state_checksum: checksum(&tail),
        };
        let start = header.encode(FrameEnd::Header);
        header.append_to(FrameEnd::Footer, &mut tail);
        let mut frame = StagedFrame {
            extents: Vec::with_capacity(topics.len()),
            state: self.state_in_order,
            newest_ids: Vec::with_capacity(topics.len()),
            new_topics: self.new_topics,
            deleted_topics,
            parts: Vec::with_capacity(topics.len() + 2),
            buffers: self.buffers,
            ids: Vec::with_capacity(topics.len()),
            header,
        };
        let mut offset = start.len() as u64;
        frame.parts.push(start);
        for (section, topic) in topics.into_iter().enumerate() {
            let in_frame = |extent: FrameExtent| FrameExtent {
                section,
                offset: offset + extent.offset,
                ..extent
            };
            frame.extents.extend(topic.extents.into_iter().map(in_frame));
            offset += topic.records.len() as u64;
            frame.parts.push(topic.records);
            frame.newest_ids.push(topic.newest_ids);
            frame.ids.push((topic.ordinal, topic.id_seed, topic.ids));
        }
        frame.parts.push(tail);
        frame
    }
}

/// Buffers for records, reused from frame to frame.
#[derive(Debug, Default)]
pub(crate) struct RecordBuffers(Vec<Vec<u8>>);

impl RecordBuffers {
    /// More or larger buffers are rare enough to be allocated again.
    const MAX_BUFFERS: usize = 8;
    const MAX_CAPACITY: usize = 4 << 20;

    pub(super) fn take(&mut self) -> Vec<u8> {
        self.0.pop().unwrap_or_default()
    }

    fn give_back(&mut self, mut buffer: Vec<u8>) {
        if self.0.len() < Self::MAX_BUFFERS && buffer.capacity() <= Self::MAX_CAPACITY {
            buffer.clear();
            self.0.push(buffer);
        }
    }
}
