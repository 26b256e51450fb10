//! The bus: what gateways and HTTP talk to.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Instant;

use prombus_engine::{Durability, Engine};
use prombus_proto::{Clock, Group, IdSource, NewEvent, Topic};
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;

use crate::error::Refusal;
use crate::groups::DeliveryQueue;
use crate::groups::Groups;
use crate::groups::MemberId;
use crate::groups::{Actor, Command, Description, GroupContext, Member};
use crate::groups::{SubscribeOptions, Subscription};
use crate::limits::Deficit;
use crate::limits::{Limit, Limited, SHORTEST_WAIT};
use crate::metrics::{self, Metrics};
use crate::publish::{self, Moment, PublishBatch, Submitted};
use crate::publish::{Committer, Submission};
use crate::sharing::GroupLeases;
use crate::topics::Settings;
use crate::topics::recall_again_and_again;
use crate::topics::retention;
use crate::topics::{TopicInUse, Topics};

/// The bus over one engine.
pub struct Bus {
    settings: Arc<Settings>,
    ctx: GroupContext,
    topics: Arc<Topics>,
    next_member: AtomicU64,
    committing: JoinHandle<()>,
    forgetting: JoinHandle<()>,
    /// What goes on where several gateways use one store.
    sharing: Vec<JoinHandle<()>>,
}

/// What one connection has at the bus: its limit, and what waits for it.
#[derive(Clone, Debug)]
pub struct Connection {
    /// Shared by its publishes and its deliveries.
    pub limit: Limit,
    /// The events that wait to be sent to it.
    pub delivery_queue: Arc<DeliveryQueue>,
}

impl Bus {
    /// Starts a bus over `engine`. Needs a runtime.
    #[must_use]
    pub fn start(
        engine: Arc<dyn Engine>,
        settings: Settings,
        clock: Arc<dyn Clock>,
        ids: Arc<IdSource>,
    ) -> Self {
        let settings = Arc::new(settings);
        let metrics = Arc::new(Metrics::new());
        // Settings are read when a process starts: those of a later one are newer.
        let revision = clock.now().0;
        let topics = Arc::new(Topics::new(Arc::clone(&settings), revision, Arc::clone(&metrics)));
        let (committer, committing) =
            Committer::start(Arc::clone(&engine), Arc::clone(&topics), metrics.commit_meter());
        let groups = Arc::new(Groups::default());
        let group_leases = engine
            .capabilities()
            .several_gateways
            .then(|| Arc::new(GroupLeases::new(&ids, settings.group_lease)));
        let living = group_leases.clone().map(|group_leases| {
            tokio::spawn(group_leases.run(
                Arc::clone(&engine),
                Arc::clone(&clock),
                Arc::clone(&groups),
            ))
        });
        let forgetting = tokio::spawn(retention::run(
            Arc::clone(&engine),
            Arc::clone(&topics),
            Arc::clone(&clock),
        ));
        let recalling = group_leases.is_some().then(|| {
            tokio::spawn(recall_again_and_again(Arc::clone(&engine), Arc::clone(&topics)))
        });
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
                is_closing: Arc::new(AtomicBool::new(false)),
            },
            topics,
            next_member: AtomicU64::new(1),
            committing,
            forgetting,
            sharing: living.into_iter().chain(recalling).collect(),
        }
    }

    /// A new connection, with a limit and an delivery_queue of its own.
    #[must_use]
    pub fn connect(&self) -> Connection {
        Connection {
            limit: Limit::new(self.settings.connection_rate, now()),
            delivery_queue: Arc::new(DeliveryQueue::new(self.settings.max_outbox_bytes)),
        }
    }

    /// Limits, checks and builds `events` for `topic`; all or none.
    pub fn prepare(
        &self,
        connection: &Connection,
        topic: &Topic,
        events: Vec<NewEvent>,
    ) -> Result<PublishBatch, Refusal> {
        let mut prepared = PublishBatch::none();
        self.prepare_more(&mut prepared, connection, topic, events.into_iter())?;
        Ok(prepared)
    }

    /// As [`Bus::prepare`], behind what `prepared` has already, which stays as it was if these are
    /// refused. They count as taken when the first ones were.
    pub fn prepare_more(
        &self,
        prepared: &mut PublishBatch,
        connection: &Connection,
        topic: &Topic,
        events: impl ExactSizeIterator<Item = NewEvent>,
    ) -> Result<(), Refusal> {
        self.check_open()?;
        let moment = prepared.joining_at(|| self.moment());
        let topic = prepared.joining_topic(topic, || self.topics.get(topic, moment.at));
        let wanted = [(topic, events.len() as u64)];
        let placed = events.map(|event| (0, event));
        let built = self.admit_and_build(prepared, connection, &wanted, placed, moment);
        let [(topic, _)] = wanted;
        prepared.joined(topic);
        built
    }

    /// As [`Bus::prepare`], for as many events as one commit takes: where the limits would refuse
    /// them, it takes the tokens as they come.
    pub async fn prepare_in_turn(
        &self,
        connection: &Connection,
        topic: &Topic,
        events: Vec<NewEvent>,
    ) -> Result<PublishBatch, Refusal> {
        let taken_at = now();
        let topic = self.topic_in_use(topic);
        let mut owed = events.len() as u64;
        while owed > 0 {
            self.check_open()?;
            let now = now();
            let available = |limit: &Limit| limit.standing(now).map_or(owed, |it| it.available);
            let some = owed.min(available(&connection.limit)).min(available(&topic.limit)).max(1);
            match publish::admit(&[(Arc::clone(&topic), some)], &connection.limit, now) {
                Ok(()) => owed -= some,
                Err(Limited { deficit: Deficit::Wait(time), .. }) => {
                    tokio::time::sleep(time.max(SHORTEST_WAIT)).await;
                }
                Err(limited) => {
                    self.metrics().rate_limited(limited.scope, events.len() as u64);
                    return Err(limited.into());
                }
            }
        }
        self.check_open()?;
        let events = events.into_iter().map(|event| (topic.as_ref(), event));
        let moment = Moment { at: taken_at, ts: self.clock().now() };
        let mut prepared = PublishBatch::none();
        publish::build(&mut prepared, events, &self.ctx.ids, moment)?;
        Ok(prepared)
    }

    /// As [`Bus::prepare`], for events of several topics.
    pub fn prepare_mixed(
        &self,
        connection: &Connection,
        events: Vec<(Topic, NewEvent)>,
    ) -> Result<PublishBatch, Refusal> {
        self.check_open()?;
        let moment = self.moment();
        let mut wanted: Vec<(Arc<TopicInUse>, u64)> = Vec::new();
        let mut places = HashMap::new();
        let mut placed = Vec::with_capacity(events.len());
        for (topic, event) in events {
            let place = *places.entry(topic).or_insert_with_key(|topic| {
                wanted.push((self.topics.get(topic, moment.at), 0));
                wanted.len() - 1
            });
            wanted[place].1 += 1;
            placed.push((place, event));
        }
        let mut prepared = PublishBatch::none();
        self.admit_and_build(&mut prepared, connection, &wanted, placed.into_iter(), moment)?;
        Ok(prepared)
    }

    /// Each event comes with the place of its topic in `wanted`.
    fn admit_and_build(
        &self,
        prepared: &mut PublishBatch,
        connection: &Connection,
        wanted: &[(Arc<TopicInUse>, u64)],
        placed: impl Iterator<Item = (usize, NewEvent)>,
        moment: Moment,
    ) -> Result<(), Refusal> {
        let GroupContext { ids, metrics, .. } = &self.ctx;
        publish::admit(wanted, &connection.limit, moment.at).inspect_err(|limited| {
            let events = wanted.iter().map(|(_, count)| count).sum();
            metrics.rate_limited(limited.scope, events);
        })?;
        let events = placed.map(|(place, event)| (wanted[place].0.as_ref(), event));
        publish::build(prepared, events, ids, moment)
            .inspect_err(|_| publish::give_back(wanted, &connection.limit))
    }

    /// The limit of `topic`, for publishes.
    #[must_use]
    pub fn topic_limit(&self, topic: &Topic) -> Limit {
        self.topic_in_use(topic).limit.clone()
    }

    /// Hands `prepared` to the committer, as soon as that has room.
    pub async fn submit(&self, prepared: PublishBatch) -> Result<Submitted, Refusal> {
        prepared.submit(&self.ctx.committer).await
    }

    /// Makes `connection` a member of `group` on `topic`; the group is made if it does not exist.
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
            let usual = self.settings.subscription;
            let (reply, joined) = oneshot::channel();
            let join = Command::Join {
                member: Member::new(
                    member,
                    (Arc::clone(&connection.delivery_queue), connection.limit.clone()),
                    options.max_in_flight.unwrap_or(usual.max_in_flight),
                    options.ack_timeout.unwrap_or(usual.ack_timeout),
                    options.max_attempts.unwrap_or(usual.max_attempts),
                ),
                start: options.start.clone(),
                reply,
            };
            // A group that was just about to go is made anew.
            if commands.send(join).is_err() {
                continue;
            }
            // From here on: who gives up waiting leaves again.
            let (topic, group) = (topic.clone(), group.clone());
            let subscription = Subscription { topic, group, member, commands };
            match joined.await {
                Ok(Ok(())) => return Ok(subscription),
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
        let actor = Actor::new(self.ctx.clone(), topic, group.clone(), inbox)?;
        tokio::spawn(actor.run());
        Ok(commands)
    }

    /// How a group is that somebody subscribes to.
    pub async fn describe_group(&self, topic: &Topic, group: &Group) -> Option<Description> {
        let commands = self.ctx.groups.get(topic, group)?;
        let (reply, description) = oneshot::channel();
        commands.send(Command::Describe { reply }).ok()?;
        description.await.ok()
    }

    /// What it counts.
    #[must_use]
    pub const fn metrics(&self) -> &Arc<Metrics> {
        &self.ctx.metrics
    }

    /// What it counts, as Prometheus text 0.0.4. How far groups are behind is read for it.
    pub async fn metrics_text(&self) -> Result<String, Refusal> {
        metrics::text(&self.ctx.metrics, self.ctx.engine.as_ref()).await
    }

    /// Refuses what is new and delivers nothing from now on. What is there can be finished.
    pub fn refuse_new_work(&self) {
        self.ctx.is_closing.store(true, Ordering::SeqCst);
    }

    /// Refuses what is new, stops the groups, stores what waits and closes the engine.
    ///
    /// Twice: nothing more happens.
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
            // One that is gone has stopped, too.
            let _ = stopped.await;
        }
        // What was handed over before is committed before this.
        let nothing = Submission::of_state(vec![], Durability::Buffered);
        if let Ok(flushed) = self.ctx.committer.submit(nothing).await {
            let _ = flushed.await;
        }
        Ok(self.ctx.engine.close().await?)
    }

    pub(crate) const fn engine(&self) -> &Arc<dyn Engine> {
        &self.ctx.engine
    }

    fn moment(&self) -> Moment {
        Moment { at: now(), ts: self.clock().now() }
    }

    pub(crate) fn clock(&self) -> &dyn Clock {
        self.ctx.clock.as_ref()
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
        self.committing.abort();
        self.forgetting.abort();
        self.sharing.iter().for_each(JoinHandle::abort);
        // Groups hold the way to each other, and so to themselves: without this they never end.
        drop(self.ctx.groups.take_all());
    }
}

/// Through the runtime, so that a test can move the time.
pub(crate) fn now() -> Instant {
    tokio::time::Instant::now().into_std()
}
