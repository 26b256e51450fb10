//! The bus, as gateways and HTTP use it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use parking_lot::Mutex;
use prombus_engine::{Durability, Engine, Unavailable};
use prombus_proto::{Clock, Group, IdSource, NewEvent, SystemRandom, Topic};
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;

use crate::error::Refusal;
use crate::groups::{
    Command, DeliveryQueue, Description, GroupContext, GroupInfo, GroupReply, GroupTask, Groups,
    Member, MemberId, RetryRules, SubscribeOptions, Subscription, allowed_attempts, dropped_reply,
};
use crate::limits::{
    ConnectionLimit, LimitScope, Principal, Principals, RateLimit, keep_census_current,
};
use crate::memory::Memory;
use crate::metrics::{self, Metrics};
use crate::publish::{Committer, Submission, check_ts};
use crate::sharing::{GatewayId, GroupLeases, RemoteChanges};
use crate::spans::{SpanQueue, Tracer};
use crate::time::now;
use crate::topics::{
    FeedMemory, RetentionTask, Settings, TopicInUse, Topics, keep_settings_current,
};

/// The bus over one engine.
pub struct Bus {
    settings: Arc<Settings>,
    ctx: GroupContext,
    topics: Arc<Topics>,
    /// `None` without limits of principals.
    principals: Option<Principals>,
    memory: Memory,
    /// Until somebody takes it. `None` if no event has spans.
    finished_spans: Mutex<Option<SpanQueue>>,
    next_member: AtomicU64,
    /// Aborted when the bus is dropped.
    tasks: Vec<JoinHandle<()>>,
}

/// The state of one connection: its rate limit and its delivery queue.
#[derive(Clone, Debug)]
pub struct Connection {
    /// Shared by requests and deliveries.
    pub limit: ConnectionLimit,
    pub delivery_queue: Arc<DeliveryQueue>,
}

/// A principal may publish as many bytes as this many of its connections may.
const PRINCIPAL_BYTE_FACTOR: u64 = 20;

impl Bus {
    /// Starts a bus over `engine`, with tasks on the current Tokio runtime.
    #[must_use]
    pub fn start(
        engine: Arc<dyn Engine>,
        settings: Settings,
        clock: Arc<dyn Clock>,
        ids: Arc<IdSource>,
    ) -> Self {
        let settings = Arc::new(settings);
        let metrics = Arc::new(Metrics::new());
        // Settings are read when a process starts, so those of a later process are newer.
        let revision = clock.now().0;
        let memory = Memory::new(settings.memory);
        let feeds = FeedMemory::new(memory.feeds.clone());
        let topics = Topics::new(Arc::clone(&settings), revision, feeds, Arc::clone(&metrics));
        let topics = Arc::new(topics);
        let (committer, committing) =
            Committer::start(Arc::clone(&engine), Arc::clone(&topics), metrics.commit_meter());
        let retaining = RetentionTask {
            engine: Arc::clone(&engine),
            topics: Arc::clone(&topics),
            clock: Arc::clone(&clock),
            metrics: Arc::clone(&metrics),
        };
        let mut tasks = vec![committing, tokio::spawn(retaining.run())];
        let groups = Arc::new(Groups::default());
        let group_leases = engine
            .capabilities()
            .several_gateways
            .then(|| Arc::new(GroupLeases::new(&ids, settings.group_lease)));
        if let Some(leases) = group_leases.clone() {
            let leasing = Arc::clone(&leases).run(
                Arc::clone(&engine),
                Arc::clone(&clock),
                Arc::clone(&groups),
            );
            tasks.push(tokio::spawn(leasing));
            let changes = RemoteChanges::new(&leases.heartbeat, &topics, &groups);
            tasks.push(tokio::spawn(changes.run(Arc::clone(&engine))));
            let configuring = keep_settings_current(Arc::clone(&engine), Arc::clone(&topics));
            tasks.push(tokio::spawn(configuring));
            if settings.max_counts.is_some() {
                let (census, topics) = (Arc::clone(topics.census()), Arc::clone(&topics));
                let configured = move || topics.configured();
                let counting = keep_census_current(Arc::clone(&engine), census, configured);
                tasks.push(tokio::spawn(counting));
            }
        }
        let retry = RetryRules {
            delays: settings.retry,
            max_attempts: allowed_attempts(settings.subscription.max_attempts),
        };
        let principals = settings.principal_rate.map(|rate| {
            let bytes = settings.connection_bytes_per_sec;
            Principals::new(rate, bytes.map(|bytes| bytes.saturating_mul(PRINCIPAL_BYTE_FACTOR)))
        });
        let (tracer, finished_spans) = settings
            .spans
            .map(|spans| {
                let (random, dropped) = (Box::new(SystemRandom), metrics.spans().dropped);
                Tracer::new(spans, random, Arc::clone(&clock), dropped)
            })
            .unzip();
        Self {
            settings,
            ctx: GroupContext {
                census: Arc::clone(topics.census()),
                engine,
                committer,
                clock,
                ids,
                groups,
                metrics,
                notices: Arc::default(),
                tracer,
                group_leases,
                read_ahead: memory.read_ahead.clone(),
                retry,
                is_closing: Arc::new(AtomicBool::new(false)),
            },
            topics,
            principals,
            memory,
            finished_spans: Mutex::new(finished_spans),
            next_member: AtomicU64::new(1),
            tasks,
        }
    }

    /// Returns a new connection with its own rate limit and delivery queue, of a client that is not known
    /// yet.
    #[must_use]
    pub fn connect(&self) -> Connection {
        Connection {
            limit: ConnectionLimit::new(
                self.settings.connection_rate,
                self.settings.connection_bytes_per_sec,
                now(),
            ),
            delivery_queue: Arc::new(DeliveryQueue::new(
                self.settings.max_outbox_bytes,
                self.memory.deliveries.share(),
            )),
        }
    }

    /// Makes `connection` share the limits of `principal` from now on, whoever it belonged to before.
    pub fn identify(&self, connection: &Connection, principal: &Principal) {
        if let Some(principals) = &self.principals {
            principals.admit(&connection.limit, principal, now());
        }
    }

    /// Returns the publish rate limit of `topic`, or `None` if no one uses the topic.
    #[must_use]
    pub fn topic_limit(&self, topic: &Topic) -> Option<RateLimit> {
        Some(self.topics.find(topic)?.limit.clone())
    }

    /// Makes `connection` a member of `group` on `topic`, and returns once it has joined.
    ///
    /// # Errors
    ///
    /// As for [`Bus::join`], or if the group cannot be read or stored.
    pub async fn subscribe(
        &self,
        connection: &Connection,
        topic: &Topic,
        group: &Group,
        options: SubscribeOptions,
    ) -> Result<(Subscription, GroupInfo), Refusal> {
        let (subscription, joined) = self.join(connection, topic, group, options)?;
        let info = joined.await.unwrap_or_else(|_| Err(self.dropped_reply()))?;
        // No one waits for the reply.
        drop(subscription.resume());
        Ok((subscription, info))
    }

    /// Makes `connection` a member of `group` on `topic`. Creates the group if it does not exist.
    ///
    /// Returns before the member has joined. Commands may follow at once: the group handles them after the
    /// join. The member is paused, so that nothing is delivered before its client knows that it has joined.
    /// If it cannot join, the reply says why.
    ///
    /// # Errors
    ///
    /// If the bus is shutting down, the topic cannot have groups, or there are too many topics.
    pub fn join(
        &self,
        connection: &Connection,
        topic: &Topic,
        group: &Group,
        options: SubscribeOptions,
    ) -> Result<(Subscription, GroupReply<GroupInfo>), Refusal> {
        self.check_open()?;
        let id = MemberId(self.next_member.fetch_add(1, Ordering::Relaxed));
        let defaults = self.settings.subscription;
        let member = Member::new(
            id,
            (Arc::clone(&connection.delivery_queue), connection.limit.clone()),
            options.max_in_flight.unwrap_or(defaults.max_in_flight),
            options.ack_timeout.unwrap_or(defaults.ack_timeout),
        );
        let (reply, joined) = oneshot::channel();
        let SubscribeOptions { start, max_attempts, .. } = options;
        let join = Command::Join { member, start, max_attempts, reply };
        let start_group = || self.start_group(topic, group);
        let subscription = Subscription {
            topic: topic.clone(),
            group: group.clone(),
            member: id,
            commands: self.ctx.groups.send(topic, group, join, start_group)?,
            is_closing: Arc::clone(&self.ctx.is_closing),
        };
        Ok((subscription, joined))
    }

    /// Counts the topics and groups of the store, for the limits of their numbers. Call it before anything
    /// is published, and after [`Bus::load_topic_settings`].
    ///
    /// # Errors
    ///
    /// If the store cannot be read.
    pub async fn count_topics_and_groups(&self) -> Result<(), Refusal> {
        let configured = self.topics.configured();
        Ok(self.topics.census().count(self.engine().as_ref(), configured).await?)
    }

    pub(crate) fn start_group(
        &self,
        topic: &Topic,
        group: &Group,
    ) -> Result<mpsc::UnboundedSender<Command>, Refusal> {
        let (commands, inbox) = mpsc::unbounded_channel();
        // A group that is one too many is refused by its task, which knows whether it exists. A topic without
        // room is not remembered.
        let (topic, _) = self.topics.permit(topic, now())?;
        let task = GroupTask::new(self.ctx.clone(), topic, group.clone(), inbox)?;
        tokio::spawn(task.run());
        Ok(commands)
    }

    /// Returns the members and leases of a group, or `None` if no one subscribes to it here.
    pub async fn describe_group(&self, topic: &Topic, group: &Group) -> Option<Description> {
        let commands = self.ctx.groups.get(topic, group)?;
        let (reply, description) = oneshot::channel();
        commands.send(Command::Describe { reply }).ok()?;
        description.await.ok()
    }

    /// Returns the budgets of buffers.
    #[must_use]
    pub const fn memory(&self) -> &Memory {
        &self.memory
    }

    #[must_use]
    pub const fn metrics(&self) -> &Arc<Metrics> {
        &self.ctx.metrics
    }

    /// Returns the metrics in the Prometheus text format 0.0.4. Reads the lag of all groups from the
    /// engine.
    pub async fn metrics_text(&self) -> Result<String, Refusal> {
        metrics::text(&self.ctx.metrics, self.ctx.engine.as_ref(), &self.memory).await
    }

    /// Returns the finished spans, for the one who exports them. `None` if spans are off, or from the second call
    /// on.
    pub fn take_finished_spans(&self) -> Option<SpanQueue> {
        self.finished_spans.lock().take()
    }

    /// Returns why a group dropped a [`GroupReply`]: the bus is closing, or the group has ended because no one
    /// could join it.
    #[must_use]
    pub fn dropped_reply(&self) -> Refusal {
        dropped_reply(&self.ctx.is_closing)
    }

    /// Records that a rate limit refused `events` of the client at `connection`.
    pub(crate) fn throttled(
        &self,
        connection: &Connection,
        limit: LimitScope,
        events: u64,
        topic: Option<&Topic>,
    ) {
        self.metrics().rate_limited(limit, events);
        self.ctx.notices.throttled(connection.limit.principal(), limit, events, topic);
    }

    /// Refuses publishes and subscriptions, and stops deliveries. Leased events can still be settled.
    pub fn refuse_new_work(&self) {
        self.ctx.is_closing.store(true, Ordering::SeqCst);
    }

    /// Stops the groups, commits everything that was submitted, and closes the engine. Idempotent.
    ///
    /// # Errors
    ///
    /// If the engine cannot be closed properly.
    pub async fn close(&self) -> Result<(), Refusal> {
        self.refuse_new_work();
        let mut stopping = Vec::new();
        for commands in self.ctx.groups.take_all() {
            let (reply, stopped) = oneshot::channel();
            if commands.send(Command::Stop { reply }).is_ok() {
                stopping.push(stopped);
            }
        }
        for stopped in stopping {
            // An error means that the group has stopped already.
            let _ = stopped.await;
        }
        // Submissions are committed in order: when an empty one is, all earlier ones are.
        let nothing = Submission::of_state(vec![], Durability::Buffered);
        if let Ok(flushed) = self.ctx.committer.submit(nothing).await {
            let _ = flushed.await;
        }
        Ok(self.ctx.engine.close().await?)
    }

    pub(crate) const fn engine(&self) -> &Arc<dyn Engine> {
        &self.ctx.engine
    }

    /// Returns an error if `event` would be refused because its time is too far in the future.
    ///
    /// # Errors
    ///
    /// `BadFrame` if `ts` is more than a day ahead of the clock.
    pub fn check_ts(&self, event: &NewEvent) -> Result<(), Refusal> {
        check_ts(event, self.clock().now())
    }

    pub(crate) fn clock(&self) -> &dyn Clock {
        self.ctx.clock.as_ref()
    }

    pub(crate) const fn tracer(&self) -> Option<&Arc<Tracer>> {
        self.ctx.tracer.as_ref()
    }

    pub(crate) fn ids(&self) -> &IdSource {
        &self.ctx.ids
    }

    pub(crate) const fn committer(&self) -> &Committer {
        &self.ctx.committer
    }

    /// Commits a submission and waits until it is stored.
    pub(crate) async fn store(&self, submission: Submission) -> Result<(), Refusal> {
        let stored = self.committer().submit(submission).await?;
        stored.await.unwrap_or_else(|_| Err(Unavailable::Closed.into()))?;
        Ok(())
    }

    pub(crate) const fn default_max_attempts(&self) -> u32 {
        self.ctx.retry.max_attempts
    }

    pub(crate) const fn groups(&self) -> &Arc<Groups> {
        &self.ctx.groups
    }

    /// Returns the name of this gateway if there may be others on the same store.
    pub(crate) fn gateway(&self) -> Option<&GatewayId> {
        Some(self.ctx.group_leases.as_ref()?.heartbeat.gateway())
    }

    pub(crate) fn topics_in_use(&self) -> &Topics {
        &self.topics
    }

    pub(crate) fn topic_in_use(&self, topic: &Topic) -> Arc<TopicInUse> {
        self.topics.get(topic, now())
    }

    pub(crate) fn check_open(&self) -> Result<(), Refusal> {
        if self.ctx.is_closing.load(Ordering::SeqCst) {
            return Err(Refusal::shutting_down());
        }
        Ok(())
    }
}

impl Drop for Bus {
    fn drop(&mut self) {
        self.tasks.iter().for_each(JoinHandle::abort);
        // Every group holds the registry, and with it the sender of its own commands: without this
        // groups never end.
        drop(self.ctx.groups.take_all());
    }
}
