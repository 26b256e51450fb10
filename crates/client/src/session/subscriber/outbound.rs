//! What a subscription has to send, by kind of frame.

use std::collections::VecDeque;

use prombus_proto::EventId;
use prombus_proto::frame::AfterNack;
use tokio_tungstenite::tungstenite::Utf8Bytes;

#[derive(Debug, Default)]
pub(super) struct Outbound {
    /// Delivered events whose marks are to be looked up.
    pub(super) unchecked: VecDeque<EventId>,
    /// To be acknowledged, with a mark in `AckMode::Marked`.
    pub(super) handled: Vec<EventId>,
    /// To be acknowledged without a mark.
    pub(super) ack_only: Vec<EventId>,
    pub(super) failed: VecDeque<Failure>,
    /// Finished ACK frames that carry a handler's output.
    pub(super) produced: VecDeque<(EventId, Utf8Bytes)>,
    /// Events whose leases are to be extended.
    pub(super) extensions: VecDeque<EventId>,
}

#[derive(Debug)]
pub(super) struct Failure {
    pub(super) id: EventId,
    pub(super) reason: String,
    pub(super) next: AfterNack,
}

impl Outbound {
    /// Returns `true` if no acknowledgement is left to send.
    pub(super) fn has_no_acks(&self) -> bool {
        self.handled.is_empty() && self.ack_only.is_empty() && self.produced.is_empty()
    }

    pub(super) fn clear(&mut self) {
        self.unchecked.clear();
        self.handled.clear();
        self.ack_only.clear();
        self.failed.clear();
        self.produced.clear();
        self.extensions.clear();
    }
}
