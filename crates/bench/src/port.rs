//! A connection under test, in this process or over the wire.

use std::future::Future;
use std::time::Duration;

use tokio::sync::Notify;

use crate::BenchError;
use crate::load::event_text::EventText;
use crate::load::send_plan::Frame;

/// The events of one frame to be written.
pub(crate) struct Events<'a> {
    pub(crate) text: &'a EventText,
    pub(crate) frame: Frame,
    /// The index of the topic.
    pub(crate) topic: usize,
    /// Returns when an event counts as sent.
    pub(crate) stamp: &'a dyn Fn(u64) -> Duration,
}

impl Events<'_> {
    pub(crate) fn numbers(&self) -> std::ops::Range<u64> {
        self.frame.first..self.frame.first + self.frame.count
    }

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
    /// Queues a frame for the next exchange.
    fn enqueue(&mut self, events: &Events<'_>) -> Result<(), BenchError>;

    /// Sends the queued frames, and waits for answers or for `wake`. Returns how many frames were
    /// answered, in the order in which they were queued.
    fn exchange(&mut self, wake: &Notify)
    -> impl Future<Output = Result<usize, BenchError>> + Send;
}

/// An event that was delivered.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Delivered {
    /// When it was sent, or scheduled to be sent; `None` if it is from another run.
    pub(crate) sent_at: Option<Duration>,
    /// The bytes of its JSON.
    pub(crate) bytes: u64,
}

/// A connection that consumes, and acknowledges each event on its own.
pub(crate) trait ConsumePort: Send {
    /// Waits for deliveries or answers. Appends and acknowledges the delivered events, and returns
    /// how many acknowledgements were answered.
    fn exchange(
        &mut self,
        text: &EventText,
        delivered: &mut Vec<Delivered>,
    ) -> impl Future<Output = Result<u64, BenchError>> + Send;
}
