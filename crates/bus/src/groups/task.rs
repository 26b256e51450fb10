//! The task of a group: feeds its state machine with commands, time, new events and finished commits, and
//! performs the effects that come out.

mod context;
mod copies;
mod effects;
mod operating;
#[cfg(test)]
mod tests;

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use prombus_engine::ReadBudget;
use prombus_proto::frame::EndReason;
use prombus_proto::{ErrorCode, Group, Seq};
use tokio::sync::{Notify, mpsc, oneshot, watch};

pub(crate) use self::context::GroupContext;
use self::effects::{GroupKeys, GroupStore};
use super::command::Command;
use super::state::{Conditions, DeliveryGate, Effect, GroupName, GroupState, NamedBy, Observers};
use crate::dead_letters::dead_letter_topic;
use crate::error::Refusal;
use crate::memory::Share;
use crate::metrics::{InFlight, OldestUnacked};
use crate::publish::CommitResult;
use crate::stored::cursor::Cursor;
use crate::stored::group_lease::GroupLease;
use crate::stored::group_properties::GroupProperties;
use crate::time::now;
use crate::topics::TopicInUse;

pub(crate) struct GroupTask {
    state: GroupState,
    store: GroupStore,
    commands: mpsc::UnboundedReceiver<Command>,
    /// Changes when the topic grows.
    topic_end: watch::Receiver<Seq>,
    /// Notified when a full delivery queue has room again.
    room: Arc<Notify>,
    commit: Option<Pin<Box<dyn Future<Output = CommitResult> + Send>>>,
    in_flight: InFlight,
    oldest: OldestUnacked,
    /// The memory of the events that were read and not delivered yet.
    read_ahead: Share,
}

/// How much is read ahead at most.
const READ_AHEAD: ReadBudget = ReadBudget { events: 1024, bytes: 256 << 10 };

/// How much is handled before the group delivers and commits again, and other tasks get their turn: commands,
/// or ids in them.
const MAX_COMMANDS: usize = 256;
const MAX_IDS: usize = 20_000;

/// How the task is asked to end.
enum Ending {
    /// The server stops.
    Stop(oneshot::Sender<()>),
    /// The group is about to be deleted.
    Delete(EndReason, oneshot::Sender<()>),
}

struct CommitFailed;

enum Wakeup {
    Command(Option<Command>),
    Committed(CommitResult),
    /// The topic grew, a queue has room, or a timer is due.
    Turn,
}

impl GroupTask {
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
        let bad_group = |error: prombus_engine::InvalidStateKey| {
            Refusal::new(ErrorCode::BadGroup, error.to_string())
        };
        let cursor_key = Cursor::key(&topic.topic, &group).map_err(bad_group)?;
        let lease = GroupLease::key(&topic.topic, &group).map_err(bad_group)?;
        let properties = GroupProperties::key(&topic.topic, &group).map_err(bad_group)?;
        let series = ctx.metrics.group(&topic.topic, &group);
        let oldest = ctx.metrics.oldest_unacked(&topic.topic, &group);
        let room = Arc::new(Notify::new());
        let name = GroupName { topic: topic.topic.clone(), group, cursor_key };
        let is_shared = ctx.group_leases.is_some();
        let (notices, tracer) = (Arc::clone(&ctx.notices), ctx.tracer.clone());
        let observers = Observers { series, notices, tracer };
        let wake = Arc::clone(&room);
        let state = GroupState::new(name.clone(), ctx.retry, is_shared, observers, wake);
        let topic_end = topic.watch(&ctx.engine);
        let keys = GroupKeys { lease, properties };
        let read_ahead = ctx.read_ahead.share();
        let store = GroupStore::new(ctx, topic, name, keys, dead_letters);
        Ok(Self {
            state,
            store,
            commands,
            topic_end,
            room,
            commit: None,
            in_flight: InFlight::default(),
            oldest,
            read_ahead,
        })
    }

    pub(crate) async fn run(mut self) {
        loop {
            match self.next_wakeup().await {
                Wakeup::Command(None) => return,
                Wakeup::Command(Some(command)) => {
                    if let Some(ending) = self.handle_some(command).await {
                        return self.end(ending).await;
                    }
                }
                Wakeup::Committed(answer) => self.committed(answer).await,
                Wakeup::Turn => {}
            }
            let now = now();
            self.take_turn(now).await;
            self.in_flight.set(self.state.in_flight(), self.state.series());
            self.oldest.set(self.state.oldest_unacked());
            self.read_ahead.set(self.state.fetched_bytes());
            if self.read_ahead.exceeds_fair_share() {
                self.state.drop_read_ahead();
                self.read_ahead.set(self.state.fetched_bytes());
            }
            if self.state.is_idle(now) && self.store.retire(|| self.commands.is_empty()) {
                break;
            }
        }
        self.leave_topic();
    }

    fn leave_topic(self) {
        drop(self.topic_end);
        self.store.topic.feed.clear_if_abandoned();
    }

    async fn end(mut self, ending: Ending) {
        let done = match ending {
            Ending::Stop(done) => {
                self.stop().await;
                done
            }
            Ending::Delete(reason, done) => {
                self.delete(reason).await;
                self.leave_topic();
                done
            }
        };
        // The receiver may have been dropped.
        let _ = done.send(());
    }

    async fn next_wakeup(&mut self) -> Wakeup {
        let wake_at = self.state.wake_at();
        let is_full = self.state.is_full();
        let has_members = self.state.has_members();
        let commit = async {
            match &mut self.commit {
                Some(commit) => commit.as_mut().await,
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
            command = self.commands.recv(), if !is_full => Wakeup::Command(command),
            answer = commit => Wakeup::Committed(answer),
            // The sender lives in the feed, which this task holds: there is no error.
            _ = self.topic_end.changed(), if has_members => Wakeup::Turn,
            () = self.room.notified() => Wakeup::Turn,
            () = timer => Wakeup::Turn,
        }
    }

    /// Handles `first` and the commands that wait behind it, up to one that ends the task.
    async fn handle_some(&mut self, first: Command) -> Option<Ending> {
        let (mut command, mut handled, mut ids) = (first, 0, 0);
        loop {
            match command {
                Command::Stop { reply } => return Some(Ending::Stop(reply)),
                Command::End { reason, reply } => return Some(Ending::Delete(reason, reply)),
                _ => {}
            }
            ids += command.ids();
            self.state.handle(command, now());
            self.perform_queued().await;
            handled += 1;
            if ids >= MAX_IDS {
                tokio::task::yield_now().await;
                return None;
            }
            if handled == MAX_COMMANDS || self.state.is_full() {
                return None;
            }
            command = self.commands.try_recv().ok()?;
        }
    }

    async fn committed(&mut self, answer: CommitResult) {
        self.commit = None;
        self.state.committed(answer, now());
        self.perform_queued().await;
    }

    /// Delivers, commits and releases whatever there is to deliver, commit and release.
    async fn take_turn(&mut self, now: Instant) {
        self.state.begin_turn(now);
        while let Some(effect) = {
            let conditions = self.conditions();
            self.state.next_effect(&conditions)
        } {
            self.perform(effect).await;
        }
    }

    async fn perform_queued(&mut self) {
        while let Some(effect) = self.state.queued_effect() {
            self.perform(effect).await;
        }
    }

    fn conditions(&mut self) -> Conditions {
        let now = now();
        let ctx = &self.store.ctx;
        let is_stale = ctx.group_leases.as_ref().is_some_and(|l| !l.heartbeat.is_trusted(now));
        let gate = if ctx.is_closing.load(Ordering::Relaxed) {
            DeliveryGate::Closing
        } else if is_stale {
            DeliveryGate::HeartbeatStale
        } else {
            DeliveryGate::Open
        };
        let topic_end = *self.topic_end.borrow_and_update();
        let (timestamp, durability) = (ctx.clock.now(), self.store.topic.durability());
        Conditions { now, timestamp, topic_end, durability, gate }
    }

    async fn perform(&mut self, effect: Effect) {
        match effect {
            Effect::Load(joining) => {
                let loaded = self.store.load(&joining.start).await;
                self.state.loaded(joining, loaded);
            }
            Effect::Claim(claim) => {
                let outcome = self.store.claim(&claim).await;
                self.state.claimed(claim, outcome);
            }
            Effect::StoreProperties(properties, named_by) => {
                let stored = match named_by {
                    NamedBy::Member(_) => self.store.store_properties(properties).await,
                    NamedBy::Operator(_) => self.store.change_properties(properties).await,
                };
                self.state.properties_stored(properties, named_by, stored);
            }
            Effect::WatchLease => self.store.watch_lease(),
            Effect::WatchProperties => self.store.watch_properties(),
            Effect::Unwatch => self.store.unwatch(),
            Effect::LookUpMarks(lookup) => {
                let marked = self.store.first_marked(&lookup.ack.ids).await;
                self.state.marks_found(lookup, marked, now());
            }
            Effect::Read { from, events, letter } => {
                let held = self.state.fetched_bytes();
                self.read_ahead.set(held);
                // Reserved before the read: many groups may read at the same time.
                let bytes = self.read_ahead.grow_up_to(held + READ_AHEAD.bytes);
                let budget = ReadBudget { events: events.min(READ_AHEAD.events), bytes };
                let outcome = self.store.read(from, budget, letter).await;
                self.state.events_read(from, outcome, now());
                self.read_ahead.set(self.state.fetched_bytes());
            }
            Effect::ReadRedrives => {
                // It may store the letter that was redriven.
                let _ = self.finish_commit().await;
                let redrives = self.store.redrives().await;
                self.state.redrives_read(redrives, self.store.moment());
            }
            Effect::ReadCursor(failed) => {
                // A commit that fails has its cursor read.
                if failed.is_some() || self.finish_commit().await.is_ok() {
                    let stored = self.store.progress().await;
                    self.state.cursor_read(failed, stored, now());
                }
            }
            Effect::AnswerStoredAck(stored) => self.store.answer_stored_ack(stored).await,
            Effect::EncodeDeadLetters(mut letters) => {
                let encoded = self.store.encode_dead_letters(&mut letters).await;
                let conditions = self.conditions();
                self.state.dead_letters_encoded(letters, encoded, &conditions);
            }
            Effect::Commit(submission) => self.commit = Some(self.store.commit(submission)),
            Effect::Release => {
                let outcome = self.store.release().await;
                self.state.released(outcome, now());
            }
            Effect::Seek(seeking) => {
                // Its answer is that of a group that has not moved.
                let _ = self.finish_commit().await;
                let outcome = self.store.seek(&seeking).await;
                self.state.sought(seeking, outcome);
            }
        }
    }

    /// Waits for the commit in flight, if there is one. Returns an error if it failed.
    async fn finish_commit(&mut self) -> Result<(), CommitFailed> {
        let Some(commit) = self.commit.take() else { return Ok(()) };
        let answer = commit.await;
        let outcome = answer.as_ref().map(drop).map_err(|_| CommitFailed);
        self.state.committed(answer, now());
        outcome
    }

    /// Ends every subscription, and stores nothing more: the group is about to be deleted. When this returns,
    /// no commit of the group is in progress.
    async fn delete(&mut self, reason: EndReason) {
        if let Some(commit) = self.commit.take() {
            // Whoever waits for it learns what was stored.
            let answer = commit.await;
            self.committed(answer).await;
        }
        self.state.end_members(reason);
        self.in_flight.set(0, self.state.series());
        self.store.retire(|| true);
    }

    /// Lets every member leave, stores the cursor once more and releases the group.
    async fn stop(&mut self) {
        self.state.dismiss_members(now());
        loop {
            self.take_turn(now()).await;
            match &mut self.commit {
                Some(commit) => {
                    let answer = commit.as_mut().await;
                    self.committed(answer).await;
                }
                None => break,
            }
        }
        if self.state.may_hold_lease() {
            self.perform(Effect::Release).await;
        }
    }
}
