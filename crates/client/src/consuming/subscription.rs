//! Subscribing: how a subscription is made, and the handle of one that runs.

use std::future::Future;
use std::time::Duration;

use prombus_proto::frame::{Membership, StartFrom, SubscribeOptions};
use prombus_proto::limits::MAX_IN_FLIGHT;
use prombus_proto::{EventId, Group, Timestamp, Topic};
use serde::de::DeserializeOwned;
use tokio::sync::{oneshot, watch};

use crate::client::Client;
use crate::consuming::handler::{Handled, Handler, HandlerError, handler};
use crate::consuming::received::Received;
use crate::names::{IntoTopic, group_named};
use crate::session::Command;
use crate::session::subscriber::{Following, Form};
use crate::{Error, Result};

/// Where a group begins that does not exist yet. One that exists goes on where it was.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Start {
    /// With what is published from now on.
    #[default]
    Latest,
    /// With the first event there is.
    Earliest,
    /// With the first event of this time or later, in milliseconds since 1970.
    Ts(u64),
    /// With the event behind this one.
    AfterId(EventId),
}

impl From<Start> for StartFrom {
    fn from(start: Start) -> Self {
        match start {
            Start::Latest => StartFrom::Latest,
            Start::Earliest => StartFrom::Earliest,
            Start::Ts(ms) => StartFrom::Ts(Timestamp(ms)),
            Start::AfterId(id) => StartFrom::AfterId(id),
        }
    }
}

/// What every kind of subscription can be told.
#[derive(Clone, Debug)]
pub(crate) struct Options {
    pub(crate) concurrency: usize,
    pub(crate) start: Start,
    pub(crate) max_in_flight: Option<u32>,
    pub(crate) ack_timeout: Option<Duration>,
    pub(crate) max_attempts: Option<u32>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            concurrency: 1,
            start: Start::Latest,
            max_in_flight: None,
            ack_timeout: None,
            max_attempts: None,
        }
    }
}

impl Options {
    /// Twice as many events as handlers, and some: the next are here when a handler is done, and
    /// not many are kept from others of the group.
    fn wire(self) -> SubscribeOptions {
        let usual = u32::try_from(self.concurrency * 2 + 14).unwrap_or(MAX_IN_FLIGHT);
        SubscribeOptions {
            from: self.start.into(),
            max_in_flight: Some(self.max_in_flight.unwrap_or(usual.min(MAX_IN_FLIGHT))),
            ack_timeout_ms: self.ack_timeout.map(crate::session::frames::millis),
            max_attempts: self.max_attempts,
        }
    }
}

/// The setters of [`Options`], the same for every kind of subscription.
macro_rules! subscription_options {
    () => {
        /// How many events are handled at a time; 1 unless said, so that events are handled in
        /// their order and a handler need not mind others of its kind.
        pub fn concurrency(mut self, handlers: usize) -> Self {
            self.options.concurrency = handlers.max(1);
            self
        }

        /// Where the group begins if it does not exist yet.
        pub fn from(mut self, start: crate::Start) -> Self {
            self.options.start = start;
            self
        }

        /// How many events may be here that are not done, those included that wait for a
        /// handler: 1 to 10,000. Unless said, twice as many as are handled at a time, and 14 more.
        pub fn max_in_flight(mut self, events: u32) -> Self {
            self.options.max_in_flight = Some(events);
            self
        }

        /// How long the server waits to hear of an event before it lends it to others. The client
        /// asks for more time while it has the event, so this is how long others wait when it is
        /// gone without a word. Unless said, what the server is set to (30 seconds).
        pub fn ack_timeout(mut self, timeout: std::time::Duration) -> Self {
            self.options.ack_timeout = Some(timeout);
            self
        }

        /// How often an event is delivered before it goes to the dead letters, `dlq.<topic>`.
        /// Unless said, what the server is set to (5).
        pub fn max_attempts(mut self, attempts: u32) -> Self {
            self.options.max_attempts = Some(attempts);
            self
        }
    };
}
pub(crate) use subscription_options;

/// A subscription to be made. From [`Client::subscribe`].
#[must_use = "nothing is subscribed to before `handle`"]
pub struct Subscribing {
    client: Client,
    which: Result<Membership>,
    options: Options,
}

impl Client {
    /// Subscribes to a topic as a member of a group: a handler is called for every event, **at
    /// least once**, whatever happens to the connection, the server or this process.
    ///
    /// An event is acknowledged when its handler answers `Ok`. One whose handler answers an error, or
    /// panics, is given back with that as the reason; it comes again later, here or elsewhere,
    /// and after the last attempt goes to the topic `dlq.<topic>`. While a handler runs the client
    /// keeps the event from others, however long it takes.
    ///
    /// When the connection is lost, handlers go on, and the subscription is made again with the next connection. An
    /// event whose acknowledgement was not answered comes again then; one whose handler still
    /// runs here is not handed to another handler of this subscription.
    pub fn subscribe(&self, topic: impl IntoTopic, group: &str) -> Subscribing {
        Subscribing {
            client: self.clone(),
            which: membership(topic, group),
            options: Options::default(),
        }
    }

    pub(crate) async fn follow(
        &self,
        which: Membership,
        options: Options,
        form: Form,
        handler: Handler,
    ) -> Result<Subscription> {
        let (started, answer) = oneshot::channel();
        let (ended_sender, ended) = watch::channel(None);
        let concurrency = options.concurrency;
        let following = Following {
            which: which.clone(),
            opts: options.wire(),
            form,
            concurrency,
            handler,
            started,
            ended: ended_sender,
        };
        self.command(Command::Subscribe(Box::new(following))).await?;
        answer.await.map_err(|_| self.ended())??;
        Ok(Subscription { client: self.clone(), which, ended })
    }
}

pub(crate) fn membership(topic: impl IntoTopic, group: &str) -> Result<Membership> {
    Ok(Membership { topic: topic.into_topic()?, group: group_named(group)? })
}

impl Subscribing {
    subscription_options!();

    /// Subscribes, and answers when the server has taken it. `handle` is called with each event,
    /// its payload read as a `T`; one that cannot be read so is given back like one whose handler
    /// failed.
    pub async fn handle<T, H, F>(self, handle: H) -> Result<Subscription>
    where
        T: DeserializeOwned + Send + 'static,
        H: Fn(Received<T>) -> F + Send + Sync + 'static,
        F: Future<Output = Result<(), HandlerError>> + Send + 'static,
    {
        let handler = handler(handle, |()| Handled::Done);
        self.client.follow(self.which?, self.options, Form::Plain, handler).await
    }
}

/// A subscription that runs. Dropping this does not end it; [`stop`](Subscription::stop) does.
#[derive(Clone, Debug)]
pub struct Subscription {
    client: Client,
    which: Membership,
    ended: watch::Receiver<Option<Result<()>>>,
}

impl Subscription {
    /// What it follows.
    #[must_use]
    pub const fn topic(&self) -> &Topic {
        &self.which.topic
    }

    /// For whom.
    #[must_use]
    pub const fn group(&self) -> &Group {
        &self.which.group
    }

    /// Gets no more events until it is resumed, also over later connections. Those that came
    /// before are still handled.
    pub async fn pause(&self) -> Result<()> {
        self.set_paused(true).await
    }

    /// Gets events again.
    pub async fn resume(&self) -> Result<()> {
        self.set_paused(false).await
    }

    async fn set_paused(&self, is_paused: bool) -> Result<()> {
        let (reply, answer) = oneshot::channel();
        let which = self.which.clone();
        self.client.command(Command::SetPaused { which, is_paused, reply }).await?;
        answer.await.map_err(|_| self.client.ended())?
    }

    /// Stops: no handler is called any more, those that run may finish and are acknowledged, and
    /// what waited for one goes to others. Answers when all that is done.
    pub async fn stop(&self) -> Result<()> {
        self.client.command(Command::Stop(self.which.clone())).await?;
        self.ended().await
    }

    /// Waits until it is over: `Ok` when it was stopped, and otherwise why it cannot go on, such
    /// as a token that does not allow it any more.
    pub async fn ended(&self) -> Result<()> {
        let mut ended = self.ended.clone();
        let result = match ended.wait_for(Option::is_some).await {
            Ok(result) => result.clone(),
            Err(_) => return Err(self.client.ended()),
        };
        result.unwrap_or(Err(Error::Ended))
    }
}
