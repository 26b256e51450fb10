//! Subscriptions that mark handled events, so that an effect happens once.

use std::collections::HashSet;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use prombus_proto::frame::Membership;
use prombus_proto::limits::DEFAULT_MARK_TTL_MS;
use prombus_proto::{EventId, NewEvent, Topic};
use serde::de::DeserializeOwned;

use crate::Result;
use crate::client::Client;
use crate::consuming::dedupe::Dedupe;
use crate::consuming::handler::{Handled, Handler, HandlerError, handler};
use crate::consuming::received::Received;
use crate::consuming::subscription::{Options, Subscription, membership, subscription_options};
use crate::event::id_within;
use crate::names::IntoTopic;
use crate::publishing::outgoing::Outgoing;
use crate::session::subscriber::AckMode;
use crate::transport::wait_after;

const DEFAULT_TTL: Duration = Duration::from_millis(DEFAULT_MARK_TTL_MS);
/// Attempts to mark an event in a [`Dedupe`] store before the delivery fails.
const MARK_ATTEMPTS: u32 = 5;
const FIRST_WAIT: Duration = Duration::from_millis(50);
const LONGEST_WAIT: Duration = Duration::from_secs(1);

/// The options of a subscription that marks what it handled. Created by
/// [`Client::subscribe_exactly_once`].
#[must_use = "a builder does nothing until `handle` is called"]
pub struct ExactlyOnceBuilder {
    client: Client,
    membership: Result<Membership>,
    options: Options,
    ttl: Duration,
    store: Option<Arc<dyn Dedupe>>,
}

/// The options of a subscription that publishes its handler's output. Created by
/// [`Client::transform_exactly_once`].
#[must_use = "a builder does nothing until `handle` is called"]
pub struct TransformBuilder {
    client: Client,
    membership: Result<Membership>,
    options: Options,
    ttl: Duration,
}

impl Client {
    /// Subscribes like [`subscribe`](Client::subscribe), and marks handled events so that they are
    /// not handled again:
    ///
    /// 1. An event that is marked for the group is acknowledged without calling the handler.
    /// 2. Otherwise the handler runs. If it fails, no mark is stored, and the event is redelivered.
    /// 3. When it succeeds, the mark and the acknowledgement are stored in one commit of the bus.
    ///
    /// The handler runs a second time for an event only if this process crashes, or loses its
    /// lease to another member, after the handler's effect and before step 3 is stored. A lost
    /// connection alone does not cause that: the client remembers which events it has handled, and
    /// marks them over the next connection before it receives anything else. So the effect happens
    /// exactly once if it is in the bus
    /// ([`transform_exactly_once`](Client::transform_exactly_once)) or if the mark is stored in
    /// the same transaction as the effect ([`store`](ExactlyOnceBuilder::store)), and at least
    /// once otherwise.
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
    /// # use prombus_client::{Received, Start};
    /// # let id = client.publish("orders.created", &7).await?.id;
    /// let (mail, mut sent) = tokio::sync::mpsc::channel(10);
    /// let subscription = client
    ///     .subscribe_exactly_once("orders.created", "mail")
    ///     .from(Start::Earliest)
    ///     .handle(move |order: Received<u32>| {
    ///         let mail = mail.clone();
    ///         async move { Ok(mail.send(order.payload).await?) }
    ///     })
    ///     .await?;
    /// assert_eq!(sent.recv().await, Some(7));
    /// subscription.stop().await?;
    /// assert_eq!(client.seen("orders.created", "mail", &[id.clone()]).await?, [id]);
    /// # Ok(())
    /// # }
    /// ```
    pub fn subscribe_exactly_once(&self, topic: impl IntoTopic, group: &str) -> ExactlyOnceBuilder {
        ExactlyOnceBuilder {
            client: self.clone(),
            membership: membership(topic, group),
            options: Options::default(),
            ttl: DEFAULT_TTL,
            store: None,
        }
    }

    /// Subscribes with a handler that returns events to publish, to any topics. The bus publishes
    /// them, marks the consumed event and acknowledges it in **one commit**.
    ///
    /// The handler may run more than once for an event, but its output is published once. If
    /// another member has the event by then, the output of this handler is discarded.
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
    /// # use prombus_client::{Outgoing, Received, Start};
    /// # client.publish("orders.created", &7).await?;
    /// client
    ///     .transform_exactly_once("orders.created", "billing")
    ///     .from(Start::Earliest)
    ///     .handle(|order: Received<u32>| async move {
    ///         let invoice = Outgoing::new(&(order.payload * 100))?.caused_by(&order.id);
    ///         Ok(vec![("invoices.created", invoice)])
    ///     })
    ///     .await?;
    /// # let (done, mut invoices) = tokio::sync::mpsc::channel(1);
    /// # client
    /// #     .subscribe("invoices.created", "doc")
    /// #     .from(Start::Earliest)
    /// #     .handle(move |invoice: Received<u32>| {
    /// #         let done = done.clone();
    /// #         async move { Ok(done.send(invoice.payload).await?) }
    /// #     })
    /// #     .await?;
    /// # assert_eq!(invoices.recv().await, Some(700));
    /// # Ok(())
    /// # }
    /// ```
    pub fn transform_exactly_once(&self, topic: impl IntoTopic, group: &str) -> TransformBuilder {
        TransformBuilder {
            client: self.clone(),
            membership: membership(topic, group),
            options: Options::default(),
            ttl: DEFAULT_TTL,
        }
    }
}

impl ExactlyOnceBuilder {
    subscription_options!();

    /// Sets how long marks are stored, 1 second to 365 days. An event that is redelivered after
    /// that is handled again. Default: 7 days.
    pub fn ttl(mut self, ttl: Duration) -> Self {
        self.ttl = ttl;
        self
    }

    /// Stores marks in `store` instead of in the bus. It is asked before the handler runs, and
    /// marks the event after that, before the event is acknowledged. If marking fails, it is
    /// retried, and this process does not handle the event again meanwhile.
    pub fn store(mut self, store: impl Dedupe) -> Self {
        self.store = Some(Arc::new(store));
        self
    }

    /// Subscribes, and returns when the server has accepted the subscription.
    ///
    /// # Errors
    ///
    /// Fails as [`SubscriptionBuilder::handle`](crate::SubscriptionBuilder::handle) does.
    pub async fn handle<T, H, F>(self, handle: H) -> Result<Subscription>
    where
        T: DeserializeOwned + Send + 'static,
        H: Fn(Received<T>) -> F + Send + Sync + 'static,
        F: Future<Output = Result<(), HandlerError>> + Send + 'static,
    {
        let membership = self.membership?;
        let handler = handler(handle, |()| Handled::Done);
        let (mode, handler) = match self.store {
            None => (AckMode::Marked(self.ttl), handler),
            Some(store) => {
                (AckMode::Plain, with_store(store, membership.clone(), self.ttl, handler))
            }
        };
        self.client.start_subscription(membership, self.options, mode, handler).await
    }
}

impl TransformBuilder {
    subscription_options!();

    /// Sets how long marks are stored, 1 second to 365 days. Default: 7 days.
    pub fn ttl(mut self, ttl: Duration) -> Self {
        self.ttl = ttl;
        self
    }

    /// Subscribes, and returns when the server has accepted the subscription. The events that
    /// `handle` returns are published: at most 1000, which have to fit into one frame.
    ///
    /// # Errors
    ///
    /// Fails as [`SubscriptionBuilder::handle`](crate::SubscriptionBuilder::handle) does.
    pub async fn handle<T, H, F, N>(self, handle: H) -> Result<Subscription>
    where
        T: DeserializeOwned + Send + 'static,
        H: Fn(Received<T>) -> F + Send + Sync + 'static,
        F: Future<Output = Result<Vec<(N, Outgoing)>, HandlerError>> + Send + 'static,
        N: IntoTopic + 'static,
    {
        let handler = handler(handle, |events: Vec<(N, Outgoing)>| {
            let events: Result<Vec<_>> = events.into_iter().map(checked).collect();
            match events {
                Ok(events) => Handled::Produced(events),
                Err(error) => HandlerError::from(error).into(),
            }
        });
        let mode = AckMode::Transformed(self.ttl);
        self.client.start_subscription(self.membership?, self.options, mode, handler).await
    }
}

fn checked((topic, event): (impl IntoTopic, Outgoing)) -> Result<(Topic, NewEvent)> {
    Ok((topic.into_topic()?, event.checked()?))
}

/// Wraps `handler` so that events marked in `store` are skipped and others are marked afterwards.
fn with_store(
    store: Arc<dyn Dedupe>,
    membership: Membership,
    ttl: Duration,
    handler: Handler,
) -> Handler {
    let unmarked: Arc<Mutex<HashSet<EventId>>> = Arc::default();
    Arc::new(move |delivery| {
        let (store, handler) = (Arc::clone(&store), Arc::clone(&handler));
        let membership = membership.clone();
        let unmarked = Arc::clone(&unmarked);
        Box::pin(async move {
            let Membership { topic, group } = &membership;
            let id = match id_within(&delivery.json) {
                Ok(id) => id,
                Err(error) => return HandlerError::from(error).into(),
            };
            // An earlier delivery was handled, but the store failed to mark it.
            let is_handled = unmarked.lock().contains(&id);
            if !is_handled {
                match store.seen(topic, group, &id).await {
                    Ok(true) => return Handled::Done,
                    Ok(false) => {}
                    Err(error) => return error.into(),
                }
                match handler(delivery).await {
                    Handled::Done => {}
                    other => return other,
                }
                unmarked.lock().insert(id.clone());
            }
            match mark(&*store, &membership, &id, ttl).await {
                Ok(()) => {
                    unmarked.lock().remove(&id);
                    Handled::Done
                }
                Err(error) => {
                    let reason = format_args!("the event was handled but not marked: {error}");
                    HandlerError::new(reason).into()
                }
            }
        })
    })
}

async fn mark(
    store: &dyn Dedupe,
    Membership { topic, group }: &Membership,
    id: &EventId,
    ttl: Duration,
) -> Result<(), HandlerError> {
    let mut failed = 0;
    loop {
        match store.mark(topic, group, id, ttl).await {
            Err(_) if failed + 1 < MARK_ATTEMPTS => {
                tokio::time::sleep(wait_after(FIRST_WAIT, LONGEST_WAIT, failed)).await;
                failed += 1;
            }
            result => return result,
        }
    }
}
