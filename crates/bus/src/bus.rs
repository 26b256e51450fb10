//! The bus, as gateways and HTTP use it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use prombus_engine::{Durability, Engine};
use prombus_proto::{Clock, Group, IdSource, NewEvent, Topic};
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;

use crate::error::Refusal;
use crate::groups::{
    Command, DeliveryQueue, Description, GroupContext, GroupInfo, GroupTask, Groups, Member,
    MemberId, RetryRules, SubscribeOptions, Subscription, allowed_attempts,
};
use crate::limits::RateLimit;
use crate::metrics::{self, Metrics};
use crate::publish::{Committer, Submission, check_ts};
use crate::sharing::GroupLeases;
use crate::time::now;
use crate::topics::{RetentionTask, Settings, TopicInUse, Topics, keep_settings_current};

/// The bus over one engine.
pub struct Bus {
    settings: Arc<Settings>,
    ctx: GroupContext,
    topics: Arc<Topics>,
    next_member: AtomicU64,
    /// Aborted when the bus is dropped.
    tasks: Vec<JoinHandle<()>>,
}

/// The state of one connection: its rate limit and its delivery queue.
#[derive(Clone, Debug)]
pub struct Connection {
    /// Shared by publishes and deliveries.
    pub limit: RateLimit,
    pub delivery_queue: Arc<DeliveryQueue>,
}

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
        let topics = Arc::new(Topics::new(Arc::clone(&settings), revision, Arc::clone(&metrics)));
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
            let leasing = leases.run(Arc::clone(&engine), Arc::clone(&clock), Arc::clone(&groups));
            tasks.push(tokio::spawn(leasing));
            let configuring = keep_settings_current(Arc::clone(&engine), Arc::clone(&topics));
            tasks.push(tokio::spawn(configuring));
        }
        let retry = RetryRules {
            delays: settings.retry,
            max_attempts: allowed_attempts(settings.subscription.max_attempts),
        };
        Self {
            settings,
            ctx: GroupContext {
                engine,
                committer,
                clock,
                ids,
                groups,
                metrics,
                group_leases,
                retry,
                is_closing: Arc::new(AtomicBool::new(false)),
            },
            topics,
            next_member: AtomicU64::new(1),
            tasks,
        }
    }

    /// Returns a new connection with its own rate limit and delivery queue.
    #[must_use]
    pub fn connect(&self) -> Connection {
        Connection {
            limit: RateLimit::new(self.settings.connection_rate, now()),
            delivery_queue: Arc::new(DeliveryQueue::new(self.settings.max_outbox_bytes)),
        }
    }

    /// Returns the publish rate limit of `topic`.
    #[must_use]
    pub fn topic_limit(&self, topic: &Topic) -> RateLimit {
        self.topic_in_use(topic).limit.clone()
    }

    /// Adds `connection` to the members of `group` on `topic`. Creates the group if it does not exist.
    ///
    /// # Errors
    ///
    /// If the bus is shutting down, the options are invalid, or the group cannot be stored.
    pub async fn subscribe(
        &self,
        connection: &Connection,
        topic: &Topic,
        group: &Group,
        options: SubscribeOptions,
    ) -> Result<Subscription, Refusal> {
        loop {
            self.check_open()?;
            let commands =
                self.ctx.groups.get_or_start(topic, group, || self.start_group(topic, group))?;
            let member = MemberId(self.next_member.fetch_add(1, Ordering::Relaxed));
            let defaults = self.settings.subscription;
            let (reply, joined) = oneshot::channel();
            let join = Command::Join {
                member: Member::new(
                    member,
                    (Arc::clone(&connection.delivery_queue), connection.limit.clone()),
                    options.max_in_flight.unwrap_or(defaults.max_in_flight),
                    options.ack_timeout.unwrap_or(defaults.ack_timeout),
                ),
                start: options.start.clone(),
                max_attempts: options.max_attempts,
                reply,
            };
            // The group has just stopped: start it again.
            if commands.send(join).is_err() {
                continue;
            }
            // Created before the wait: dropping it leaves the group, also if this future is dropped.
            let (topic, group) = (topic.clone(), group.clone());
            let is_closing = Arc::clone(&self.ctx.is_closing);
            let info = GroupInfo { max_attempts: defaults.max_attempts, created: false };
            let mut subscription =
                Subscription { topic, group, member, commands, info, is_closing };
            match joined.await {
                Ok(Ok(info)) => {
                    subscription.info = info;
                    return Ok(subscription);
                }
                Ok(Err(refusal)) => return Err(refusal),
                Err(_) => {}
            }
        }
    }

    fn start_group(
        &self,
        topic: &Topic,
        group: &Group,
    ) -> Result<mpsc::UnboundedSender<Command>, Refusal> {
        let (commands, inbox) = mpsc::unbounded_channel();
        let topic = self.topics.get(topic, now());
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

    #[must_use]
    pub const fn metrics(&self) -> &Arc<Metrics> {
        &self.ctx.metrics
    }

    /// Returns the metrics in the Prometheus text format 0.0.4. Reads the lag of all groups from the
    /// engine.
    pub async fn metrics_text(&self) -> Result<String, Refusal> {
        metrics::text(&self.ctx.metrics, self.ctx.engine.as_ref()).await
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

    pub(crate) fn ids(&self) -> &IdSource {
        &self.ctx.ids
    }

    pub(crate) const fn committer(&self) -> &Committer {
        &self.ctx.committer
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
