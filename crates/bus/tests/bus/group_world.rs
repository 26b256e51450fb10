//! A group, its consumers and its storage, and what an observer knows of every event.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use prombus_bus::cursor::{Cursor, Progress};
use prombus_bus::{
    AfterNack, Delivery, FeedEvent, RetryDelays, Settings, StartAt, SubscribeOptions,
    SubscriptionDefaults,
};
use prombus_engine::{Engine, Faults, FaultyEngine};
use prombus_proto::{ErrorCode, Event};
use tempfile::TempDir;

use crate::harness::{
    Consumer, Harness, billing, disk, event, from, memory, named, orders, settle, stored, unlimited,
};

const ACK_TIMEOUT: Duration = Duration::from_secs(5);
const MAX_ATTEMPTS: u32 = 3;

/// How fast time passes.
#[derive(Clone, Copy)]
pub(crate) enum Pace {
    /// By Tokio's paused clock.
    Paused,
    /// By the real clock, with every duration divided by a hundred.
    Hundredfold,
}

pub(crate) struct World {
    pub(crate) faults: Faults,
    pace: Pace,
    folder: Option<TempDir>,
    /// The engine without faults.
    inner: Arc<dyn Engine>,
    harness: Option<Harness>,
    members: [Option<MemberState>; 3],
    published: u64,
    /// The attempts of each event that consumers saw, or that the cursor had at the last restart.
    attempts: BTreeMap<u64, u32>,
    acked: BTreeSet<u64>,
    /// Acknowledged, and refused because storing failed: the ACK may or may not be stored.
    unsure: BTreeSet<u64>,
    /// Answered late and not done: a redelivery may have been withdrawn unseen, and it counts.
    answered_late: BTreeSet<u64>,
    /// First deliveries may be out of order, because one was withdrawn from a delivery queue.
    is_disordered: bool,
}

struct MemberState {
    consumer: Consumer,
    max_in_flight: u32,
    held: Vec<Delivery>,
    is_stalled: bool,
    newest_first: u64,
}

impl World {
    pub(crate) fn in_memory() -> Self {
        Self::over(memory(), None, Pace::Paused)
    }

    pub(crate) fn on_disk(pace: Pace) -> Self {
        let folder = tempfile::tempdir().unwrap();
        Self::over(disk(folder.path()), Some(folder), pace)
    }

    fn over(inner: Arc<dyn Engine>, folder: Option<TempDir>, pace: Pace) -> Self {
        let faults = Faults::none();
        let engine = Arc::new(FaultyEngine::new(Arc::clone(&inner), faults.clone()));
        let subscription = SubscriptionDefaults {
            max_in_flight: 1,
            ack_timeout: pace.of(ACK_TIMEOUT),
            max_attempts: MAX_ATTEMPTS,
        };
        let retry = RetryDelays {
            first: pace.of(Duration::from_millis(100)),
            factor: 2,
            max: pace.of(Duration::from_secs(30)),
        };
        let harness = Harness::over(engine, Settings { subscription, retry, ..unlimited() });
        Self {
            faults,
            pace,
            folder,
            inner,
            harness: Some(harness),
            members: [None, None, None],
            published: 0,
            attempts: BTreeMap::new(),
            acked: BTreeSet::new(),
            unsure: BTreeSet::new(),
            answered_late: BTreeSet::new(),
            // In real time, on a busy machine, a lease may expire unseen in the delivery queue.
            is_disordered: matches!(pace, Pace::Hundredfold),
        }
    }

    fn harness(&self) -> &Harness {
        self.harness.as_ref().unwrap()
    }

    pub(crate) async fn publish(&mut self, count: usize) {
        let connection = self.harness().bus.connect();
        for _ in 0..count {
            let answer = self.harness().try_publish(&connection, &orders(), vec![event("1")]).await;
            match answer {
                Ok(positions) => assert_eq!(positions[0].seq.0, self.stored_events().await),
                Err(refusal) => assert_eq!(refusal.code, ErrorCode::StorageUnavailable),
            }
        }
        // A refused event may be stored all the same.
        self.published = self.stored_events().await;
    }

    async fn stored_events(&self) -> u64 {
        self.inner.bounds(&orders()).await.unwrap().last().0
    }

    pub(crate) async fn join(&mut self, index: usize, max_in_flight: u32) {
        if self.members[index].is_some() {
            return;
        }
        let options =
            SubscribeOptions { max_in_flight: Some(max_in_flight), ..from(StartAt::Earliest) };
        match self.harness().try_subscribe(&orders(), options).await {
            Ok(consumer) => {
                let held = Vec::new();
                let (is_stalled, newest_first) = (false, 0);
                let state = MemberState { consumer, max_in_flight, held, is_stalled, newest_first };
                self.members[index] = Some(state);
            }
            Err(refusal) => assert_eq!(refusal.code, ErrorCode::StorageUnavailable),
        }
    }

    pub(crate) async fn leave(&mut self, index: usize) {
        self.note_disorder();
        if let Some(member) = self.members[index].take() {
            member.consumer.subscription.end().await.unwrap().unwrap();
            assert!(member.consumer.connection.delivery_queue.is_empty());
        }
    }

    pub(crate) async fn set_paused(&mut self, index: usize, paused: bool) {
        self.note_disorder();
        if let Some(member) = &self.members[index] {
            let subscription = &member.consumer.subscription;
            let answer = if paused { subscription.pause() } else { subscription.resume() };
            answer.await.unwrap().unwrap();
            assert!(!paused || member.consumer.connection.delivery_queue.is_empty());
        }
    }

    pub(crate) fn set_stalled(&mut self, index: usize, stalled: bool) {
        if let Some(member) = &mut self.members[index] {
            member.is_stalled = stalled;
        }
    }

    pub(crate) async fn ack(&mut self, index: usize, pick: usize, count: usize) {
        self.note_disorder();
        let Some(member) = &mut self.members[index] else { return };
        let start = pick.min(member.held.len());
        let end = (start + count).min(member.held.len());
        let picked: Vec<_> = member.held.drain(start..end).collect();
        let ids = crate::harness::ids(&picked);
        let waits = !member.consumer.connection.delivery_queue.is_empty();
        match member.consumer.subscription.ack(ids, None, None).await.unwrap() {
            Ok(acked) => {
                for (index, delivery) in picked.iter().enumerate() {
                    if !acked.stale.contains(&index) {
                        let seq = delivery.event.seq.0;
                        assert!(self.acked.insert(seq), "{seq} was acknowledged twice");
                    }
                }
            }
            Err(refusal) => {
                assert_eq!(refusal.code, ErrorCode::StorageUnavailable);
                let refused = picked.iter().map(|delivery| delivery.event.seq.0);
                if waits {
                    self.answered_late.extend(refused.clone());
                }
                self.unsure.extend(refused);
                member.held.extend(picked);
            }
        }
    }

    pub(crate) async fn nack(&mut self, index: usize, pick: usize, delay_ms: Option<u64>) {
        self.note_disorder();
        let Some(member) = &mut self.members[index] else { return };
        if pick < member.held.len() {
            let FeedEvent { seq, id, .. } = member.held.remove(pick).event;
            if !member.consumer.connection.delivery_queue.is_empty() {
                self.answered_late.insert(seq.0);
            }
            let rest = delay_ms.map(|ms| self.pace.of(Duration::from_millis(ms)));
            let next = rest.map_or(AfterNack::BackOff, AfterNack::Delay);
            match member.consumer.subscription.nack(vec![id], None, next).await.unwrap() {
                Ok(_) => {}
                Err(refusal) => assert_eq!(refusal.code, ErrorCode::StorageUnavailable),
            }
        }
    }

    /// Lets time pass while consumers read, so that only deliveries to stalled ones expire unread.
    pub(crate) async fn wait(&mut self, time: Duration) {
        let mut left = time;
        while !left.is_zero() {
            let some = left.min(ACK_TIMEOUT / 5);
            self.note_disorder();
            tokio::time::sleep(self.pace.of(some)).await;
            self.drain_queues().await;
            left -= some;
        }
    }

    pub(crate) async fn restart(&mut self, consumers_first: bool) {
        self.note_disorder();
        if consumers_first {
            self.members = [None, None, None];
            settle().await;
        }
        let restart = self.harness.take().unwrap().stop();
        self.members = [None, None, None];
        settle().await;
        if let Some(folder) = &self.folder {
            self.inner.close().await.unwrap();
            self.inner = disk(folder.path());
        }
        self.harness =
            Some(restart(Arc::new(FaultyEngine::new(self.inner.clone(), self.faults.clone()))));
        self.published = self.stored_events().await;
        if let Some(cursor) = self.cursor().await {
            self.attempts.clear();
            for (progress, seq) in cursor.above().zip(cursor.floor.0 + 1..) {
                if let Progress::Tried(attempts) | Progress::BackingOff(attempts, _) = progress {
                    self.attempts.insert(seq, attempts.deliveries);
                }
            }
        }
    }

    /// Deliveries in a queue may be withdrawn by what happens next, and come later.
    fn note_disorder(&mut self) {
        let waits =
            self.members.iter().flatten().any(|m| !m.consumer.connection.delivery_queue.is_empty());
        self.is_disordered |= waits;
    }

    /// Consumers drain their queues, except for stalled ones.
    pub(crate) async fn drain_queues(&mut self) {
        settle().await;
        let dead = self.dead().await;
        let now = tokio::time::Instant::now().into_std();
        for member in self.members.iter_mut().flatten().filter(|member| !member.is_stalled) {
            let mut taken = Vec::new();
            member.consumer.connection.delivery_queue.take(usize::MAX, &mut taken);
            for delivery in &taken {
                let (seq, attempt) = (delivery.event.seq.0, delivery.attempt);
                assert!(seq <= self.published);
                assert!(!self.acked.contains(&seq), "{seq} came after it was acknowledged");
                assert!(!dead.contains(&seq), "{seq} came after it was a dead letter");
                let before = self.attempts.insert(seq, attempt).unwrap_or(0);
                let unseen = u32::from(self.answered_late.remove(&seq));
                assert!(
                    attempt == before + 1 || attempt == before + 1 + unseen,
                    "attempt {attempt} of {seq} behind {before}"
                );
                if attempt == 1 && !self.is_disordered {
                    assert!(seq > member.newest_first, "{seq} behind {}", member.newest_first);
                    member.newest_first = seq;
                }
            }
            member.held.retain(|old| taken.iter().all(|new| new.event.seq != old.event.seq));
            member.held.extend(taken);
            // An event whose ACK could not be stored is leased again, next to the one that took its credit.
            let is_running = |delivery: &&Delivery| {
                delivery.deadline > now && !self.unsure.contains(&delivery.event.seq.0)
            };
            let running = member.held.iter().filter(is_running).count();
            assert!(running <= member.max_in_flight as usize, "{running} are out");
        }
    }

    async fn cursor(&self) -> Option<Cursor> {
        let key = Cursor::key(&orders(), &billing()).unwrap();
        let entry = self.inner.get(&key).await.unwrap()?;
        Some(Cursor::decode(&entry.value).unwrap())
    }

    /// The dead-lettered events; each has one letter.
    async fn dead(&self) -> BTreeSet<u64> {
        let mut dead = BTreeSet::new();
        for letter in stored(self.inner.as_ref(), &named("dlq.orders")).await {
            let (_, letter) = Event::decode(&letter.json).unwrap();
            let payload: serde_json::Value =
                serde_json::from_slice(letter.payload.as_bytes()).unwrap();
            assert!(payload["attempts"].as_u64().unwrap() >= MAX_ATTEMPTS.into());
            let seq = payload["original"]["seq"].as_u64().unwrap();
            assert!(dead.insert(seq), "{seq} has two dead letters");
        }
        dead
    }

    /// Checks that the stored cursor counts only finished events as done.
    pub(crate) async fn check(&self) {
        let Some(cursor) = self.cursor().await else { return };
        let dead = self.dead().await;
        let above = cursor.above().zip(cursor.floor.0 + 1..);
        let done = above.filter(|(progress, _)| *progress == Progress::Done).map(|(_, seq)| seq);
        for seq in (1..=cursor.floor.0).chain(done) {
            let is_done =
                self.acked.contains(&seq) || self.unsure.contains(&seq) || dead.contains(&seq);
            assert!(is_done, "the cursor passed {seq}, which nobody acknowledged");
        }
        for seq in &self.acked {
            assert!(!dead.contains(seq), "{seq} was acknowledged and is a dead letter");
        }
    }

    /// Ends all faults and lets one consumer acknowledge everything.
    pub(crate) async fn finish(mut self) {
        self.faults.heal();
        self.restart(false).await;
        self.join(0, 100).await;
        // Enough even for a busy machine.
        let patience = Duration::from_secs(100);
        let done = async {
            while self.cursor().await.is_none_or(|cursor| cursor.floor.0 < self.published) {
                self.drain_queues().await;
                self.ack(0, 0, usize::MAX / 2).await;
                self.check().await;
            }
        };
        tokio::time::timeout(patience, done).await.expect("every event is done in the end");
        let dead = self.dead().await;
        for seq in 1..=self.published {
            let is_done =
                self.acked.contains(&seq) || self.unsure.contains(&seq) || dead.contains(&seq);
            assert!(is_done, "{seq} was lost");
        }
        self.harness().bus.close().await.unwrap();
    }
}

impl Pace {
    fn of(self, time: Duration) -> Duration {
        match self {
            Pace::Paused => time,
            Pace::Hundredfold => time / 100,
        }
    }
}
