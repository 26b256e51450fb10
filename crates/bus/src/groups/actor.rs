//! The task of a group: commands, time, new events and finished commits come in; it lends, and
//! keeps the cursor stored.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use prombus_engine::{Engine, StateKey};
use prombus_proto::{Clock, ErrorCode, Group, IdSource, Seq, Topic};
use tokio::sync::{Notify, mpsc, oneshot, watch};

use super::command::Command;
use super::holding::Held;
use super::members::Members;
use super::reading::Fetched;
use super::round::{Dying, Pending, Round};
use crate::error::Refusal;
use crate::groups::Groups;
use crate::groups::dead_letter::dead_letter_topic;
use crate::groups::leases::{Failed, Fate, Leases};
use crate::metrics::{GroupSeries, InFlight, Metrics};
use crate::publish::{CommitResult, Committer};
use crate::sharing::GroupLeases;
use crate::stored::cursor::Cursor;
use crate::stored::group_lease::GroupLease;
pub(super) use crate::time::now;
use crate::topics::TopicInUse;

/// What a group needs of the bus.
#[derive(Clone)]
pub(crate) struct GroupContext {
    pub(crate) engine: Arc<dyn Engine>,
    pub(crate) committer: Committer,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) ids: Arc<IdSource>,
    pub(crate) groups: Arc<Groups>,
    pub(crate) metrics: Arc<Metrics>,
    /// Nothing where no other gateway can use the store.
    pub(crate) group_leases: Option<Arc<GroupLeases>>,
    /// Nothing more is delivered: the bus is about to close.
    pub(crate) is_closing: Arc<AtomicBool>,
}

pub(crate) struct Actor {
    pub(super) ctx: GroupContext,
    pub(super) topic: Arc<TopicInUse>,
    pub(super) group: Group,
    pub(super) key: StateKey,
    pub(super) lease_key: StateKey,
    pub(super) dead_letters: Topic,
    pub(super) commands: mpsc::UnboundedReceiver<Command>,
    pub(super) growth: watch::Receiver<Seq>,
    pub(super) members: Members,
    /// Nothing until the first member came and the cursor was read, and while another gateway holds
    /// the group.
    pub(super) work: Option<Work>,
    /// While this is the one of several gateways that holds the group.
    pub(super) held: Option<Held>,
    /// Whether its group_lease may say that this gateway holds it.
    pub(super) may_hold: bool,
    /// Told when a full delivery_queue has room again.
    pub(super) room: Arc<Notify>,
    pub(super) round: Option<Round>,
    /// After a failure of the storage, when to try again.
    pub(super) retry_at: Option<Instant>,
    pub(super) idle_since: Option<Instant>,
    pub(super) series: Arc<GroupSeries>,
    in_flight: InFlight,
}

/// What a group is busy with.
pub(super) struct Work {
    pub(super) leases: Leases,
    pub(super) fetched: Fetched,
    pub(super) pending: Pending,
}

/// How long a group that nobody subscribes to stays in memory.
const IDLE_TIME: Duration = Duration::from_secs(60);
/// How long to wait after the storage failed.
pub(super) const RETRY_TIME: Duration = Duration::from_secs(1);
/// How many commands are served before others get their turn.
const COMMANDS_AT_ONCE: usize = 256;

enum Event {
    Command(Option<Command>),
    Stored(CommitResult),
    Other,
}

impl Actor {
    pub(crate) fn new(
        ctx: GroupContext,
        topic: Arc<TopicInUse>,
        group: Group,
        commands: mpsc::UnboundedReceiver<Command>,
    ) -> Result<Self, Refusal> {
        let dead_letters = dead_letter_topic(&topic.topic).map_err(|_| {
            let message = "the topic's name leaves no room for its dead letters: dlq.<topic> has to \
                           be a topic name, too";
            Refusal::new(ErrorCode::BadTopic, message)
        })?;
        let key = Cursor::key(&topic.topic, &group)
            .map_err(|error| Refusal::new(ErrorCode::BadGroup, error.to_string()))?;
        let lease_key = GroupLease::key(&topic.topic, &group)
            .map_err(|error| Refusal::new(ErrorCode::BadGroup, error.to_string()))?;
        let series = Arc::new(ctx.metrics.group(&topic.topic, &group));
        Ok(Self {
            growth: topic.watch(&ctx.engine),
            ctx,
            topic,
            group,
            key,
            lease_key,
            dead_letters,
            commands,
            members: Members::default(),
            work: None,
            held: None,
            may_hold: false,
            room: Arc::new(Notify::new()),
            round: None,
            retry_at: None,
            idle_since: None,
            in_flight: InFlight::of(&series),
            series,
        })
    }

    pub(crate) async fn run(mut self) {
        loop {
            match self.next_event().await {
                Event::Command(None) => return,
                Event::Command(Some(command)) => {
                    if let Some(stopped) = self.serve_some(command).await {
                        self.stop().await;
                        // Who asked may be gone.
                        let _ = stopped.send(());
                        return;
                    }
                }
                Event::Stored(answer) => self.finish_round(answer).await,
                Event::Other => {}
            }
            let now = now();
            self.expire_due_leases(now);
            self.lend(now).await;
            self.start_round().await;
            if self.has_to_be_released() {
                self.release().await;
            }
            self.in_flight.show(self.work.as_ref().map_or(0, |work| work.leases.in_flight()));
            if self.is_idle(now)
                && self
                    .ctx
                    .groups
                    .retire(&self.topic.topic, &self.group, || self.commands.is_empty())
            {
                break;
            }
        }
        if let Some(group_leases) = &self.ctx.group_leases {
            group_leases.wait_no_more(&self.topic.topic, &self.group);
        }
        drop(self.growth);
        self.topic.feed.clear_if_abandoned();
    }

    async fn next_event(&mut self) -> Event {
        let wake_at = self.wake_at();
        let is_full = self.is_full();
        let round = async {
            match &mut self.round {
                Some(round) => round.answer.as_mut().await,
                None => std::future::pending().await,
            }
        };
        let timer = async {
            match wake_at {
                Some(at) => tokio::time::sleep_until(at.into()).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            command = self.commands.recv(), if !is_full => Event::Command(command),
            answer = round => Event::Stored(answer),
            // An error would mean that the feed is gone, and we hold it.
            _ = self.growth.changed() => Event::Other,
            () = self.room.notified() => Event::Other,
            () = timer => Event::Other,
        }
    }

    fn is_full(&self) -> bool {
        self.work.as_ref().is_some_and(|work| work.pending.is_full())
    }

    fn wake_at(&self) -> Option<Instant> {
        let leases = self.work.as_ref().and_then(|work| work.leases.next_timer());
        let idle = self.idle_since.map(|since| since + IDLE_TIME);
        // While the storage fails nothing is lent, whoever has tokens.
        let lending = self.retry_at.or(self.members.lend_again_at);
        [leases, idle, lending].into_iter().flatten().min()
    }

    /// Serves `first` and what waits behind it. Answers whom to tell when all is stopped.
    async fn serve_some(&mut self, first: Command) -> Option<oneshot::Sender<()>> {
        let (mut command, mut served) = (first, 0);
        loop {
            if let Command::Stop { reply } = command {
                return Some(reply);
            }
            self.serve(command).await;
            served += 1;
            if served == COMMANDS_AT_ONCE || self.is_full() {
                return None;
            }
            command = self.commands.try_recv().ok()?;
        }
    }

    fn is_idle(&mut self, now: Instant) -> bool {
        let busy = !self.members.is_empty()
            || self.round.is_some()
            || self.may_hold
            || self.work.as_ref().is_some_and(|work| !work.pending.is_empty());
        if busy {
            self.idle_since = None;
            return false;
        }
        let since = *self.idle_since.get_or_insert(now);
        self.work.is_none() || now >= since + IDLE_TIME
    }

    /// Gives everything back and stores the cursor once more.
    async fn stop(&mut self) {
        for id in self.members.ids() {
            self.leave(id, "the server stopped");
        }
        while self.round.is_some() || self.work.as_ref().is_some_and(|w| !w.pending.is_empty()) {
            if let Some(round) = &mut self.round {
                let answer = round.answer.as_mut().await;
                self.finish_round(answer).await;
            }
            if self.retry_at.is_some() {
                break;
            }
            self.start_round().await;
        }
        if self.may_hold {
            self.release().await;
        }
    }
}

impl Work {
    pub(super) fn failed(&mut self, failed: Option<Failed>, why: &str) {
        let Some(failed) = failed else { return };
        self.pending.changed = true;
        if failed.fate == Fate::Dying {
            let dying = Dying::new(Some(failed.seq), why.to_owned(), failed.attempts);
            self.pending.dying.push(dying);
        }
    }
}
