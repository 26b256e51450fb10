//! The collection: what workers ask and tell it.
//!
//! Leases begin and end by the clock of the database (`$$NOW`), whatever the workers' clocks say.
//! What is claimed is acknowledged by a majority, and so is then the transaction that wrote it: no
//! event is published whose data an election could take back.

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

use crate::choosing::{Candidate, Position};
use crate::mark::Mark;
use crate::options::{Place, WorkerOptions};
use crate::order::{Holder, Lane, Unsent, allowed};
use crate::{OutboxError, indexes};

/// So long a start gets over an election, or over a server that was just started again.
const START_WITHIN: Duration = Duration::from_secs(30);
const START_PAUSE: Duration = Duration::from_millis(100);

/// Asks again while the connection is lost and made again.
async fn patiently<T, F>(ask: impl Fn() -> F) -> Result<T, MongoError>
where
    F: Future<Output = Result<T, MongoError>>,
{
    let began = Instant::now();
    loop {
        match ask().await {
            // Where there is no primary, the driver has waited for one.
            Err(MongoError::Lost(_)) if began.elapsed() < START_WITHIN => {
                tokio::time::sleep(START_PAUSE).await;
            }
            answer => return answer,
        }
    }
}

/// Smaller than any document is.
const SMALLEST_DOCUMENT: i32 = 5;

/// An outbox that is open.
#[derive(Clone, Debug)]
pub struct Outbox {
    client: Client,
    database: Database,
    collection: Collection<Document>,
}

/// A claim on documents: who, under which name, for how long.
#[derive(Clone, Debug)]
pub(crate) struct Lease {
    /// Of this claim alone.
    pub(crate) id: String,
    pub(crate) owner: String,
    pub(crate) time: Duration,
}

/// What a claim came to.
#[derive(Debug, Default)]
pub(crate) struct Claimed {
    /// Ours, in order, and overtaking nobody.
    pub(crate) documents: Vec<Document>,
    /// Ours, but others are before them after all.
    pub(crate) too_early: Vec<Bson>,
}

/// What came of marks.
#[derive(Debug)]
pub(crate) struct Settled {
    /// How many documents were still ours.
    pub(crate) ours: u64,
    /// How many the database did not want to change, such as for a validator of the collection.
    pub(crate) refused: u64,
    /// Why, of the first.
    pub(crate) reason: Option<String>,
}

impl Outbox {
    /// Connects to the database.
    pub async fn open(place: &Place) -> Result<Self, OutboxError> {
        let client = connect(&place.url, "prombus-outbox").await?;
        let database = match &place.database {
            Some(name) => client.database(name),
            None => client.default_database().ok_or(OutboxError::NoDatabase)?,
        };
        if !patiently(|| Deployment::of(&database)).await?.has_transactions() {
            return Err(OutboxError::Mongo(MongoError::UnsupportedTopology(
                "the server is no replica set, so no service can write its data and an outbox in one \
                 transaction; start it with --replSet and run rs.initiate() once, one member suffices"
                    .into(),
            )));
        }
        let mut safe = WriteConcern::majority();
        safe.journal = Some(true);
        let options = CollectionOptions::builder()
            .read_concern(ReadConcern::majority())
            .selection_criteria(SelectionCriteria::ReadPreference(ReadPreference::Primary))
            .write_concern(safe)
            .build();
        let collection = database.collection_with_options(&place.collection, options);
        Ok(Self { client, database, collection })
    }

    pub(crate) const fn collection(&self) -> &Collection<Document> {
        &self.collection
    }

    /// Makes what is missing of the indexes.
    pub(crate) async fn prepare(&self, options: &WorkerOptions) -> Result<(), MongoError> {
        patiently(|| async { Ok(self.make_indexes(options).await?) }).await
    }

    async fn make_indexes(&self, options: &WorkerOptions) -> Result<(), Error> {
        indexes::make(&self.collection).await?;
        if let Some(time) = options.keep_sent {
            indexes::remove_sent_after(&self.database, &self.collection, time).await?;
        }
        Ok(())
    }

    /// Documents that wait and that nobody holds, in order, behind a place.
    pub(crate) async fn page(
        &self,
        after: Option<&Position>,
        limit: usize,
    ) -> Result<Vec<Candidate>, Error> {
        let mut conditions = vec![is_free()];
        if let Some(Position { ts, id }) = after {
            conditions.push(doc! { "$gt": [place(), [literal(ts), literal(id)]] });
            if *ts != Bson::Null {
                // Says the same again in a way that the index understands.
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

    /// What of these lanes is not sent, in order, up to a place; `holder` says whose each is.
    pub(crate) async fn unsent(
        &self,
        lanes: &HashSet<Lane>,
        until: &Position,
        holder: impl Fn(&Document) -> Holder,
    ) -> Result<Vec<Unsent>, Error> {
        if lanes.is_empty() {
            return Ok(Vec::new());
        }
        let found = self.collection.find(unsent_in(lanes, until));
        let found = found.sort(doc! { "ts": 1, "_id": 1 }).projection(about_order()).await?;
        let documents: Vec<_> = found.try_collect().await?;
        Ok(documents.iter().filter_map(|document| unsent(document, &holder)).collect())
    }

    /// Claims those of `chosen` that still nobody holds, and looks then, and only then, who is before
    /// them: whatever is not sent now and not ours may not be overtaken, and nothing can come in
    /// between any more.
    pub(crate) async fn claim(
        &self,
        chosen: &[Candidate],
        lease: &Lease,
    ) -> Result<Claimed, Error> {
        let Some(last) = chosen.last() else { return Ok(Claimed::default()) };
        let ids: Vec<_> = chosen.iter().map(|candidate| candidate.position.id.clone()).collect();
        // Later questions of a session see what its earlier ones did, also on another primary.
        let mut session = self.client.start_session().causal_consistency(true).await?;
        let free = doc! {
            "_id": { "$in": &ids }, "status": "pending", "$expr": is_free(),
        };
        let claimed = self.collection.update_many(free, claim(lease)).session(&mut session).await?;
        if claimed.matched_count == 0 {
            return Ok(Claimed::default());
        }
        let ours = doc! { "_id": { "$in": ids }, "lease_id": &lease.id, "status": "pending" };
        let found = self.collection.find(ours).sort(doc! { "ts": 1, "_id": 1 });
        let mut found = found.session(&mut session).await?;
        let documents: Vec<Document> = found.stream(&mut session).try_collect().await?;
        let lanes: HashSet<_> = documents.iter().filter_map(Lane::of).collect();
        let mut may_go = HashSet::new();
        if !lanes.is_empty() {
            let found = self.collection.find(unsent_in(&lanes, &last.position));
            let found = found.sort(doc! { "ts": 1, "_id": 1 }).projection(about_order());
            let mut found = found.session(&mut session).await?;
            let before: Vec<_> = found.stream(&mut session).try_collect().await?;
            let holder = |document: &Document| match document.get_str("lease_id") {
                Ok(id) if id == lease.id => Holder::Us,
                _ => Holder::Others,
            };
            may_go = allowed(before.iter().filter_map(|one| unsent(one, holder))).may_go;
        }
        let mut claimed = Claimed::default();
        for document in documents {
            let id = document.get("_id").cloned().unwrap_or(Bson::Null);
            if Lane::of(&document).is_none() || may_go.contains(&id) {
                claimed.documents.push(document);
            } else {
                claimed.too_early.push(id);
            }
        }
        Ok(claimed)
    }

    /// Says that we are still there. Answers how many documents are ours.
    pub(crate) async fn renew(&self, ids: &[Bson], lease: &Lease) -> Result<u64, Error> {
        let ours = doc! { "_id": { "$in": ids }, "lease_id": &lease.id, "status": "pending" };
        let longer = vec![doc! { "$set": { "lease_until": end_of(lease) } }];
        Ok(self.collection.update_many(ours, longer).await?.matched_count)
    }

    /// Says what became of documents, where they are still ours.
    pub(crate) async fn settle(&self, marks: &[Mark], lease: &str) -> Result<Settled, MongoError> {
        let updates: Vec<_> = marks.iter().map(|mark| mark.statement(lease)).collect();
        let command = doc! {
            "update": self.collection.name(),
            "updates": updates,
            "ordered": false,
            "writeConcern": { "w": "majority", "j": true },
        };
        let answer = self.database.run_command(command).await?;
        if let Ok(concern) = answer.get_document("writeConcernError") {
            let said = concern.get_str("errmsg").unwrap_or("no majority");
            return Err(MongoError::Lost(said.to_owned()));
        }
        let errors = answer.get_array("writeErrors").map_or(&[][..], Vec::as_slice);
        let first = errors.first().and_then(Bson::as_document);
        Ok(Settled {
            ours: answer.get_i32("n").ok().and_then(|n| u64::try_from(n).ok()).unwrap_or(0),
            refused: errors.len() as u64,
            reason: first.and_then(|error| error.get_str("errmsg").ok()).map(str::to_owned),
        })
    }

    /// Whether somebody holds documents.
    pub(crate) async fn is_held(&self) -> Result<bool, Error> {
        let held = doc! { "status": "pending", "$expr": { "$gt": ["$lease_until", "$$NOW"] } };
        Ok(self.collection.find_one(held).projection(doc! { "_id": 1 }).await?.is_some())
    }
}

/// Nobody holds it: there is no lease, or it has ended. What is missing is less than any date.
fn is_free() -> Document {
    doc! { "$lte": ["$lease_until", "$$NOW"] }
}

/// A document's place in the order.
fn place() -> Bson {
    Bson::Array(vec![doc! { "$ifNull": ["$ts", Bson::Null] }.into(), "$_id".into()])
}

/// A value that may look like an expression.
fn literal(value: &Bson) -> Document {
    doc! { "$literal": value.clone() }
}

fn end_of(lease: &Lease) -> Document {
    let ms = i64::try_from(lease.time.as_millis()).unwrap_or(i64::MAX);
    doc! { "$add": ["$$NOW", ms] }
}

fn claim(lease: &Lease) -> Vec<Document> {
    let attempts = doc! { "$cond": [
        { "$isNumber": "$attempts" }, { "$add": ["$attempts", 1] }, 1,
    ] };
    vec![doc! { "$set": {
        "lease_id": literal(&lease.id.as_str().into()),
        "lease_owner": literal(&lease.owner.as_str().into()),
        "lease_until": end_of(lease),
        "attempts": attempts,
    } }]
}

/// All of these lanes up to a place that is not sent. It may have some of other lanes, too.
fn unsent_in(lanes: &HashSet<Lane>, Position { ts, id }: &Position) -> Document {
    let topics: HashSet<_> = lanes.iter().map(|lane| lane.topic.as_str()).collect();
    let keys: HashSet<_> = lanes.iter().map(|lane| lane.key.as_str()).collect();
    doc! {
        "topic": { "$in": topics.into_iter().collect::<Vec<_>>() },
        "key": { "$in": keys.into_iter().collect::<Vec<_>>() },
        "status": { "$in": ["pending", "error"] },
        "$expr": { "$and": [
            { "$lte": ["$ts", literal(ts)] },
            { "$lte": [place(), [literal(ts), literal(id)]] },
        ] },
    }
}

fn about_order() -> Document {
    doc! { "topic": 1, "key": 1, "status": 1, "lease_id": 1 }
}

fn unsent(document: &Document, holder: impl Fn(&Document) -> Holder) -> Option<Unsent> {
    let is_error = document.get_str("status").is_ok_and(|status| status == "error");
    Some(Unsent {
        id: document.get("_id")?.clone(),
        lane: Lane::of(document)?,
        holder: if is_error { Holder::Nobody } else { holder(document) },
    })
}

fn candidate(document: &Document) -> Candidate {
    let value = |name| document.get(name).cloned().unwrap_or(Bson::Null);
    let bytes = document.get_i32("bytes").unwrap_or(SMALLEST_DOCUMENT);
    Candidate {
        position: Position { ts: value("ts"), id: value("_id") },
        lane: Lane::of(document),
        bytes: usize::try_from(bytes).unwrap_or_default(),
    }
}
