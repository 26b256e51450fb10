//! Building a subscription, and the handle to a running one.

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
use crate::names::{IntoTopic, parse_group};
use crate::session::Command;
use crate::session::subscriber::{AckMode, SubscribeRequest};
use crate::{Error, Result};

/// Where a new consumer group starts. An existing group continues at its cursor.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Start {
    /// With events published from now on.
    #[default]
    Latest,
    /// With the first stored event.
    Earliest,
    /// With the first event at or after this time, in milliseconds since the Unix epoch.
    Ts(u64),
    /// With the event after this one.
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

/// The options of every kind of subscription.
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
    /// By default, `max_in_flight` is a little more than twice the number of handlers: the next
    /// event is here when a handler is done, and few are withheld from other members.
    fn into_wire(self) -> SubscribeOptions {
        let default = u32::try_from(self.concurrency * 2 + 14).unwrap_or(MAX_IN_FLIGHT);
        SubscribeOptions {
            from: self.start.into(),
            max_in_flight: Some(self.max_in_flight.unwrap_or(default.min(MAX_IN_FLIGHT))),
            ack_timeout_ms: self.ack_timeout.map(crate::session::frames::millis),
            max_attempts: self.max_attempts,
        }
    }
}

/// The setters of [`Options`], the same for every kind of subscription.
macro_rules! subscription_options {
    () => {
        /// Sets how many handlers run at a time. With the default of 1, events are handled in
        /// order.
        pub fn concurrency(mut self, handlers: usize) -> Self {
            self.options.concurrency = handlers.max(1);
            self
        }

        /// Sets where the group starts if it does not exist yet. Default:
        /// [`Start::Latest`](crate::Start::Latest).
        pub fn from(mut self, start: crate::Start) -> Self {
            self.options.start = start;
            self
        }

        /// Sets how many events this client may hold unacknowledged, including those that wait for
        /// a handler: 1 to 10,000. Default: twice the [concurrency](Self::concurrency) plus 14.
        pub fn max_in_flight(mut self, events: u32) -> Self {
            self.options.max_in_flight = Some(events);
            self
        }

        /// Sets the length of a lease. The client extends it for as long as it holds the event, so
        /// this is how long redelivery takes after the client has crashed. Default: the server's
        /// setting (30 seconds).
        pub fn ack_timeout(mut self, timeout: std::time::Duration) -> Self {
            self.options.ack_timeout = Some(timeout);
            self
        }

        /// Sets how often an event fails before it becomes a dead letter in `dlq.<topic>`, from now on
        /// for the whole group. Default: what another subscription has set, or else the server's
        /// setting (5).
        pub fn max_attempts(mut self, attempts: u32) -> Self {
            self.options.max_attempts = Some(attempts);
            self
        }
    };
}
pub(crate) use subscription_options;

/// The options of a subscription. Created by [`Client::subscribe`].
#[must_use = "a builder does nothing until `handle` is called"]
pub struct SubscriptionBuilder {
    client: Client,
    membership: Result<Membership>,
    options: Options,
}

impl Client {
    /// Subscribes to a topic as a member of a consumer group. The handler is called for every
    /// event **at least once**, even if the connection is lost or the server or this process
    /// crashes.
    ///
    /// An event is acknowledged when its handler returns `Ok`. If the handler returns an error or
    /// panics, the event is redelivered later, here or to another member; after the last attempt
    /// it becomes a dead letter in `dlq.<topic>`, and at once after
    /// [`HandlerError::reject`](crate::HandlerError::reject). While a handler runs, the client extends the
    /// event's lease, however long it takes.
    ///
    /// When the connection is lost, running handlers continue, and the client subscribes again over
    /// the next connection. Events whose acknowledgement was not confirmed are redelivered then.
    /// An event whose handler still runs here is not passed to a second one.
    pub fn subscribe(&self, topic: impl IntoTopic, group: &str) -> SubscriptionBuilder {
        SubscriptionBuilder {
            client: self.clone(),
            membership: membership(topic, group),
            options: Options::default(),
        }
    }

    pub(crate) async fn start_subscription(
        &self,
        membership: Membership,
        options: Options,
        mode: AckMode,
        handler: Handler,
    ) -> Result<Subscription> {
        let (started, answer) = oneshot::channel();
        let (ended_sender, ended) = watch::channel(None);
        let concurrency = options.concurrency;
        let request = SubscribeRequest {
            membership: membership.clone(),
            opts: options.into_wire(),
            mode,
            concurrency,
            handler,
            started,
            ended: ended_sender,
        };
        self.command(Command::Subscribe(Box::new(request))).await?;
        answer.await.map_err(|_| self.ended())??;
        Ok(Subscription { client: self.clone(), membership, ended })
    }
}

pub(crate) fn membership(topic: impl IntoTopic, group: &str) -> Result<Membership> {
    Ok(Membership { topic: topic.into_topic()?, group: parse_group(group)? })
}

impl SubscriptionBuilder {
    subscription_options!();

    /// Subscribes, and returns when the server has accepted the subscription. `handle` is called
    /// with each event, its payload decoded as a `T`. An event that cannot be decoded is treated
    /// as if its handler had failed.
    ///
    /// # Errors
    ///
    /// Fails if a name or an option is not valid, if the token does not allow the subscription, or
    /// if this client has subscribed to the topic with this group already.
    pub async fn handle<T, H, F>(self, handle: H) -> Result<Subscription>
    where
        T: DeserializeOwned + Send + 'static,
        H: Fn(Received<T>) -> F + Send + Sync + 'static,
        F: Future<Output = Result<(), HandlerError>> + Send + 'static,
    {
        let handler = handler(handle, |()| Handled::Done);
        let mode = AckMode::Plain;
        self.client.start_subscription(self.membership?, self.options, mode, handler).await
    }
}

/// A handle to a running subscription. Dropping it does not end the subscription;
/// [`stop`](Subscription::stop) does.
#[derive(Clone, Debug)]
pub struct Subscription {
    client: Client,
    membership: Membership,
    ended: watch::Receiver<Option<Result<()>>>,
}

impl Subscription {
    /// Returns the topic it subscribes to.
    #[must_use]
    pub const fn topic(&self) -> &Topic {
        &self.membership.topic
    }

    /// Returns the consumer group it is a member of.
    #[must_use]
    pub const fn group(&self) -> &Group {
        &self.membership.group
    }

    /// Receives no more events until it is [resumed](Self::resume), also over later connections.
    /// Events that were delivered before are still handled.
    ///
    /// # Errors
    ///
    /// Fails if the subscription has ended.
    pub async fn pause(&self) -> Result<()> {
        self.set_paused(true).await
    }

    /// Receives events again after a [pause](Self::pause).
    ///
    /// # Errors
    ///
    /// Fails if the subscription has ended.
    pub async fn resume(&self) -> Result<()> {
        self.set_paused(false).await
    }

    async fn set_paused(&self, is_paused: bool) -> Result<()> {
        let (reply, answer) = oneshot::channel();
        let membership = self.membership.clone();
        self.client.command(Command::SetPaused { membership, is_paused, reply }).await?;
        answer.await.map_err(|_| self.client.ended())?
    }

    /// Stops the subscription: starts no more handlers, waits for the running ones and acknowledges
    /// their events. Events that waited for a handler go to other members.
    ///
    /// # Errors
    ///
    /// Fails if the subscription or the client ended with an error.
    pub async fn stop(&self) -> Result<()> {
        self.client.command(Command::Stop(self.membership.clone())).await?;
        self.ended().await
    }

    /// Waits until the subscription has ended: `Ok` after [`stop`](Self::stop).
    ///
    /// # Errors
    ///
    /// Returns why the subscription could not continue, for example because the token does not
    /// allow it any more.
    pub async fn ended(&self) -> Result<()> {
        let mut ended = self.ended.clone();
        let result = match ended.wait_for(Option::is_some).await {
            Ok(result) => result.clone(),
            Err(_) => return Err(self.client.ended()),
        };
        result.unwrap_or(Err(Error::Ended))
    }
}
