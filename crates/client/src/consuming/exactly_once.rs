//! Handlers whose effect is to happen once.

use std::collections::HashSet;
use std::future::Future;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

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
use crate::session::subscriber::Form;
use crate::transport::wait_after;

const USUAL_TTL: Duration = Duration::from_millis(DEFAULT_MARK_TTL_MS);
/// How often a store of the user's own is asked to mark before the event is given back.
const MARKING_TRIES: u32 = 5;
const FIRST_WAIT: Duration = Duration::from_millis(50);
const LONGEST_WAIT: Duration = Duration::from_secs(1);

/// A subscription by marks, to be made. From [`Client::subscribe_exactly_once`].
#[must_use = "nothing is subscribed to before `handle`"]
pub struct SubscribingExactlyOnce {
    client: Client,
    which: Result<Membership>,
    options: Options,
    ttl: Duration,
    store: Option<Arc<dyn Dedupe>>,
}

/// A subscription that publishes what comes of events, to be made. From
/// [`Client::transform_exactly_once`].
#[must_use = "nothing is subscribed to before `handle`"]
pub struct Transforming {
    client: Client,
    which: Result<Membership>,
    options: Options,
    ttl: Duration,
}

impl Client {
    /// Subscribes as [`subscribe`](Client::subscribe) does, and marks what was handled, so that it
    /// is not handled again:
    ///
    /// 1. An event that is marked for the group is acknowledged and not handled.
    /// 2. Otherwise the handler runs. One that fails leaves no mark, and the event comes again.
    /// 3. When it is done, the mark and the acknowledgement are stored in one commit of the bus.
    ///
    /// The handler runs a second time for one event only where it could not be known that the
    /// first had run to its end: this process died, or lost its lease to another one, after the
    /// handler's effect and before step 3 was stored. A lost connection alone is not such a case:
    /// the process remembers what it handled, and marks it when it is connected again, before
    /// it gets anything else. So the handler's effect is exactly once if it is in the bus
    /// ([`transform_exactly_once`](Client::transform_exactly_once)), or if marks are kept in the same transaction as the
    /// effect ([`store`](SubscribingExactlyOnce::store)), and at least once otherwise.
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
    pub fn subscribe_exactly_once(
        &self,
        topic: impl IntoTopic,
        group: &str,
    ) -> SubscribingExactlyOnce {
        SubscribingExactlyOnce {
            client: self.clone(),
            which: membership(topic, group),
            options: Options::default(),
            ttl: USUAL_TTL,
            store: None,
        }
    }

    /// Subscribes with a handler that answers events to publish, to any topics. They are published,
    /// the event is marked and it is acknowledged in **one commit**: all of it happens, once, or
    /// none.
    ///
    /// The handler itself may run more than once for an event, but what it answers is published
    /// once. Where somebody else has the event by then, what this handler answered is dropped.
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
    pub fn transform_exactly_once(&self, topic: impl IntoTopic, group: &str) -> Transforming {
        Transforming {
            client: self.clone(),
            which: membership(topic, group),
            options: Options::default(),
            ttl: USUAL_TTL,
        }
    }
}

impl SubscribingExactlyOnce {
    subscription_options!();

    /// How long marks are kept, 1 second to 365 days; 7 days unless said. An event that comes
    /// again later than that is handled again.
    pub fn ttl(mut self, ttl: Duration) -> Self {
        self.ttl = ttl;
        self
    }

    /// Keeps marks in a store of your own rather than in the bus. It is asked before the handler
    /// runs, and told when it is done, before the event is acknowledged. A store that fails to
    /// mark is asked again, and until it did, this process handles the event no second time.
    pub fn store(mut self, store: impl Dedupe) -> Self {
        self.store = Some(Arc::new(store));
        self
    }

    /// Subscribes, and answers when the server has taken it.
    pub async fn handle<T, H, F>(self, handle: H) -> Result<Subscription>
    where
        T: DeserializeOwned + Send + 'static,
        H: Fn(Received<T>) -> F + Send + Sync + 'static,
        F: Future<Output = Result<(), HandlerError>> + Send + 'static,
    {
        let which = self.which?;
        let handler = handler(handle, |()| Handled::Done);
        let (form, handler) = match self.store {
            None => (Form::Marked(self.ttl), handler),
            Some(store) => (Form::Plain, marking_in(store, which.clone(), self.ttl, handler)),
        };
        self.client.follow(which, self.options, form, handler).await
    }
}

impl Transforming {
    subscription_options!();

    /// How long marks are kept, 1 second to 365 days; 7 days unless said.
    pub fn ttl(mut self, ttl: Duration) -> Self {
        self.ttl = ttl;
        self
    }

    /// Subscribes, and answers when the server has taken it. What `handle` answers is published:
    /// at most 1000 events, which have to fit in one frame.
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
        self.client.follow(self.which?, self.options, Form::Transformed(self.ttl), handler).await
    }
}

fn checked((topic, event): (impl IntoTopic, Outgoing)) -> Result<(Topic, NewEvent)> {
    Ok((topic.into_topic()?, event.checked()?))
}

/// A handler that asks `store` first, and tells it at last.
fn marking_in(
    store: Arc<dyn Dedupe>,
    which: Membership,
    ttl: Duration,
    handler: Handler,
) -> Handler {
    let unmarked: Arc<Mutex<HashSet<EventId>>> = Arc::default();
    Arc::new(move |delivery| {
        let (store, which, handler) = (Arc::clone(&store), which.clone(), Arc::clone(&handler));
        let unmarked = Arc::clone(&unmarked);
        Box::pin(async move {
            let Membership { topic, group } = &which;
            let id = match id_within(&delivery.json) {
                Ok(id) => id,
                Err(error) => return HandlerError::from(error).into(),
            };
            // Handled by this process, and the store did not take the mark.
            let is_unmarked = lock(&unmarked).contains(&id);
            if !is_unmarked {
                match store.seen(topic, group, &id).await {
                    Ok(true) => return Handled::Done,
                    Ok(false) => {}
                    Err(error) => return error.into(),
                }
                match handler(delivery).await {
                    Handled::Done => {}
                    other => return other,
                }
                lock(&unmarked).insert(id.clone());
            }
            match mark(&*store, &which, &id, ttl).await {
                Ok(()) => {
                    lock(&unmarked).remove(&id);
                    Handled::Done
                }
                Err(error) => {
                    HandlerError::new(format_args!("handled, not marked: {error}")).into()
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
            Err(_) if failed + 1 < MARKING_TRIES => {
                tokio::time::sleep(wait_after(FIRST_WAIT, LONGEST_WAIT, failed)).await;
                failed += 1;
            }
            result => return result,
        }
    }
}

fn lock(ids: &Mutex<HashSet<EventId>>) -> std::sync::MutexGuard<'_, HashSet<EventId>> {
    ids.lock().unwrap_or_else(PoisonError::into_inner)
}
