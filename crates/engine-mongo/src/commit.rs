//! Commits: one transaction per batch, retried when another gateway was faster.
//!
//! - `snapshot`: what an attempt reads of topics, ids and state.
//! - `plan`: what the batch writes, given that snapshot; no I/O.
//! - `writer`: writes the plan.
//! - `version_counter`: the version of every commit.
//! - `topic_locks`, `topic_cache`: save commits of one engine from colliding and from reading
//!   topics.
//! - `idle_transactions`: ends transactions that a dead gateway left open.

mod idle_transactions;
mod plan;
mod snapshot;
pub(crate) mod topic_cache;
pub(crate) mod topic_locks;
mod version_counter;
mod writer;

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use mongodb::ClientSession;
use mongodb::error::{
    Error, RETRYABLE_WRITE_ERROR, TRANSIENT_TRANSACTION_ERROR, UNKNOWN_TRANSACTION_COMMIT_RESULT,
};
use mongodb::options::ReadConcern;
use prombus_engine::{Batch, CommitError, Committed, Conflict, Durability, Version, WriteStats};

use crate::MongoError;
use crate::commit::idle_transactions::IdleTransactions;
use crate::commit::plan::CommitPlan;
use crate::commit::snapshot::SnapshotReader;
use crate::commit::writer::Writer;
use crate::error::{commit_error, is_duplicate_key};
use crate::layout::collections::write_concern;
use crate::store::Store;

/// Longer than an election takes, which is some ten seconds.
const RETRY_FOR: Duration = Duration::from_secs(30);
const MAX_PAUSE_MS: u64 = 50;

/// Why an attempt did not commit.
#[derive(Debug)]
enum AttemptError {
    /// An expectation of the batch does not hold. Final.
    Conflict(Conflict),
    /// An id exists already, or another gateway took the position. The next attempt looks up the
    /// ids before it writes.
    DuplicateKey,
    /// A topic is no longer as cached. The next attempt reads it.
    StaleCache,
    Driver(Error),
}

impl From<Error> for AttemptError {
    fn from(error: Error) -> Self {
        match is_duplicate_key(&error) {
            true => AttemptError::DuplicateKey,
            false => AttemptError::Driver(error),
        }
    }
}

impl Store {
    /// Stores all of `batch` or none of it.
    pub(crate) async fn commit(&self, batch: &Batch) -> Result<Committed, CommitError> {
        let durable;
        let batch = match batch.deleted_topics.is_empty() {
            true => batch,
            false => {
                durable = Batch { durability: Durability::Fsync, ..batch.clone() };
                &durable
            }
        };
        let _guards = match self.deployment.has_transactions() {
            true => self.topic_locks.lock(topics_of(batch)).await,
            false => self.topic_locks.lock_exclusive().await,
        };
        let started = Instant::now();
        let mut idle_transactions = IdleTransactions::new();
        let mut looks_up_ids = false;
        let mut attempts = 0;
        loop {
            attempts += 1;
            let last = match self.attempt(batch, looks_up_ids).await {
                Ok(committed) => return Ok(committed),
                Err(AttemptError::Conflict(conflict)) => return Err(conflict.into()),
                Err(AttemptError::DuplicateKey) => {
                    looks_up_ids = true;
                    "another gateway wrote to the same topic or key".to_owned()
                }
                // Nothing was in the way, so the second attempt follows without a pause.
                Err(AttemptError::StaleCache) if attempts == 1 => continue,
                Err(AttemptError::StaleCache) => "a topic keeps changing".to_owned(),
                Err(AttemptError::Driver(error)) if self.is_transient(&error) => error.to_string(),
                Err(AttemptError::Driver(error)) => return Err(commit_error(error)),
            };
            if started.elapsed() > RETRY_FOR {
                let error = MongoError::Contended { attempts, last };
                return Err(CommitError::Unavailable(error.into()));
            }
            tracing::trace!(attempts, "retrying a commit: {last}");
            idle_transactions.end_abandoned(self).await;
            self.pause(attempts).await;
        }
    }

    /// Returns `true` if nothing was stored and the same attempt may succeed a moment later.
    fn is_transient(&self, error: &Error) -> bool {
        self.deployment.has_transactions()
            && !error.contains_label(UNKNOWN_TRANSACTION_COMMIT_RESULT)
            && (error.contains_label(TRANSIENT_TRANSACTION_ERROR)
                || error.contains_label(RETRYABLE_WRITE_ERROR))
    }

    /// Waits for a random time that grows with the attempts, so that gateways do not keep
    /// colliding.
    async fn pause(&self, attempts: u32) {
        let max_ms = MAX_PAUSE_MS.min(1 << attempts.min(10));
        let micros = self.random.next_u64() % (max_ms * 1000);
        tokio::time::sleep(Duration::from_micros(micros)).await;
    }

    async fn attempt(&self, batch: &Batch, looks_up_ids: bool) -> Result<Committed, AttemptError> {
        let in_transaction = self.deployment.has_transactions();
        let mut session = self.client.start_session().causal_consistency(true).await?;
        if in_transaction {
            // Local, not majority: a commit builds on every commit acknowledged before it.
            let start = session.start_transaction().read_concern(ReadConcern::local());
            start.write_concern(write_concern(batch.durability)).await?;
        }
        let written = self.read_and_write(&mut session, batch, looks_up_ids, in_transaction).await;
        let (plan, version) = match written {
            Ok(written) => written,
            Err(error) => {
                self.topic_cache.remove(topics_of(batch));
                if in_transaction {
                    // If this does not reach the server, the server's own timeout ends it.
                    let _ = session.abort_transaction().await;
                }
                return Err(error);
            }
        };
        let sync_started = Instant::now();
        let deleted = plan.names_of_deleted();
        self.own_deletions.begin(&deleted);
        if in_transaction {
            let committed = commit_transaction(&mut session).await;
            committed.inspect_err(|_| {
                for (topic, last) in self.own_deletions.undo(&deleted) {
                    self.watchers.notify(&topic, last);
                }
                self.topic_cache.remove(topics_of(batch));
            })?;
        }
        self.topic_cache.remove(batch.deleted_topics.iter().map(|topic| topic.as_str()));
        self.topic_cache.insert(&plan.appended);
        self.causality.advance_to(session.operation_time());
        if !batch.deleted_topics.is_empty() {
            batch.deleted_topics.iter().for_each(|topic| self.watchers.end(topic));
            self.deletion_requested.notify_one();
        }
        let is_synced = batch.durability == Durability::Fsync;
        // An election can still roll back a buffered commit, so only the change stream reports it,
        // once a majority has it. Otherwise a topic would seem to reach beyond its end.
        if is_synced || !in_transaction {
            for (topic, document) in &plan.appended {
                self.watchers.notify(topic, document.last());
            }
        }
        let sync_time = is_synced.then(|| sync_started.elapsed());
        Ok(Committed {
            write: Some(WriteStats { events: plan.positions.len(), sync_time }),
            positions: plan.positions,
            version,
            durability: if is_synced { Durability::Fsync } else { Durability::Buffered },
        })
    }

    async fn read_and_write(
        &self,
        session: &mut ClientSession,
        batch: &Batch,
        looks_up_ids: bool,
        in_transaction: bool,
    ) -> Result<(CommitPlan, Version), AttemptError> {
        // Expected positions and known ids are checked against the database, never the cache.
        let may_use_cache = in_transaction
            && !looks_up_ids
            && batch.expected_last.is_empty()
            && batch.deleted_topics.is_empty();
        let cached = may_use_cache.then(|| self.topic_cache.get_all(topics_of(batch))).flatten();
        let is_cached = cached.is_some();
        let durability = batch.durability;
        let mut reader =
            SnapshotReader { store: self, session: &mut *session, durability, in_transaction };
        let snapshot = reader.read(batch, cached, looks_up_ids).await?;
        let now = self.clock.now();
        let mut plan = CommitPlan::new(batch, &snapshot, now).map_err(AttemptError::Conflict)?;
        let collections = &self.collections;
        let mut writer = Writer { collections, session, durability, in_transaction };
        if in_transaction {
            // First, so that the loser of a race learns it before it has sent its events.
            match is_cached {
                true => writer.write_cached_topics(&plan.appended, &snapshot.topics).await?,
                false => writer.write_topics(&plan).await?,
            }
        }
        // An empty commit stores nothing but its version, which then needs the full durability.
        let is_empty = plan.events.is_empty() && plan.state.is_empty() && plan.deleted.is_empty();
        let version_durability = if is_empty { durability } else { Durability::Buffered };
        let (version, written) =
            tokio::join!(self.next_version(version_durability), writer.write_events(&mut plan));
        written?;
        let version = version?;
        writer.write_state(&plan.state, version).await?;
        if !in_transaction {
            // Last: the events count once their topics include them.
            writer.write_topics(&plan).await?;
        }
        Ok((plan, version))
    }
}

/// The topics that `batch` appends to, deletes or has expectations of.
fn topics_of(batch: &Batch) -> BTreeSet<&str> {
    let appended = batch.events.iter().map(|event| event.topic().as_str());
    let expected = batch.expected_last.iter().map(|(topic, _)| topic.as_str());
    let deleted = batch.deleted_topics.iter().map(|topic| topic.as_str());
    appended.chain(expected).chain(deleted).collect()
}

/// Commits a transaction. If the outcome is unknown, asks again until it is known.
pub(crate) async fn commit_transaction(session: &mut ClientSession) -> Result<(), Error> {
    let started = Instant::now();
    loop {
        match session.commit_transaction().await {
            Err(error)
                if error.contains_label(UNKNOWN_TRANSACTION_COMMIT_RESULT)
                    && started.elapsed() < RETRY_FOR => {}
            outcome => return outcome,
        }
    }
}
