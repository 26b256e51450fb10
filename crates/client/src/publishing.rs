//! Publishing: single events, pipelined events and batches.

pub(crate) mod outgoing;

use std::collections::VecDeque;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use prombus_proto::frame::{Outcome, Published};
use prombus_proto::limits::MAX_FRAME_EVENTS;
use prombus_proto::{NewEvent, Topic};

use crate::client::{Client, PendingResponse, unexpected_answer};
use crate::names::IntoTopic;
use crate::publishing::outgoing::IntoOutgoing;
use crate::session::frames;
use crate::{Error, Result};

/// An upper estimate of an event's bytes in a frame without payload and optional attributes.
const EVENT_OVERHEAD_BYTES: usize = 128;
/// A frame of many events is not filled beyond this, even if the server accepts more.
const FULL_FRAME_BYTES: usize = 512 << 10;

/// Frames of one batch that may be unanswered at a time.
const BATCH_WINDOW: usize = 8;

/// A future that resolves when an [enqueued](Client::enqueue) event is stored. Dropping it does not
/// cancel the publish.
#[must_use = "errors are reported only if the receipt is awaited"]
pub struct Receipt(PendingResponse);

impl Future for Receipt {
    type Output = Result<Published>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        Poll::Ready(match ready!(Pin::new(&mut self.0).poll(context)) {
            Ok(Outcome::Published(published)) => Ok(published),
            Ok(other) => Err(unexpected_answer("PUBLISH", &other)),
            Err(error) => Err(error),
        })
    }
}

impl Client {
    /// Publishes an event and waits until it is stored. `event` is a reference to anything that
    /// serde can serialize, or an [`Outgoing`](crate::Outgoing) with more than a payload.
    ///
    /// The client assigns an id before sending, so an event whose answer was lost with the
    /// connection is sent again and stored once. The client also sends it again if the server
    /// refuses it for its rate (when the server allows it; see
    /// [`Builder::wait_for_rate`](crate::Builder::wait_for_rate)), because the storage is
    /// unavailable, or because the server is shutting down, until the
    /// [timeout](crate::Builder::timeout).
    ///
    /// **Order.** Events that are published one after the other, each awaited, are stored in that
    /// order. Pipelined events are stored in the order in which they were enqueued, also across a
    /// lost connection, unless the server refuses one of them and accepts a later one: the refused
    /// event is sent again before any that was not sent yet, but others may have overtaken it.
    ///
    /// # Errors
    ///
    /// Fails if the topic or the event is not valid, if the server refuses the event for a reason
    /// that does not pass, after the timeout, or if the client has ended.
    pub async fn publish(
        &self,
        topic: impl IntoTopic,
        event: impl IntoOutgoing,
    ) -> Result<Published> {
        self.enqueue(topic, event).await?.await
    }

    /// Publishes an event and waits only until the [window](crate::Builder::window) has room for
    /// it. This pipelines many events from one task.
    ///
    /// ```
    /// # use prombus_server::{config::{Config, Sources}, server::Server};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let set = ["server.ws=127.0.0.1:0", "server.http=127.0.0.1:0", "server.engine=memory", "limits.enabled=false"];
    /// # let set = set.map(String::from).to_vec();
    /// # let server = Server::start(&Config::load(&Sources { set, ..Sources::default() })?).await?;
    /// # let client = prombus_client::Client::builder(&server.ws_url()).http(server.http_url());
    /// # let client = client.connect().await?;
    /// let mut receipts = Vec::new();
    /// for load in 0..1000 {
    ///     receipts.push(client.enqueue("node.load", &load).await?);
    /// }
    /// for receipt in receipts {
    ///     receipt.await?;
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// Fails if the topic or the event is not valid, or if the client has ended. The [`Receipt`]
    /// reports what the server refuses.
    pub async fn enqueue(
        &self,
        topic: impl IntoTopic,
        event: impl IntoOutgoing,
    ) -> Result<Receipt> {
        let topic = topic.into_topic()?;
        let event = event.into_outgoing()?.identified(&self.shared.ids)?;
        let frame = frames::publish(topic.clone(), event);
        Ok(Receipt(self.send(frame, Some(topic)).await?))
    }

    /// Publishes many events to one topic and waits until all are stored. Returns their offsets in
    /// the same order.
    ///
    /// The events are sent in frames of up to 1000, several at a time. Each frame is stored
    /// completely or not at all.
    ///
    /// # Errors
    ///
    /// Fails as [`publish`](Self::publish) does. Some of the frames may be stored then. If the
    /// events have ids of their own, it is safe to publish all of them again.
    pub async fn publish_batch<E: IntoOutgoing>(
        &self,
        topic: impl IntoTopic,
        events: impl IntoIterator<Item = E>,
    ) -> Result<Vec<Published>> {
        let topic = topic.into_topic()?;
        let mut published = Vec::new();
        let mut pending = VecDeque::new();
        let mut batcher = FrameBatcher::new(self.shared.max_frame_bytes);
        for event in events {
            let event = event.into_outgoing()?.identified(&self.shared.ids)?;
            if let Some(full) = batcher.push(event) {
                pending.push_back(self.send_many(&topic, full).await?);
                if pending.len() > BATCH_WINDOW
                    && let Some(first) = pending.pop_front()
                {
                    published.extend(self.results(&topic, first).await?);
                }
            }
        }
        if !batcher.events.is_empty() {
            pending.push_back(self.send_many(&topic, batcher.events).await?);
        }
        for frame in pending {
            published.extend(self.results(&topic, frame).await?);
        }
        Ok(published)
    }

    /// Publishes at most 1000 events to one topic in one frame, which is stored completely, in
    /// order, or not at all.
    ///
    /// Unlike [`publish_batch`](Self::publish_batch), it never splits the events.
    ///
    /// # Errors
    ///
    /// Fails as [`publish`](Self::publish) does, and if the frame is too large or exceeds what the
    /// rate limit ever admits. No event is stored if the server refuses the frame.
    pub async fn publish_together<E: IntoOutgoing>(
        &self,
        topic: impl IntoTopic,
        events: impl IntoIterator<Item = E>,
    ) -> Result<Vec<Published>> {
        let topic = topic.into_topic()?;
        let identified = |event: E| event.into_outgoing()?.identified(&self.shared.ids);
        let events: Vec<_> = events.into_iter().map(identified).collect::<Result<_>>()?;
        let count = events.len();
        if count == 0 {
            return Ok(Vec::new());
        }
        let frame = frames::publish_many(topic.clone(), events);
        match self.send(frame, Some(topic)).await?.await? {
            Outcome::Results(results) if results.len() == count => Ok(results),
            other => Err(unexpected_answer("PUBLISH", &other)),
        }
    }

    async fn send_many(&self, topic: &Topic, events: Vec<NewEvent>) -> Result<PendingFrame> {
        let frame = frames::publish_many(topic.clone(), events.clone());
        Ok(PendingFrame { events, answer: self.send(frame, Some(topic.clone())).await? })
    }

    /// Waits for a frame, and splits it if it exceeds what the rate limit ever admits.
    async fn results(&self, topic: &Topic, first: PendingFrame) -> Result<Vec<Published>> {
        let mut waiting = vec![first];
        let mut published = Vec::new();
        while let Some(PendingFrame { mut events, answer }) = waiting.pop() {
            match answer.await {
                Ok(Outcome::Results(results)) if results.len() == events.len() => {
                    published.extend(results);
                }
                Ok(other) => return Err(unexpected_answer("PUBLISH", &other)),
                Err(Error::Refused(refusal))
                    if refusal.is_too_much_at_once() && events.len() > 1 =>
                {
                    let second = events.split_off(events.len() / 2);
                    let first = self.send_many(topic, events).await?;
                    waiting.push(self.send_many(topic, second).await?);
                    waiting.push(first);
                }
                Err(error) => return Err(error),
            }
        }
        Ok(published)
    }
}

/// A frame that was sent, with its events in case it has to be split.
struct PendingFrame {
    events: Vec<NewEvent>,
    answer: PendingResponse,
}

/// Collects events into frames.
struct FrameBatcher {
    events: Vec<NewEvent>,
    bytes: usize,
    max_bytes: usize,
}

impl FrameBatcher {
    fn new(max_frame_bytes: usize) -> Self {
        // The rest is for the frame around the events.
        let max_bytes = (max_frame_bytes - max_frame_bytes / 8).min(FULL_FRAME_BYTES);
        Self { events: Vec::new(), bytes: 0, max_bytes }
    }

    /// Adds an event. Returns the events before it if the frame has no room for this one.
    fn push(&mut self, event: NewEvent) -> Option<Vec<NewEvent>> {
        let bytes = estimated_bytes(&event);
        let is_full = self.events.len() == MAX_FRAME_EVENTS || self.bytes + bytes > self.max_bytes;
        let full = (is_full && !self.events.is_empty()).then(|| {
            self.bytes = 0;
            std::mem::take(&mut self.events)
        });
        self.bytes += bytes;
        self.events.push(event);
        full
    }
}

/// An upper estimate of the event's bytes in a frame.
fn estimated_bytes(event: &NewEvent) -> usize {
    // An escaped character takes six bytes.
    let texts = event.headers.iter().map(|(name, value)| name.len() + value.len() + 6);
    let texts = texts.chain(event.tags.iter().map(|tag| tag.len() + 3));
    let texts = texts.chain(event.sid.as_ref().map(String::len));
    let texts = texts.chain(event.key.as_ref().map(|key| key.as_str().len()));
    let ids = event.caused_by.iter().chain(&event.id).map(|id| id.as_bytes().len() + 24);
    let attributes: usize = texts.chain(ids).sum();
    EVENT_OVERHEAD_BYTES + event.payload.as_bytes().len() + 6 * attributes
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Outgoing;

    fn event(payload: &str) -> NewEvent {
        Outgoing::new(payload).unwrap().id("a\"b").header("é\u{1}", "\u{2}\u{3}").checked().unwrap()
    }

    #[test]
    fn fills_frames_without_exceeding_the_limit() {
        let max = 4096;
        let mut batcher = FrameBatcher::new(max);
        let mut frames: Vec<_> =
            (0..1000).filter_map(|n| batcher.push(event(&"x".repeat(n % 700)))).collect();
        frames.push(batcher.events);
        assert_eq!(frames.iter().map(Vec::len).sum::<usize>(), 1000);
        let topic = Topic::new("t").unwrap();
        for events in frames {
            let size = frames::publish_many(topic.clone(), events).len();
            assert!(size <= max, "{size}");
        }
        let mut small = FrameBatcher::new(1 << 20);
        let full: Vec<_> = (0..2001).filter_map(|_| small.push(event(""))).collect();
        assert!(full.iter().all(|events| events.len() <= MAX_FRAME_EVENTS));
    }

    #[test]
    fn puts_an_oversized_event_into_a_frame_of_its_own() {
        let mut batcher = FrameBatcher::new(1000);
        assert!(batcher.push(event(&"x".repeat(5000))).is_none());
        assert_eq!(batcher.push(event("")).unwrap().len(), 1);
    }
}
