//! The one door in: a transaction, tried again when another gateway was first.

mod idle_transactions;
mod plan;
pub(crate) mod topic_cache;
pub(crate) mod topic_locks;
mod version_counter;
mod writer;

use std::collections::{BTreeSet, HashMap};
use std::time::{Duration, Instant};

use mongodb::ClientSession;
use mongodb::bson::{RawDocumentBuf, doc};
use mongodb::error::{
    Error, RETRYABLE_WRITE_ERROR, TRANSIENT_TRANSACTION_ERROR, UNKNOWN_TRANSACTION_COMMIT_RESULT,
};
use mongodb::options::ReadConcern;
use prombus_engine::{
    Batch, CommitError, Committed, Conflict, Durability, StateKey, Version, WriteStats,
};

use crate::MongoError;
use crate::commit::idle_transactions::Abandoned;
use crate::commit::plan::{Plan, Seen, stage};
use crate::commit::writer::{Failure, Writer};
use crate::error::of_commit;
use crate::layout::collections::{EVENTS, PARTS, TOPICS, write_concern};
use crate::layout::event_document::seq_of;
use crate::layout::numbers::{number_in, to_bson};
use crate::layout::topic_document::TopicDocument;
use crate::state::lookup::entries_of;
use crate::store::Store;

/// An election takes some ten seconds; whoever waits longer than this is told.
const GIVEN_UP_AFTER: Duration = Duration::from_secs(30);
const LONGEST_PAUSE_MS: u64 = 50;
const IDS_AT_ONCE: usize = 10_000;

/// Why an attempt did not become a commit.
enum Setback {
    Refused(Conflict),
    /// Something unique is there already. The next attempt looks before it writes.
    AlreadyThere,
    /// A topic does not end where this engine left it. The next attempt looks where it does.
    Outdated,
    Driver(Error),
}

impl From<Failure> for Setback {
    fn from(failure: Failure) -> Self {
        match failure {
            Failure::AlreadyThere => Setback::AlreadyThere,
            Failure::Outdated => Setback::Outdated,
            Failure::Driver(error) => Setback::Driver(error),
        }
    }
}

impl From<Error> for Setback {
    fn from(error: Error) -> Self {
        Failure::from(error).into()
    }
}

impl Store {
    /// Stores all of `batch` or nothing of it.
    pub(crate) async fn commit(&self, batch: &Batch) -> Result<Committed, CommitError> {
        let _turn = match self.deployment.has_transactions() {
            true => self.turns.at(topics_of(batch)).await,
            false => self.turns.alone().await,
        };
        let began = Instant::now();
        let mut abandoned = Abandoned::new();
        let mut looks_first = false;
        let mut attempts = 0;
        loop {
            attempts += 1;
            let last = match self.attempt(batch, looks_first).await {
                Ok(committed) => return Ok(committed),
                Err(Setback::Refused(conflict)) => return Err(conflict.into()),
                Err(Setback::AlreadyThere) => {
                    looks_first = true;
                    "another gateway wrote to the same topic or key".to_owned()
                }
                // Nobody is in the way: what follows is another way to begin, not another try.
                Err(Setback::Outdated) if attempts == 1 => continue,
                Err(Setback::Outdated) => "a topic changes all the time".to_owned(),
                Err(Setback::Driver(error)) if self.passes_by_itself(&error) => error.to_string(),
                Err(Setback::Driver(error)) => return Err(of_commit(error)),
            };
            if began.elapsed() > GIVEN_UP_AFTER {
                let error = MongoError::Contended { attempts, last };
                return Err(CommitError::Unavailable(error.into()));
            }
            tracing::trace!(attempts, "a commit is tried again: {last}");
            abandoned.end_some(self).await;
            self.pause(attempts).await;
        }
    }

    /// Whether the same attempt may succeed a moment later, and nothing of it was stored.
    fn passes_by_itself(&self, error: &Error) -> bool {
        self.deployment.has_transactions()
            && !error.contains_label(UNKNOWN_TRANSACTION_COMMIT_RESULT)
            && (error.contains_label(TRANSIENT_TRANSACTION_ERROR)
                || error.contains_label(RETRYABLE_WRITE_ERROR))
    }

    /// A random pause that grows from attempt to attempt, so that gateways do not keep colliding.
    async fn pause(&self, attempts: u32) {
        let longest = LONGEST_PAUSE_MS.min(1 << attempts.min(10));
        let micros = self.random.next_u64() % (longest * 1000);
        tokio::time::sleep(Duration::from_micros(micros)).await;
    }

    async fn attempt(&self, batch: &Batch, looks_first: bool) -> Result<Committed, Setback> {
        let in_transaction = self.deployment.has_transactions();
        let mut session = self.client.start_session().causal_consistency(true).await?;
        if in_transaction {
            // What is newest, not what a majority has: a commit follows what was answered before.
            let start = session.start_transaction().read_concern(ReadConcern::local());
            start.write_concern(write_concern(batch.durability)).await?;
        }
        let written = self.look_and_write(&mut session, batch, looks_first, in_transaction).await;
        let (plan, version) = match written {
            Ok(written) => written,
            Err(setback) => {
                self.ends.forget(topics_of(batch));
                if in_transaction {
                    // The server ends it by itself where this does not reach it.
                    let _ = session.abort_transaction().await;
                }
                return Err(setback);
            }
        };
        let began = Instant::now();
        if in_transaction {
            let finished = finish(&mut session).await;
            finished.inspect_err(|_| self.ends.forget(topics_of(batch)))?;
        }
        self.ends.remember(&plan.grown);
        self.causality.reached(session.operation_time());
        let is_synced = batch.durability == Durability::Fsync;
        // What an election can still take back is told by the change stream once it cannot any more:
        // otherwise a topic would seem to end behind its end.
        if is_synced || !in_transaction {
            for (topic, end) in &plan.grown {
                self.growth.tell(topic, end.last());
            }
        }
        let sync_time = is_synced.then(|| began.elapsed());
        Ok(Committed {
            write: Some(WriteStats { events: plan.positions.len(), sync_time }),
            positions: plan.positions,
            version,
            durability: if is_synced { Durability::Fsync } else { Durability::Buffered },
        })
    }

    async fn look_and_write(
        &self,
        session: &mut ClientSession,
        batch: &Batch,
        looks_first: bool,
        in_transaction: bool,
    ) -> Result<(Plan, Version), Setback> {
        let assumed = match in_transaction && !looks_first && batch.expected_last.is_empty() {
            true => self.ends.of_all(topics_of(batch)),
            // What is expected is checked, and ids are looked up, against what is there.
            false => None,
        };
        let is_assumed = assumed.is_some();
        let mut look = Look {
            store: self,
            session: &mut *session,
            durability: batch.durability,
            in_transaction,
        };
        let seen = look.all(batch, assumed, looks_first).await?;
        let mut plan = stage(batch, &seen, self.clock.now()).map_err(Setback::Refused)?;
        let durability = batch.durability;
        let collections = &self.collections;
        let mut writer = Writer { collections, session, durability, in_transaction };
        let writes_nothing = plan.events.is_empty() && plan.state.is_empty();
        // Where nothing else is written, the number is what has to be as safe as was asked for.
        let of_number = if writes_nothing { durability } else { Durability::Buffered };
        if in_transaction {
            // First, so that whoever was not first learns it before it has sent its events.
            match is_assumed {
                true => writer.write_assumed_topics(&plan.grown, &seen.topics).await?,
                false => writer.write_topics(&plan.grown, &plan.guarded).await?,
            }
        }
        let (version, written) =
            tokio::join!(self.next_version(of_number), writer.write_events(&mut plan));
        written?;
        let version = version?;
        writer.write_state(&plan.state, version).await?;
        if !in_transaction {
            // Last: it is what makes the events count.
            writer.write_topics(&plan.grown, &plan.guarded).await?;
        }
        Ok((plan, version))
    }
}

/// The topics that `batch` has something to do with.
fn topics_of(batch: &Batch) -> BTreeSet<&str> {
    let appended = batch.events.iter().map(|event| event.topic().as_str());
    let expected = batch.expected_last.iter().map(|(topic, _)| topic.as_str());
    appended.chain(expected).collect()
}

/// Ends a transaction. Whether an answer that got lost was a yes is asked again.
pub(crate) async fn finish(session: &mut ClientSession) -> Result<(), Error> {
    let began = Instant::now();
    loop {
        match session.commit_transaction().await {
            Err(error)
                if error.contains_label(UNKNOWN_TRANSACTION_COMMIT_RESULT)
                    && began.elapsed() < GIVEN_UP_AFTER => {}
            answer => return answer,
        }
    }
}

/// Looking at what a batch builds on.
struct Look<'a> {
    store: &'a Store,
    session: &'a mut ClientSession,
    durability: Durability,
    in_transaction: bool,
}

impl Look<'_> {
    /// All that is there, except for topics that are `assumed` to be so.
    async fn all(
        &mut self,
        batch: &Batch,
        assumed: Option<HashMap<String, TopicDocument>>,
        looks_first: bool,
    ) -> Result<Seen, Setback> {
        let topics = match assumed {
            Some(topics) => topics,
            None => self.topics(batch).await?,
        };
        let mut seen = Seen { topics, ..Seen::default() };
        if !batch.state.is_empty() {
            let keys: BTreeSet<&StateKey> = batch.state.iter().map(|op| op.key()).collect();
            let keys: Vec<StateKey> = keys.into_iter().cloned().collect();
            let (collections, durability) = (&self.store.collections, self.durability);
            let in_transaction = self.in_transaction;
            seen.state = entries_of(self.session, &keys, |shelf| {
                collections.for_commit(shelf.collection(), durability, in_transaction)
            })
            .await?;
        }
        if looks_first {
            self.tails(batch, &mut seen).await?;
            self.ids(batch, &mut seen).await?;
        }
        Ok(seen)
    }

    async fn topics(&mut self, batch: &Batch) -> Result<HashMap<String, TopicDocument>, Error> {
        let names = topics_of(batch);
        let mut found = HashMap::new();
        if names.is_empty() {
            return Ok(found);
        }
        let names: Vec<&str> = names.into_iter().collect();
        let collection = self.store.collections.for_commit::<TopicDocument>(
            TOPICS,
            self.durability,
            self.in_transaction,
        );
        let query = collection.find(doc! { "_id": { "$in": names } });
        let mut cursor = query.session(&mut *self.session).await?;
        while let Some(topic) = cursor.next(self.session).await {
            let topic = topic?;
            found.insert(topic.name.clone(), topic);
        }
        Ok(found)
    }

    /// Events behind the end that a topic knows of. Alone, they are what an attempt that failed left
    /// behind, and go. Otherwise somebody wrote them who does not keep `topics`: they count.
    async fn tails(&mut self, batch: &Batch, seen: &mut Seen) -> Result<(), Error> {
        let names: BTreeSet<&str> =
            batch.events.iter().map(|event| event.topic().as_str()).collect();
        for name in names {
            let end =
                seen.topics.entry(name.to_owned()).or_insert_with(|| TopicDocument::new(name));
            let behind = doc! { "topic": name, "seq": { "$gte": end.next } };
            let (durability, in_transaction) = (self.durability, self.in_transaction);
            let collection = |of: &str| {
                self.store.collections.for_commit::<RawDocumentBuf>(of, durability, in_transaction)
            };
            if !self.in_transaction {
                for of in [PARTS, EVENTS] {
                    collection(of).delete_many(behind.clone()).session(&mut *self.session).await?;
                }
                continue;
            }
            let last = collection(EVENTS)
                .find_one(behind)
                .sort(doc! { "topic": 1, "seq": -1 })
                .projection(doc! { "_id": 0, "seq": 1, "bytes": 1, "latestTs": 1 })
                .session(&mut *self.session)
                .await?;
            if let Some(last) = last {
                end.next = number_in(&last, "seq").unwrap_or(end.next - 1) + 1;
                end.bytes = number_in(&last, "bytes").unwrap_or(end.bytes).max(end.bytes);
                end.latest_ts = number_in(&last, "latestTs").unwrap_or(0).max(end.latest_ts);
            }
        }
        Ok(())
    }

    /// Where ids of the batch are. Those that were forgotten and have not gone yet go now.
    async fn ids(&mut self, batch: &Batch, seen: &mut Seen) -> Result<(), Error> {
        let mut wanted: HashMap<&str, Vec<String>> = HashMap::new();
        for event in &batch.events {
            wanted.entry(event.topic().as_str()).or_default().push(event.id().to_string());
        }
        let collection = self.store.collections.for_commit::<RawDocumentBuf>(
            EVENTS,
            self.durability,
            self.in_transaction,
        );
        for (name, mut ids) in wanted {
            ids.sort_unstable();
            ids.dedup();
            let first = seen.topics.get(name).map_or(1, |topic| topic.first);
            let mut forgotten: Vec<i64> = Vec::new();
            for ids in ids.chunks(IDS_AT_ONCE) {
                let query = collection
                    .find(doc! { "topic": name, "id": { "$in": ids } })
                    .projection(doc! { "_id": 0, "seq": 1, "id": 1 });
                let mut cursor = query.session(&mut *self.session).await?;
                while cursor.advance(self.session).await? {
                    let event = cursor.current();
                    let (Ok(id), Ok(seq)) = (event.get_str("id"), seq_of(event)) else { continue };
                    match to_bson(seq.0) < first {
                        true => forgotten.push(to_bson(seq.0)),
                        false => {
                            seen.ids.insert((name.to_owned(), id.to_owned()), seq);
                        }
                    }
                }
            }
            if !forgotten.is_empty() {
                let gone = doc! { "topic": name, "seq": { "$in": forgotten } };
                collection.delete_many(gone).session(&mut *self.session).await?;
            }
        }
        Ok(())
    }
}
