//! Reading what a topic holds, by HTTP: page by page, or all at once.

use std::collections::VecDeque;
use std::marker::PhantomData;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use futures_core::Stream;
use futures_util::StreamExt;
use memchr::memchr;
use prombus_proto::limits::MAX_EVENT_BYTES;
use prombus_proto::{EventId, Topic};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;

use crate::client::Client;
use crate::event::id_within;
use crate::names::IntoTopic;
use crate::transport::{BackOff, HttpClient, HttpFailure, HttpResponse, Query, full_jitter};
use crate::{Error, Event, Result};

/// How often in a row a lost connection is tried again.
const TRIES: u32 = 8;
const PAGE_EVENTS: u64 = 1000;

/// Events that a topic holds, in the order of the topic. A [`Stream`]; without a crate for those,
/// [`next`](EventStream::next) is enough.
pub struct EventStream<T> {
    events: Pin<Box<dyn Stream<Item = Result<Bytes>> + Send>>,
    read_as: PhantomData<fn() -> T>,
}

impl<T: DeserializeOwned> EventStream<T> {
    fn new(source: impl Source) -> Self {
        let events = futures_util::stream::try_unfold(source, |mut source| async move {
            Ok(source.next().await?.map(|event| (event, source)))
        });
        Self { events: Box::pin(events), read_as: PhantomData }
    }

    /// The next event; `None` behind the last. After an error there is no next.
    pub async fn next(&mut self) -> Option<Result<Event<T>>> {
        StreamExt::next(self).await
    }
}

impl<T: DeserializeOwned> Stream for EventStream<T> {
    type Item = Result<Event<T>>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let next = self.events.as_mut().poll_next(context);
        next.map(|next| next.map(|json| json.and_then(|json| Event::decode(&json))))
    }
}

/// What gives one event after the other.
trait Source: Send + 'static {
    fn next(&mut self) -> impl Future<Output = Result<Option<Bytes>>> + Send;
}

/// A replay to be made. From [`Client::replay`].
#[derive(Clone)]
#[must_use = "nothing is read before `stream`"]
pub struct Replaying {
    client: Client,
    topic: Result<Topic>,
    ts: Option<u64>,
    after_id: Option<EventId>,
    limit: u64,
}

/// An export to be made. From [`Client::export`].
#[derive(Clone)]
#[must_use = "nothing is read before `stream`"]
pub struct Exporting {
    client: Client,
    topic: Result<Topic>,
    from_ts: Option<u64>,
    to_ts: u64,
    after_id: Option<EventId>,
}

impl Client {
    /// Reads what a topic holds by pages: for looking at some of it. Needs
    /// [`http`](crate::Builder::http).
    pub fn replay(&self, topic: impl IntoTopic) -> Replaying {
        let (client, topic) = (self.clone(), topic.into_topic());
        Replaying { client, topic, ts: None, after_id: None, limit: u64::MAX }
    }

    /// Reads all that a topic holds, as fast as it is taken. It ends where the topic ended when it
    /// began. A lost connection is opened again, and goes on behind the event that came last.
    /// Needs [`http`](crate::Builder::http).
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
    /// # client.publish_batch("orders.created", &[1, 2, 3]).await?;
    /// let mut events = client.export("orders.created").stream::<u32>()?;
    /// let mut sum = 0;
    /// while let Some(event) = events.next().await {
    ///     sum += event?.payload;
    /// }
    /// assert_eq!(sum, 6);
    /// # Ok(())
    /// # }
    /// ```
    pub fn export(&self, topic: impl IntoTopic) -> Exporting {
        let (client, topic) = (self.clone(), topic.into_topic());
        Exporting { client, topic, from_ts: None, to_ts: u64::MAX, after_id: None }
    }
}

impl Replaying {
    /// Begins with the first event of this time or later, in milliseconds since 1970.
    pub fn from_ts(mut self, ms: u64) -> Self {
        (self.ts, self.after_id) = (Some(ms), None);
        self
    }

    /// Begins behind this event.
    pub fn after_id(mut self, id: &EventId) -> Self {
        (self.ts, self.after_id) = (None, Some(id.clone()));
        self
    }

    /// Ends after so many events.
    pub fn limit(mut self, events: u64) -> Self {
        self.limit = events;
        self
    }

    /// The events, their payloads read as `T`s.
    pub fn stream<T: DeserializeOwned>(self) -> Result<EventStream<T>> {
        let first = PAGE_EVENTS.min(self.limit).max(1);
        let query = Query::of("/replay")
            .with("topic", Some(self.topic?))
            .with("ts", self.ts)
            .with("afterId", self.after_id)
            .with("limit", Some(first));
        Ok(EventStream::new(Replay {
            http: self.client.http_client()?,
            next: Some(query.as_str().to_owned()),
            page: VecDeque::new(),
            left: self.limit,
            patience: Patience::of(&self.client),
        }))
    }
}

impl Exporting {
    /// Only events of this time or later, in milliseconds since 1970.
    pub fn from_ts(mut self, ms: u64) -> Self {
        self.from_ts = Some(ms);
        self
    }

    /// Only events of this time or earlier.
    pub fn to_ts(mut self, ms: u64) -> Self {
        self.to_ts = ms;
        self
    }

    /// Only events behind this one.
    pub fn after_id(mut self, id: &EventId) -> Self {
        self.after_id = Some(id.clone());
        self
    }

    /// The events, their payloads read as `T`s.
    pub fn stream<T: DeserializeOwned>(self) -> Result<EventStream<T>> {
        Ok(EventStream::new(Export {
            http: self.client.http_client()?,
            topic: self.topic?,
            from_ts: self.from_ts,
            to_ts: self.to_ts,
            after: self.after_id,
            answer: None,
            received: BytesMut::new(),
            is_over: false,
            patience: Patience::of(&self.client),
        }))
    }
}

/// How long it is tried again.
struct Patience {
    back_off: BackOff,
    random: std::sync::Arc<dyn prombus_proto::RandomSource>,
}

impl Patience {
    fn of(client: &Client) -> Self {
        let random = std::sync::Arc::clone(&client.shared.random);
        Self { back_off: client.shared.back_off.clone(), random }
    }

    /// Waits for the next try, if this can get better and was not tried too often.
    async fn after(&mut self, failure: HttpFailure) -> Result<()> {
        if !failure.is_retryable() || self.back_off.failures() >= TRIES {
            return Err(failure.into());
        }
        let wait = full_jitter(self.back_off.next_wait(), &*self.random);
        let wait: Duration = failure.retry_after().unwrap_or(wait);
        tokio::time::sleep(wait).await;
        Ok(())
    }
}

struct Replay {
    http: HttpClient,
    /// The query of the next page, if there is one.
    next: Option<String>,
    page: VecDeque<Bytes>,
    left: u64,
    patience: Patience,
}

#[derive(Deserialize)]
struct Page<'a> {
    #[serde(borrow)]
    events: Vec<&'a RawValue>,
    next: Option<String>,
}

impl Source for Replay {
    async fn next(&mut self) -> Result<Option<Bytes>> {
        while self.left > 0 {
            if let Some(event) = self.page.pop_front() {
                self.left -= 1;
                return Ok(Some(event));
            }
            let Some(query) = &self.next else { return Ok(None) };
            match page(&mut self.http, query).await {
                Ok(json) => {
                    self.patience.back_off.reset();
                    let page: Page<'_> = serde_json::from_slice(&json)
                        .map_err(|error| Error::NotUnderstood(error.to_string()))?;
                    let events = page.events.iter();
                    self.page =
                        events.map(|event| json.slice_ref(event.get().as_bytes())).collect();
                    self.next = page.next.map(|query| format!("/replay?{query}"));
                }
                Err(failure) => self.patience.after(failure).await?,
            }
        }
        Ok(None)
    }
}

async fn page(http: &mut HttpClient, query: &str) -> Result<Bytes, HttpFailure> {
    http.get(query).await?.bytes().await
}

struct Export {
    http: HttpClient,
    topic: Topic,
    from_ts: Option<u64>,
    to_ts: u64,
    /// The last event that was given, or behind which it begins.
    after: Option<EventId>,
    answer: Option<HttpResponse>,
    received: BytesMut,
    is_over: bool,
    patience: Patience,
}

impl Source for Export {
    async fn next(&mut self) -> Result<Option<Bytes>> {
        loop {
            if let Some(end) = memchr(b'\n', &self.received) {
                let line = self.received.split_to(end + 1).freeze().slice(..end);
                self.after = Some(id_within(&line)?);
                return Ok(Some(line));
            }
            if self.is_over {
                return Ok(None);
            }
            if self.received.len() > MAX_EVENT_BYTES {
                return Err(Error::NotUnderstood("a line without end".to_owned()));
            }
            if let Err(failure) = self.receive().await {
                // Lines begin anew behind the last whole one.
                self.answer = None;
                self.received.clear();
                self.patience.after(failure).await?;
            }
        }
    }
}

impl Export {
    /// Some more bytes.
    async fn receive(&mut self) -> Result<(), HttpFailure> {
        let answer = match &mut self.answer {
            Some(answer) => answer,
            None => {
                let query = Query::of("/export")
                    .with("topic", Some(&self.topic))
                    .with("fromTs", self.from_ts)
                    .with("toTs", Some(self.to_ts))
                    .with("afterId", self.after.as_ref());
                self.answer.insert(self.http.get(query.as_str()).await?)
            }
        };
        match answer.next().await? {
            Some(bytes) => {
                self.patience.back_off.reset();
                self.received.extend_from_slice(&bytes);
            }
            None if self.received.is_empty() => self.is_over = true,
            None => return Err(HttpFailure::Lost("it ended within a line".to_owned())),
        }
        Ok(())
    }
}
