//! Publishing: one event, many, and as many at a time as there is room for.

pub(crate) mod outgoing;

use std::collections::VecDeque;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use prombus_proto::frame::{Outcome, Published};
use prombus_proto::limits::MAX_FRAME_EVENTS;
use prombus_proto::{NewEvent, Topic};

use crate::client::{Asking, Client, not_answered};
use crate::names::IntoTopic;
use crate::publishing::outgoing::IntoOutgoing;
use crate::session::frames;
use crate::{Error, Result};

/// What an event has around its payload in a frame, at most about that much unless it says more.
const BYTES_AROUND_A_PAYLOAD: usize = 128;
/// A frame of many is not filled further than this, however much the server takes.
const FULL_FRAME_BYTES: usize = 512 << 10;

/// Frames of one batch that wait for their answers at a time.
const FRAMES_ON_THEIR_WAY: usize = 8;

/// An event that is on its way. Awaiting it says where it is stored; dropping it does not call it
/// back.
#[must_use = "whether it is stored is known when this is awaited"]
pub struct Receipt(Asking);

impl Future for Receipt {
    type Output = Result<Published>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        Poll::Ready(match ready!(Pin::new(&mut self.0).poll(context)) {
            Ok(Outcome::Published(published)) => Ok(published),
            Ok(other) => Err(not_answered("PUBLISH", &other)),
            Err(error) => Err(error),
        })
    }
}

impl Client {
    /// Publishes an event and waits until it is stored: a reference to anything that serde can
    /// write, or an [`Outgoing`](crate::Outgoing) with more than a payload.
    ///
    /// The event has an id before it leaves, so what had no answer when the connection broke is
    /// sent again and stored once. It is also sent again when the server says that it comes too
    /// fast (at the time it says; see [`Builder::wait_for_rate`](crate::Builder::wait_for_rate)),
    /// that its storage is not available, or that it is about to stop; all that until
    /// [the time is over](crate::Builder::timeout).
    ///
    /// **Order.** Events that are published one after the other, each awaited, are stored in that
    /// order. Those that are on their way together are stored in the order in which they were
    /// handed in, also through a lost connection, except where the server refuses one of them and
    /// takes a later one: what is refused is sent again before what was not sent yet, but others
    /// may have overtaken it.
    pub async fn publish(
        &self,
        topic: impl IntoTopic,
        event: impl IntoOutgoing,
    ) -> Result<Published> {
        self.enqueue(topic, event).await?.await
    }

    /// Publishes an event and waits only until there is room for it in the
    /// [window](crate::Builder::window): the way to have many on their way from one task.
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
    pub async fn enqueue(
        &self,
        topic: impl IntoTopic,
        event: impl IntoOutgoing,
    ) -> Result<Receipt> {
        let topic = topic.into_topic()?;
        let event = event.into_outgoing()?.identified(&self.shared.ids)?;
        let frame = frames::publish(topic.clone(), event);
        Ok(Receipt(self.ask(frame, Some(topic)).await?))
    }

    /// Publishes many events to one topic, and waits until all are stored. Answers where each is,
    /// in their order.
    ///
    /// They go in frames of up to 1000 events, several of them on their way at a time. Each frame is stored
    /// as a whole or not at all; when this fails, some frames may be stored. Whoever gave the events
    /// ids of their own can publish all of them again then: what is stored is not stored twice.
    pub async fn publish_batch<E: IntoOutgoing>(
        &self,
        topic: impl IntoTopic,
        events: impl IntoIterator<Item = E>,
    ) -> Result<Vec<Published>> {
        let topic = topic.into_topic()?;
        let mut published = Vec::new();
        let mut on_their_way = VecDeque::new();
        let mut gathering = Gathering::new(self.shared.max_frame_bytes);
        for event in events {
            let event = event.into_outgoing()?.identified(&self.shared.ids)?;
            if let Some(full) = gathering.push(event) {
                on_their_way.push_back(self.ask_many(&topic, full).await?);
                if on_their_way.len() > FRAMES_ON_THEIR_WAY
                    && let Some(first) = on_their_way.pop_front()
                {
                    published.extend(self.results(&topic, first).await?);
                }
            }
        }
        if !gathering.events.is_empty() {
            on_their_way.push_back(self.ask_many(&topic, gathering.events).await?);
        }
        for many in on_their_way {
            published.extend(self.results(&topic, many).await?);
        }
        Ok(published)
    }

    /// Publishes at most 1000 events to one topic in one frame, which is stored as a whole or not at
    /// all, in their order. Nothing is split: what is too large or too much at once is refused.
    ///
    /// For those who have to know that nothing of it is stored where it is refused, such as whoever
    /// keeps an order that [`publish_batch`](Self::publish_batch) does not promise across its frames.
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
        match self.ask(frame, Some(topic)).await?.await? {
            Outcome::Results(results) if results.len() == count => Ok(results),
            other => Err(not_answered("PUBLISH", &other)),
        }
    }

    async fn ask_many(&self, topic: &Topic, events: Vec<NewEvent>) -> Result<Many> {
        let frame = frames::publish_many(topic.clone(), events.clone());
        Ok(Many { events, answer: self.ask(frame, Some(topic.clone())).await? })
    }

    async fn results(&self, topic: &Topic, many: Many) -> Result<Vec<Published>> {
        let mut waiting = vec![many];
        let mut published = Vec::new();
        while let Some(Many { mut events, answer }) = waiting.pop() {
            match answer.await {
                Ok(Outcome::Results(results)) if results.len() == events.len() => {
                    published.extend(results);
                }
                Ok(other) => return Err(not_answered("PUBLISH", &other)),
                Err(Error::Refused(refusal))
                    if refusal.is_too_much_at_once() && events.len() > 1 =>
                {
                    let behind = events.split_off(events.len() / 2);
                    let first = self.ask_many(topic, events).await?;
                    waiting.push(self.ask_many(topic, behind).await?);
                    waiting.push(first);
                }
                Err(error) => return Err(error),
            }
        }
        Ok(published)
    }
}

/// The events of one frame, and their answer to come.
struct Many {
    events: Vec<NewEvent>,
    answer: Asking,
}

/// Events that will be one frame.
struct Gathering {
    events: Vec<NewEvent>,
    bytes: usize,
    most_bytes: usize,
}

impl Gathering {
    fn new(max_frame_bytes: usize) -> Self {
        // What is around the events needs some room, too.
        let most_bytes = (max_frame_bytes - max_frame_bytes / 8).min(FULL_FRAME_BYTES);
        Self { events: Vec::new(), bytes: 0, most_bytes }
    }

    /// Takes one more. Answers those before it if they are a frame without it.
    fn push(&mut self, event: NewEvent) -> Option<Vec<NewEvent>> {
        let bytes = bytes_of(&event);
        let is_full = self.events.len() == MAX_FRAME_EVENTS || self.bytes + bytes > self.most_bytes;
        let full = (is_full && !self.events.is_empty()).then(|| {
            self.bytes = 0;
            std::mem::take(&mut self.events)
        });
        self.bytes += bytes;
        self.events.push(event);
        full
    }
}

/// About how much it takes in a frame; not less.
fn bytes_of(event: &NewEvent) -> usize {
    // A character takes six bytes where it is escaped.
    let texts = event.headers.iter().map(|(name, value)| name.len() + value.len() + 6);
    let texts = texts.chain(event.tags.iter().map(|tag| tag.len() + 3));
    let texts = texts.chain(event.sid.as_ref().map(String::len));
    let texts = texts.chain(event.key.as_ref().map(|key| key.as_str().len()));
    let ids = event.caused_by.iter().chain(&event.id).map(|id| id.as_bytes().len() + 24);
    let beside: usize = texts.chain(ids).sum();
    BYTES_AROUND_A_PAYLOAD + event.payload.as_bytes().len() + 6 * beside
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Outgoing;

    fn event(payload: &str) -> NewEvent {
        Outgoing::new(payload).unwrap().id("a\"b").header("é\u{1}", "\u{2}\u{3}").checked().unwrap()
    }

    #[test]
    fn frames_are_full_and_never_too_large() {
        let most = 4096;
        let mut gathering = Gathering::new(most);
        let mut frames: Vec<_> =
            (0..1000).filter_map(|n| gathering.push(event(&"x".repeat(n % 700)))).collect();
        frames.push(gathering.events);
        assert_eq!(frames.iter().map(Vec::len).sum::<usize>(), 1000);
        let topic = Topic::new("t").unwrap();
        for events in frames {
            let size = frames::publish_many(topic.clone(), events).len();
            assert!(size <= most, "{size}");
        }
        let mut small = Gathering::new(1 << 20);
        let full: Vec<_> = (0..2001).filter_map(|_| small.push(event(""))).collect();
        assert!(full.iter().all(|events| events.len() <= MAX_FRAME_EVENTS));
    }

    #[test]
    fn one_that_is_too_large_is_alone() {
        let mut gathering = Gathering::new(1000);
        assert!(gathering.push(event(&"x".repeat(5000))).is_none());
        assert_eq!(gathering.push(event("")).unwrap().len(), 1);
    }
}
