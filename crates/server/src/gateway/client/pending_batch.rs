//! Consecutive frames that are submitted together.

use prombus_bus::{Charges, PublishBatch};
use prombus_proto::frame::{AckMark, ClientOp};
use prombus_proto::{EventId, Group, Topic};

use crate::gateway::answers::{AckedFrame, PublishedFrame};

/// The frames read so far that wait for more of their kind.
#[derive(Debug, Default)]
pub(super) enum PendingBatch {
    #[default]
    None,
    Publish {
        events: PublishBatch,
        frames: Vec<PublishedFrame>,
    },
    /// ACKs of one subscription, which was looked up for the first of them.
    Ack {
        topic: Topic,
        group: Group,
        ids: Vec<EventId>,
        mark: Option<AckMark>,
        /// What the marks cost.
        charges: Charges,
        frames: Vec<AckedFrame>,
    },
}

/// A larger batch is submitted without waiting for more events.
const MAX_BATCH_BYTES: usize = 1 << 20;
/// A batch of more ids is submitted without waiting for more ACKs.
const MAX_BATCH_IDS: usize = 10_000;

impl PendingBatch {
    /// Returns whether the batch has to be submitted before `op` is served, because `op` cannot join it.
    pub(super) fn must_precede(&self, op: &ClientOp) -> bool {
        match (self, op) {
            (Self::None, _) => false,
            (Self::Publish { events, .. }, ClientOp::Publish(_)) => {
                events.bytes() > MAX_BATCH_BYTES
            }
            (Self::Ack { topic, group, ids, mark, .. }, ClientOp::Ack(ack)) => {
                ids.len() >= MAX_BATCH_IDS
                    || ack.publish.is_some()
                    || ack.topic != *topic
                    || ack.group != *group
                    || ack.mark != *mark
            }
            _ => true,
        }
    }
}
