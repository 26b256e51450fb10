//! What a connection does for a bench, in this process or over the wire.

use std::future::Future;
use std::time::Duration;

use tokio::sync::Notify;

use crate::BenchError;
use crate::load::event_text::EventText;
use crate::load::send_plan::Frame;

/// The events of one frame, to be written.
pub(crate) struct Events<'a> {
    pub(crate) text: &'a EventText,
    pub(crate) frame: Frame,
    /// Which topic they go to.
    pub(crate) topic: usize,
    /// When each counts as sent.
    pub(crate) stamp: &'a dyn Fn(u64) -> Duration,
}

impl Events<'_> {
    pub(crate) fn numbers(&self) -> std::ops::Range<u64> {
        self.frame.first..self.frame.first + self.frame.count
    }

    /// How many bytes a payload has.
    pub(crate) fn payload_bytes(&self) -> usize {
        self.text.payload_bytes(self.topic)
    }

    /// Appends the payload of event `number`.
    pub(crate) fn write(&self, number: u64, out: &mut Vec<u8>) {
        self.text.write(self.topic, number, (self.stamp)(number), out);
    }
}

/// A connection that publishes.
pub(crate) trait PublishPort: Send {
    /// Takes a frame, which leaves with the next turn.
    fn put(&mut self, events: &Events<'_>) -> Result<(), BenchError>;

    /// Sends what was put, and waits for answers, or until `wake` says so. Says how many frames
    /// were answered, in the order they were put.
    fn turn(&mut self, wake: &Notify) -> impl Future<Output = Result<usize, BenchError>> + Send;
}

/// An event that was delivered.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Delivered {
    /// When it was sent, or meant to be; nothing if it is not of this run.
    pub(crate) sent_at: Option<Duration>,
    /// How many bytes its JSON has.
    pub(crate) bytes: u64,
}

/// A connection that consumes, and acknowledges each event alone.
pub(crate) trait ConsumePort: Send {
    /// Waits until something comes. Appends what was delivered, which is acknowledged then, and
    /// says how many acknowledgements were answered.
    fn turn(
        &mut self,
        text: &EventText,
        delivered: &mut Vec<Delivered>,
    ) -> impl Future<Output = Result<u64, BenchError>> + Send;
}
