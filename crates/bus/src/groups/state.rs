//! A consumer group as a pure state machine.
//!
//! Commands, time, read events and finished commits come in; [`Effect`]s come out, which the group's task
//! performs one after the other. Nothing here waits, reads a clock or touches the engine. Two things need
//! no effect because they never block: answers leave through the reply handle of their command, and
//! deliveries go into the bounded queues of the members' connections.
//!
//! | what | where |
//! |---|---|
//! | commands of members: join, leave, ACK, NACK, MODACK, pause | `commands` |
//! | deadlines, and which member gets which event | `delivering` |
//! | storing the cursor with everything that goes with it | `committing`, `pending` |
//! | what is stored after a commit was reported as failed | `resolving` |
//! | claiming, losing and releasing the group among gateways | `ownership` |
//! | what operators do: seek, configure, redrive | `operating` |
//! | what the owner of a partition works on | `partition`, `fetched`, `nack_reasons` |

mod commands;
mod committing;
mod delivering;
mod effect;
mod fetched;
mod nack_reasons;
mod operating;
mod ownership;
mod partition;
mod pending;
mod resolving;
#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use prombus_engine::{Durability, StateKey};
use prombus_proto::{Group, Seq, Timestamp, Topic};
use tokio::sync::Notify;

pub(super) use self::effect::{
    Claim, ClaimOutcome, Effect, Loaded, Moved, NamedBy, ReadOutcome, Seeking, StoredProgress,
};
use self::partition::{OwnedPartition, Partition};
pub(super) use self::pending::{DeadLetterPending, StoredAck};
use super::RetryRules;
use super::command::{Description, GroupInfo};
use super::members::Members;
use crate::metrics::LazySeries;
use crate::notices::Notices;
use crate::spans::Tracer;
use crate::stored::group_properties::GroupProperties;
use crate::time::Moment;

/// How long a group without members stays in memory if it knows why events failed, which is not stored.
const IDLE_TIME: Duration = Duration::from_secs(60);
/// How long to wait after the storage failed.
const RETRY_AFTER: Duration = Duration::from_secs(1);

pub(super) struct GroupState {
    name: GroupName,
    /// As configured; members can change the number of attempts.
    defaults: RetryRules,
    properties: GroupProperties,
    /// Whether several gateways share the store, so that the group has to be claimed.
    is_shared: bool,
    members: Members,
    partition: Partition,
    turn: Turn,
    /// Effects of commands, performed before the next command is handled.
    effects: VecDeque<Effect>,
    idle_since: Option<Instant>,
    series: LazySeries,
    notices: Arc<Notices>,
    /// `None` if no event has spans.
    tracer: Option<Arc<Tracer>>,
    /// Notified when a full delivery queue has room again.
    room: Arc<Notify>,
}

/// What a group is called, and where its cursor is stored.
#[derive(Clone, Debug)]
pub(super) struct GroupName {
    pub(super) topic: Topic,
    pub(super) group: Group,
    pub(super) cursor_key: StateKey,
}

/// Who is told what the group does.
pub(super) struct Observers {
    pub(super) series: LazySeries,
    pub(super) notices: Arc<Notices>,
    pub(super) tracer: Option<Arc<Tracer>>,
}

/// What the group sees of the outside world when it takes a step.
#[derive(Clone, Copy, Debug)]
pub(super) struct Conditions {
    pub(super) now: Instant,
    /// `now` on the wall clock.
    pub(super) timestamp: Timestamp,
    /// The last event of the topic.
    pub(super) topic_end: Seq,
    /// The topic's configured durability.
    pub(super) durability: Durability,
    pub(super) gate: DeliveryGate,
}

/// Whether the group may deliver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum DeliveryGate {
    Open,
    /// The bus is closing.
    Closing,
    /// This gateway's heartbeat is too old: another gateway may be about to take the group over.
    HeartbeatStale,
}

/// How far the group has got with its present turn: it delivers, then commits, then releases.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Turn {
    Deliver,
    Commit,
    Release,
    Over,
}

impl Conditions {
    const fn moment(&self) -> Moment {
        Moment { instant: self.now, timestamp: self.timestamp }
    }
}

impl GroupState {
    pub(super) fn new(
        name: GroupName,
        defaults: RetryRules,
        is_shared: bool,
        Observers { series, notices, tracer }: Observers,
        room: Arc<Notify>,
    ) -> Self {
        Self {
            name,
            defaults,
            properties: GroupProperties::default(),
            is_shared,
            members: Members::default(),
            partition: Partition::default(),
            turn: Turn::Over,
            effects: VecDeque::new(),
            idle_since: None,
            series,
            notices,
            tracer,
            room,
        }
    }

    /// Starts a turn after something happened: expires leases, then lets [`GroupState::next_effect`]
    /// deliver and commit.
    pub(super) fn begin_turn(&mut self, now: Instant) {
        self.partition.end_back_off(now);
        if let Some(owned) = self.owned_mut() {
            owned.fetched.drop_unused(now);
        }
        self.expire_due_leases(now);
        self.turn = Turn::Deliver;
    }

    /// Takes the turn further and returns the next effect to perform, or `None` when the turn is over.
    pub(super) fn next_effect(&mut self, conditions: &Conditions) -> Option<Effect> {
        loop {
            if let Some(effect) = self.queued_effect() {
                return Some(effect);
            }
            let (effect, next) = match self.turn {
                Turn::Deliver => (self.deliver(conditions), Turn::Commit),
                Turn::Commit => (self.begin_commit(conditions), Turn::Release),
                Turn::Release => (self.release_if_unused(), Turn::Over),
                Turn::Over => return None,
            };
            match effect {
                Some(effect) => return Some(effect),
                None => self.turn = next,
            }
        }
    }

    /// Returns the next effect of the commands handled so far.
    pub(super) fn queued_effect(&mut self) -> Option<Effect> {
        self.effects.pop_front()
    }

    /// Returns `true` if commands have to wait for the next commit.
    pub(super) fn is_full(&self) -> bool {
        self.owned().is_some_and(|owned| owned.pending.is_full())
    }

    /// When to take a turn although nothing else happened.
    pub(super) fn wake_at(&self) -> Option<Instant> {
        let leases = self.owned().and_then(|owned| owned.leases.next_timer());
        let unused = self.owned().and_then(|owned| owned.fetched.unused_at());
        let idle = self.idle_since.map(|since| since + IDLE_TIME);
        // While the storage is down nothing is delivered, whoever has tokens.
        let delivering = self.partition.retry_at.or(self.members.deliver_again_at);
        [leases, unused, idle, delivering].into_iter().flatten().min()
    }

    /// Returns `true` if the group is not needed and may leave memory.
    pub(super) fn is_idle(&mut self, now: Instant) -> bool {
        if !self.members.is_empty() || self.may_hold_lease() || self.is_dirty() {
            self.idle_since = None;
            return false;
        }
        if !self.owned().is_some_and(OwnedPartition::remembers_reasons) {
            return true;
        }
        now >= *self.idle_since.get_or_insert(now) + IDLE_TIME
    }

    /// Returns `true` if somebody waits for events of the topic.
    pub(super) const fn has_members(&self) -> bool {
        !self.members.is_empty()
    }

    /// Returns `true` if anything waits to be stored or is being stored.
    fn is_dirty(&self) -> bool {
        self.owned().is_some_and(|owned| owned.commit.is_some() || !owned.pending.is_empty())
    }

    pub(super) fn in_flight(&self) -> usize {
        self.owned().map_or(0, |owned| owned.leases.in_flight())
    }

    pub(super) const fn series(&self) -> &LazySeries {
        &self.series
    }

    /// Drops events that were read and that no member can take, except for the next one.
    pub(super) fn drop_read_ahead(&mut self) {
        if let Some(owned) = self.owned_mut() {
            owned.fetched.drop_all_but_next();
        }
    }

    /// When the oldest event that was delivered and is not finished was delivered first.
    pub(super) fn oldest_unacked(&self) -> Option<Instant> {
        self.owned()?.leases.oldest_unacked()
    }

    /// Counts dead letters that are stored.
    fn dead_lettered(&self, letters: &[DeadLetterPending]) {
        let Some(first) = letters.first() else { return };
        self.series.dead_lettered(letters.len());
        let GroupName { topic, group, .. } = &self.name;
        self.notices.dead_lettered(topic, group, letters.len() as u64, &first.error);
    }

    /// The bytes of the events that were read and not delivered yet.
    pub(super) fn fetched_bytes(&self) -> usize {
        self.owned().map_or(0, |owned| owned.fetched.bytes())
    }

    fn describe(&self) -> Description {
        Description {
            floor: self.owned().map_or(Seq::ZERO, |owned| owned.leases.floor()),
            in_flight: self.in_flight(),
            members: self.members.len(),
        }
    }

    /// The rules that apply to the group now.
    fn rules(&self) -> RetryRules {
        let max_attempts = self.properties.max_attempts.unwrap_or(self.defaults.max_attempts);
        RetryRules { max_attempts, ..self.defaults }
    }

    fn info(&self, created: bool) -> GroupInfo {
        GroupInfo { max_attempts: self.rules().max_attempts, created }
    }

    /// Applies properties that are stored.
    fn apply_properties(&mut self, properties: GroupProperties) {
        self.properties = properties;
        let max_attempts = self.rules().max_attempts;
        if let Some(owned) = self.owned_mut() {
            owned.leases.set_max_attempts(max_attempts);
        }
    }

    fn owned(&self) -> Option<&OwnedPartition> {
        self.partition.ownership.owned()
    }

    fn owned_mut(&mut self) -> Option<&mut OwnedPartition> {
        self.partition.ownership.owned_mut()
    }

    fn storage_failed(&mut self, what: &str, error: &dyn std::fmt::Display, now: Instant) {
        let GroupName { topic, group, .. } = &self.name;
        tracing::error!(%topic, %group, "cannot {what}: {error}; retrying in 1s");
        self.partition.retry_at = Some(now + RETRY_AFTER);
    }
}
