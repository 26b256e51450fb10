//! The outbox collection: its queries and updates.
//!
//! Claims expire by the clock of the database (`$$NOW`), whatever the workers' clocks say. A claim
//! is acknowledged by a majority, which then also has the transaction that wrote the document: no
//! event is published whose data an election could roll back.

pub(crate) mod change_stream;
mod indexes;

use std::collections::HashSet;
use std::time::{Duration, Instant};

use futures_util::TryStreamExt;
use mongodb::bson::{Bson, Document, doc};
use mongodb::error::Error;
use mongodb::options::{
    CollectionOptions, ReadConcern, ReadPreference, SelectionCriteria, WriteConcern,
};
use mongodb::{Client, Collection, Database};
use prombus_engine_mongo::{Deployment, MongoError, connect};

use crate::OutboxError;
use crate::document::outcome::DocumentOutcome;
use crate::options::{OutboxLocation, WorkerOptions};
use crate::order::selection::{Candidate, Position};
use crate::order::{Holder, OrderingKey, UnsentDocument, sendable};

/// How long starting up tolerates an election or a restart of the server.
const STARTUP_TIMEOUT: Duration = Duration::from_secs(30);
const STARTUP_RETRY_PAUSE: Duration = Duration::from_millis(100);

/// Retries `operation` while the connection is lost.
async fn with_retries<T, F>(operation: impl Fn() -> F) -> Result<T, MongoError>
where
    F: Future<Output = Result<T, MongoError>>,
{
    let started = Instant::now();
    loop {
        match operation().await {
            // Without a primary the driver itself has waited for one.
            Err(MongoError::Lost(_)) if started.elapsed() < STARTUP_TIMEOUT => {
                tokio::time::sleep(STARTUP_RETRY_PAUSE).await;
            }
            result => return result,
        }
    }
}

/// The size of an empty document.
const SMALLEST_DOCUMENT: i32 = 5;

/// An open outbox.
#[derive(Clone, Debug)]
pub struct Outbox {
    client: Client,
    database: Database,
    collection: Collection<Document>,
}

/// A worker's claim on documents.
#[derive(Clone, Debug)]
pub(crate) struct Claim {
    /// Unique for each claim.
    pub(crate) id: String,
    /// The name of the worker.
    pub(crate) owner: String,
    /// How long the claim lasts unless it is renewed.
    pub(crate) lease_time: Duration,
}

/// The documents that a claim got.
#[derive(Debug, Default)]
pub(crate) struct Claimed {
    /// To be sent, in order.
    pub(crate) documents: Vec<Document>,
    /// Claimed, but documents of other workers turned out to precede them.
    pub(crate) too_early: Vec<Bson>,
}

/// The result of recording outcomes.
#[derive(Debug)]
pub(crate) struct Settled {
    /// How many documents were still claimed.
    pub(crate) recorded: u64,
    /// How many updates the database rejected, for instance because of a validator.
    pub(crate) rejected: u64,
    /// Why it rejected the first of them.
    pub(crate) reason: Option<String>,
}

impl Outbox {
    /// Connects to the database.
    ///
    /// # Errors
    ///
    /// Fails if the deployment has no transactions, or no database is named.
    pub async fn open(location: &OutboxLocation) -> Result<Self, OutboxError> {
        let client = connect(&location.url, "prombus-outbox").await?;
        let database = match &location.database {
            Some(name) => client.database(name),
            None => client.default_database().ok_or(OutboxError::NoDatabase)?,
        };
        if !with_retries(|| Deployment::of(&database)).await?.has_transactions() {
            return Err(OutboxError::Mongo(MongoError::UnsupportedTopology(
                "the server is not a replica set, so services cannot write their data and the outbox in \
                 one transaction; start it with --replSet and run rs.initiate() once (a single \
                 member is enough)"
                    .into(),
            )));
        }
        let mut write_concern = WriteConcern::majority();
        write_concern.journal = Some(true);
        let options = CollectionOptions::builder()
            .read_concern(ReadConcern::majority())
            .selection_criteria(SelectionCriteria::ReadPreference(ReadPreference::Primary))
            .write_concern(write_concern)
            .build();
        let collection = database.collection_with_options(&location.collection, options);
        Ok(Self { client, database, collection })
    }

    pub(crate) const fn collection(&self) -> &Collection<Document> {
        &self.collection
    }

    /// Creates missing indexes.
    pub(crate) async fn prepare(&self, options: &WorkerOptions) -> Result<(), MongoError> {
        with_retries(|| async { Ok(self.create_indexes(options).await?) }).await
    }

    async fn create_indexes(&self, options: &WorkerOptions) -> Result<(), Error> {
        indexes::create(&self.collection).await?;
        if let Some(time) = options.keep_sent {
            indexes::remove_sent_after(&self.database, &self.collection, time).await?;
        }
        Ok(())
    }

    /// Returns the next pending documents that no worker has claimed, in order.
    pub(crate) async fn page(
        &self,
        after: Option<&Position>,
        limit: usize,
    ) -> Result<Vec<Candidate>, Error> {
        let mut conditions = vec![is_unclaimed()];
        if let Some(Position { ts, id }) = after {
            conditions.push(doc! { "$gt": [position(), [literal(ts), literal(id)]] });
            if *ts != Bson::Null {
                // Redundant, but in a form that can use the index.
                conditions.push(doc! { "$gte": ["$ts", literal(ts)] });
            }
        }
        let found = self
            .collection
            .find(doc! { "status": "pending", "$expr": { "$and": conditions } })
            .sort(doc! { "ts": 1, "_id": 1 })
            .limit(i64::try_from(limit).unwrap_or(i64::MAX))
            .projection(doc! { "ts": 1, "topic": 1, "key": 1, "bytes": { "$bsonSize": "$$ROOT" } })
            .await?;
        let documents: Vec<_> = found.try_collect().await?;
        Ok(documents.iter().map(candidate).collect())
    }

    /// Returns the unsent documents of these ordering keys up to a position, in order.
    pub(crate) async fn unsent(
        &self,
        ordering_keys: &HashSet<OrderingKey>,
        until: &Position,
        holder: impl Fn(&Document) -> Holder,
    ) -> Result<Vec<UnsentDocument>, Error> {
        if ordering_keys.is_empty() {
            return Ok(Vec::new());
        }
        let found = self.collection.find(unsent_filter(ordering_keys, until));
        let found = found.sort(doc! { "ts": 1, "_id": 1 }).projection(order_fields()).await?;
        let documents: Vec<_> = found.try_collect().await?;
        Ok(documents.iter().filter_map(|document| unsent(document, &holder)).collect())
    }

    /// Claims those of `candidates` that are still unclaimed, and only then reads what precedes
    /// them. Documents that are then unsent and not in this claim must not be overtaken, and no
    /// document can come in between any more.
    pub(crate) async fn claim(
        &self,
        candidates: &[Candidate],
        claim: &Claim,
    ) -> Result<Claimed, Error> {
        let Some(last) = candidates.last() else { return Ok(Claimed::default()) };
        let ids: Vec<_> =
            candidates.iter().map(|candidate| candidate.position.id.clone()).collect();
        // Causally consistent: later reads see the claim, even on another primary.
        let mut session = self.client.start_session().causal_consistency(true).await?;
        let unclaimed = doc! {
            "_id": { "$in": &ids }, "status": "pending", "$expr": is_unclaimed(),
        };
        let update = claim_update(claim);
        let claimed = self.collection.update_many(unclaimed, update).session(&mut session).await?;
        if claimed.matched_count == 0 {
            return Ok(Claimed::default());
        }
        let mine = doc! { "_id": { "$in": ids }, "lease_id": &claim.id, "status": "pending" };
        let found = self.collection.find(mine).sort(doc! { "ts": 1, "_id": 1 });
        let mut found = found.session(&mut session).await?;
        let documents: Vec<Document> = found.stream(&mut session).try_collect().await?;
        let ordering_keys: HashSet<_> = documents.iter().filter_map(OrderingKey::of).collect();
        let mut sendable_ids = HashSet::new();
        if !ordering_keys.is_empty() {
            let found = self.collection.find(unsent_filter(&ordering_keys, &last.position));
            let found = found.sort(doc! { "ts": 1, "_id": 1 }).projection(order_fields());
            let mut found = found.session(&mut session).await?;
            let before: Vec<_> = found.stream(&mut session).try_collect().await?;
            let holder = |document: &Document| match document.get_str("lease_id") {
                Ok(id) if id == claim.id => Holder::ThisWorker,
                _ => Holder::OtherWorker,
            };
            sendable_ids = sendable(before.iter().filter_map(|one| unsent(one, holder))).ids;
        }
        let mut claimed = Claimed::default();
        for document in documents {
            let id = document.get("_id").cloned().unwrap_or(Bson::Null);
            if OrderingKey::of(&document).is_none() || sendable_ids.contains(&id) {
                claimed.documents.push(document);
            } else {
                claimed.too_early.push(id);
            }
        }
        Ok(claimed)
    }

    /// Renews a claim. Returns how many documents are still in it.
    pub(crate) async fn renew(&self, ids: &[Bson], claim: &Claim) -> Result<u64, Error> {
        let mine = doc! { "_id": { "$in": ids }, "lease_id": &claim.id, "status": "pending" };
        let renewal = vec![doc! { "$set": { "lease_until": expiry_of(claim) } }];
        Ok(self.collection.update_many(mine, renewal).await?.matched_count)
    }

    /// Records what became of documents that are still in the claim.
    pub(crate) async fn settle(
        &self,
        outcomes: &[DocumentOutcome],
        claim_id: &str,
    ) -> Result<Settled, MongoError> {
        let updates: Vec<_> = outcomes.iter().map(|outcome| outcome.statement(claim_id)).collect();
        let command = doc! {
            "update": self.collection.name(),
            "updates": updates,
            "ordered": false,
            "writeConcern": { "w": "majority", "j": true },
        };
        let reply = self.database.run_command(command).await?;
        if let Ok(concern) = reply.get_document("writeConcernError") {
            let message = concern.get_str("errmsg").unwrap_or("no majority");
            return Err(MongoError::Lost(message.to_owned()));
        }
        let errors = reply.get_array("writeErrors").map_or(&[][..], Vec::as_slice);
        let first = errors.first().and_then(Bson::as_document);
        Ok(Settled {
            recorded: reply.get_i32("n").ok().and_then(|n| u64::try_from(n).ok()).unwrap_or(0),
            rejected: errors.len() as u64,
            reason: first.and_then(|error| error.get_str("errmsg").ok()).map(str::to_owned),
        })
    }

    /// Returns `true` if a worker has claimed documents.
    pub(crate) async fn has_claims(&self) -> Result<bool, Error> {
        let claimed = doc! { "status": "pending", "$expr": { "$gt": ["$lease_until", "$$NOW"] } };
        Ok(self.collection.find_one(claimed).projection(doc! { "_id": 1 }).await?.is_some())
    }
}

/// An expression: no worker has claimed the document. A missing field is less than any date.
fn is_unclaimed() -> Document {
    doc! { "$lte": ["$lease_until", "$$NOW"] }
}

/// An expression: the position of the document in the order.
fn position() -> Bson {
    Bson::Array(vec![doc! { "$ifNull": ["$ts", Bson::Null] }.into(), "$_id".into()])
}

/// Quotes a value that may look like an expression.
fn literal(value: &Bson) -> Document {
    doc! { "$literal": value.clone() }
}

fn expiry_of(claim: &Claim) -> Document {
    let ms = i64::try_from(claim.lease_time.as_millis()).unwrap_or(i64::MAX);
    doc! { "$add": ["$$NOW", ms] }
}

fn claim_update(claim: &Claim) -> Vec<Document> {
    let attempts = doc! { "$cond": [
        { "$isNumber": "$attempts" }, { "$add": ["$attempts", 1] }, 1,
    ] };
    vec![doc! { "$set": {
        "lease_id": literal(&claim.id.as_str().into()),
        "lease_owner": literal(&claim.owner.as_str().into()),
        "lease_until": expiry_of(claim),
        "attempts": attempts,
    } }]
}

/// A filter for the unsent documents of these ordering keys up to a position. It may match
/// documents of other keys as well.
fn unsent_filter(ordering_keys: &HashSet<OrderingKey>, Position { ts, id }: &Position) -> Document {
    let topics: HashSet<_> =
        ordering_keys.iter().map(|ordering_key| ordering_key.topic.as_str()).collect();
    let keys: HashSet<_> =
        ordering_keys.iter().map(|ordering_key| ordering_key.key.as_str()).collect();
    doc! {
        "topic": { "$in": topics.into_iter().collect::<Vec<_>>() },
        "key": { "$in": keys.into_iter().collect::<Vec<_>>() },
        "status": { "$in": ["pending", "error"] },
        "$expr": { "$and": [
            { "$lte": ["$ts", literal(ts)] },
            { "$lte": [position(), [literal(ts), literal(id)]] },
        ] },
    }
}

fn order_fields() -> Document {
    doc! { "topic": 1, "key": 1, "status": 1, "lease_id": 1 }
}

fn unsent(document: &Document, holder: impl Fn(&Document) -> Holder) -> Option<UnsentDocument> {
    let is_error = document.get_str("status").is_ok_and(|status| status == "error");
    Some(UnsentDocument {
        id: document.get("_id")?.clone(),
        ordering_key: OrderingKey::of(document)?,
        holder: if is_error { Holder::Rejected } else { holder(document) },
    })
}

fn candidate(document: &Document) -> Candidate {
    let value = |name| document.get(name).cloned().unwrap_or(Bson::Null);
    let bytes = document.get_i32("bytes").unwrap_or(SMALLEST_DOCUMENT);
    Candidate {
        position: Position { ts: value("ts"), id: value("_id") },
        ordering_key: OrderingKey::of(document),
        bytes: usize::try_from(bytes).unwrap_or_default(),
    }
}
