//! Reading stored events over HTTP: replay by page, or export as one stream.

use std::collections::VecDeque;
use std::marker::PhantomData;
use std::pin::Pin;
use std::sync::Arc;
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
use crate::{DamagedRange, Error, Event, Result};

/// Attempts in a row after a lost connection.
const MAX_RETRIES: u32 = 8;
const PAGE_EVENTS: u64 = 1000;

/// Stored events of a topic, in order. It implements [`Stream`]; [`next`](EventStream::next) works
/// without a crate for streams.
pub struct EventStream<T> {
    events: Pin<Box<dyn Stream<Item = Result<Bytes>> + Send>>,
    payload: PhantomData<fn() -> T>,
}

impl<T: DeserializeOwned> EventStream<T> {
    fn new(source: impl Source) -> Self {
        let events = futures_util::stream::try_unfold(source, |mut source| async move {
            Ok(source.next().await?.map(|event| (event, source)))
        });
        Self { events: Box::pin(events), payload: PhantomData }
    }

    /// Returns the next event, or `None` at the end. The stream ends after an error.
    ///
    /// # Errors
    ///
    /// Fails if the event cannot be decoded, or if the server refuses the request or cannot be
    /// reached.
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

/// Yields the JSON of one event after the other.
trait Source: Send + 'static {
    fn next(&mut self) -> impl Future<Output = Result<Option<Bytes>>> + Send;
}

/// The options of a replay. Created by [`Client::replay`].
#[derive(Clone)]
#[must_use = "a builder does nothing until `stream` is called"]
pub struct ReplayBuilder {
    client: Client,
    topic: Result<Topic>,
    ts: Option<u64>,
    after_id: Option<EventId>,
    limit: u64,
    on_damaged: Option<DamageHandler>,
}

/// The options of an export. Created by [`Client::export`].
#[derive(Clone)]
#[must_use = "a builder does nothing until `stream` is called"]
pub struct ExportBuilder {
    client: Client,
    topic: Result<Topic>,
    from_ts: Option<u64>,
    to_ts: u64,
    after_id: Option<EventId>,
    on_damaged: Option<DamageHandler>,
}

type DamageHandler = Arc<dyn Fn(DamagedRange) + Send + Sync>;

impl Client {
    /// Reads stored events page by page, for example to inspect a part of a topic. Requires
    /// [`Builder::http`](crate::Builder::http).
    pub fn replay(&self, topic: impl IntoTopic) -> ReplayBuilder {
        let (client, topic) = (self.clone(), topic.into_topic());
        ReplayBuilder { client, topic, ts: None, after_id: None, limit: u64::MAX, on_damaged: None }
    }

    /// Reads all events of a topic as one stream, which ends with the last event that was stored
    /// when the export started. After a lost connection, it resumes after the last event received.
    /// Requires [`Builder::http`](crate::Builder::http).
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
    pub fn export(&self, topic: impl IntoTopic) -> ExportBuilder {
        let (client, topic) = (self.clone(), topic.into_topic());
        let (from_ts, to_ts) = (None, u64::MAX);
        ExportBuilder { client, topic, from_ts, to_ts, after_id: None, on_damaged: None }
    }
}

impl ReplayBuilder {
    /// Starts with the first event at or after this time, in milliseconds since the Unix epoch.
    pub fn from_ts(mut self, ms: u64) -> Self {
        (self.ts, self.after_id) = (Some(ms), None);
        self
    }

    /// Starts after this event.
    pub fn after_id(mut self, id: &EventId) -> Self {
        (self.ts, self.after_id) = (None, Some(id.clone()));
        self
    }

    /// Ends after this many events.
    pub fn limit(mut self, events: u64) -> Self {
        self.limit = events;
        self
    }

    /// Calls `handler` for events that the server cannot read back, and continues behind them. Without
    /// it, the stream ends there with [`Error::Damaged`].
    pub fn on_damaged(mut self, handler: impl Fn(DamagedRange) + Send + Sync + 'static) -> Self {
        self.on_damaged = Some(Arc::new(handler));
        self
    }

    /// Returns the events, with payloads decoded as `T`.
    ///
    /// # Errors
    ///
    /// Fails if the topic is not valid, or if the client has no HTTP address.
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
            remaining: self.limit,
            damaged: None,
            on_damaged: self.on_damaged,
            retries: Retries::of(&self.client),
        }))
    }
}

impl ExportBuilder {
    /// Leaves out events before this time, in milliseconds since the Unix epoch.
    pub fn from_ts(mut self, ms: u64) -> Self {
        self.from_ts = Some(ms);
        self
    }

    /// Leaves out events after this time, in milliseconds since the Unix epoch.
    pub fn to_ts(mut self, ms: u64) -> Self {
        self.to_ts = ms;
        self
    }

    /// Leaves out this event and those before it.
    pub fn after_id(mut self, id: &EventId) -> Self {
        self.after_id = Some(id.clone());
        self
    }

    /// Calls `handler` for events that the server cannot read back, and continues behind them. Without
    /// it, the stream ends there with [`Error::Damaged`].
    pub fn on_damaged(mut self, handler: impl Fn(DamagedRange) + Send + Sync + 'static) -> Self {
        self.on_damaged = Some(Arc::new(handler));
        self
    }

    /// Returns the events, with payloads decoded as `T`.
    ///
    /// # Errors
    ///
    /// Fails if the topic is not valid, or if the client has no HTTP address.
    pub fn stream<T: DeserializeOwned>(self) -> Result<EventStream<T>> {
        Ok(EventStream::new(Export {
            http: self.client.http_client()?,
            topic: self.topic?,
            from_ts: self.from_ts,
            to_ts: self.to_ts,
            after: self.after_id,
            response: None,
            buffer: BytesMut::new(),
            has_ended: false,
            on_damaged: self.on_damaged,
            retries: Retries::of(&self.client),
        }))
    }
}

/// Retries after failures, with back-off.
struct Retries {
    back_off: BackOff,
    random: Arc<dyn prombus_proto::RandomSource>,
}

impl Retries {
    fn of(client: &Client) -> Self {
        let random = Arc::clone(&client.shared.random);
        Self { back_off: client.shared.back_off.clone(), random }
    }

    /// Waits before the next attempt. Fails if retrying does not help or there were too many.
    async fn wait_after(&mut self, failure: HttpFailure) -> Result<()> {
        if !failure.is_retryable() || self.back_off.failures() >= MAX_RETRIES {
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
    /// The path of the next page; `None` after the last one.
    next: Option<String>,
    page: VecDeque<Bytes>,
    /// The damage behind the events of the page.
    damaged: Option<DamagedRange>,
    on_damaged: Option<DamageHandler>,
    remaining: u64,
    retries: Retries,
}

#[derive(Deserialize)]
struct Page<'a> {
    #[serde(borrow)]
    events: Vec<&'a RawValue>,
    damaged: Option<DamagedRange>,
    next: Option<String>,
}

/// Reports damage to the handler, or as an error if there is none.
fn pass_damage(handler: Option<&DamageHandler>, range: DamagedRange) -> Result<()> {
    let handler = handler.ok_or(Error::Damaged(range))?;
    handler(range);
    Ok(())
}

impl Source for Replay {
    async fn next(&mut self) -> Result<Option<Bytes>> {
        while self.remaining > 0 {
            if let Some(event) = self.page.pop_front() {
                self.remaining -= 1;
                return Ok(Some(event));
            }
            if let Some(range) = self.damaged.take() {
                pass_damage(self.on_damaged.as_ref(), range)?;
            }
            let Some(query) = &self.next else { return Ok(None) };
            match fetch_page(&mut self.http, query).await {
                Ok(json) => {
                    self.retries.back_off.reset();
                    let page: Page<'_> = serde_json::from_slice(&json)
                        .map_err(|error| Error::NotUnderstood(error.to_string()))?;
                    let events = page.events.iter();
                    self.page =
                        events.map(|event| json.slice_ref(event.get().as_bytes())).collect();
                    self.damaged = page.damaged;
                    let next = page.next.map(|query| format!("/replay?{query}"));
                    if next.as_ref() == Some(query) {
                        let reason = "the next page is the same page".to_owned();
                        return Err(Error::NotUnderstood(reason));
                    }
                    self.next = next;
                }
                Err(failure) => self.retries.wait_after(failure).await?,
            }
        }
        Ok(None)
    }
}

async fn fetch_page(http: &mut HttpClient, query: &str) -> Result<Bytes, HttpFailure> {
    http.get(query).await?.bytes().await
}

struct Export {
    http: HttpClient,
    topic: Topic,
    from_ts: Option<u64>,
    to_ts: u64,
    /// The last event returned, after which the export resumes.
    after: Option<EventId>,
    response: Option<HttpResponse>,
    /// Received bytes that are not returned yet.
    buffer: BytesMut,
    has_ended: bool,
    on_damaged: Option<DamageHandler>,
    retries: Retries,
}

impl Source for Export {
    async fn next(&mut self) -> Result<Option<Bytes>> {
        loop {
            if let Some(end) = memchr(b'\n', &self.buffer) {
                let line = self.buffer.split_to(end + 1).freeze().slice(..end);
                if let Some(range) = DamagedRange::from_line(&line) {
                    pass_damage(self.on_damaged.as_ref(), range)?;
                    continue;
                }
                self.after = Some(id_within(&line)?);
                return Ok(Some(line));
            }
            if self.has_ended {
                return Ok(None);
            }
            if self.buffer.len() > MAX_EVENT_BYTES {
                return Err(Error::NotUnderstood("a line exceeds the largest event".to_owned()));
            }
            if let Err(failure) = self.receive().await {
                // The next response starts after the last complete line.
                self.response = None;
                self.buffer.clear();
                self.retries.wait_after(failure).await?;
            }
        }
    }
}

impl Export {
    /// Receives more bytes, opening the response first if there is none.
    async fn receive(&mut self) -> Result<(), HttpFailure> {
        let response = match &mut self.response {
            Some(response) => response,
            None => {
                let query = Query::of("/export")
                    .with("topic", Some(&self.topic))
                    .with("fromTs", self.from_ts)
                    .with("toTs", Some(self.to_ts))
                    .with("afterId", self.after.as_ref())
                    .with("damaged", Some("skip"));
                self.response.insert(self.http.get(query.as_str()).await?)
            }
        };
        match response.next().await? {
            Some(bytes) => {
                self.retries.back_off.reset();
                self.buffer.extend_from_slice(&bytes);
            }
            None if self.buffer.is_empty() => self.has_ended = true,
            None => {
                return Err(HttpFailure::Lost(
                    "the response ended in the middle of a line".to_owned(),
                ));
            }
        }
        Ok(())
    }
}
