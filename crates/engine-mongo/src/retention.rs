//! What is forgotten: first the topic says so, then the events go.

mod expired_events;
pub(crate) mod ttl;
pub(crate) mod ttl_warnings;

use mongodb::ClientSession;
use mongodb::bson::doc;
use mongodb::error::Error;
use mongodb::options::ReturnDocument;
use prombus_engine::{Bounds, CommitError, Retention};
use prombus_proto::{Seq, Topic};

use crate::error::{is_duplicate_key, of_commit};
use crate::layout::event_document::Sums;
use crate::layout::numbers::{from_bson, number_in, to_bson};
use crate::layout::topic_document::TopicDocument;
use crate::retention::expired_events::beginning;
use crate::store::Store;

/// What went on meanwhile at another gateway.
pub(crate) enum Step {
    Done(TopicDocument),
    /// The topic is not as it was; look again.
    Again,
    /// A newer rule was applied.
    Stale,
}

impl Store {
    pub(crate) async fn trim(&self, topic: &Topic, below: Seq) -> Result<Bounds, CommitError> {
        let mut session = self.reader().await.map_err(of_commit)?;
        loop {
            let known = self.topic(&mut session, topic).await.map_err(of_commit)?;
            let step = self.forget(&mut session, topic, &known, to_bson(below.0), None).await;
            if let Step::Done(left) = step.map_err(of_commit)? {
                return Ok(left.bounds());
            }
        }
    }

    pub(crate) async fn retain(
        &self,
        topic: &Topic,
        rule: &Retention,
    ) -> Result<Bounds, CommitError> {
        let mut session = self.reader().await.map_err(of_commit)?;
        let revision = to_bson(rule.revision);
        self.apply_rule(&mut session, topic, revision).await?;
        loop {
            let known = self.topic(&mut session, topic).await.map_err(of_commit)?;
            let known = self.settled(&mut session, topic, known).await.map_err(of_commit)?;
            self.warn_of_a_shorter_ttl(&known, rule);
            let below = self.kept_by(&mut session, topic, &known, rule).await.map_err(of_commit)?;
            let step = self.forget(&mut session, topic, &known, below, Some(revision)).await;
            match step.map_err(of_commit)? {
                Step::Done(left) => return Ok(left.bounds()),
                Step::Again => {}
                Step::Stale => return Err(self.stale(&mut session, topic, revision).await),
            }
        }
    }

    /// What the servers remove sooner than a rule says cannot be kept by it.
    fn warn_of_a_shorter_ttl(&self, known: &TopicDocument, rule: &Retention) {
        let Some(ttl) = known.ttl_ms.map(from_bson) else { return };
        if rule.max_age_ms.is_none_or(|age| age > ttl) && self.warned.is_news(&known.name, ttl) {
            tracing::warn!(
                topic = known.name,
                "the database removes events after {ttl} ms, sooner than the topic is to forget \
                 them: run prombus migrate"
            );
        }
    }

    /// Notes that this rule is the newest, unless there is a newer one.
    async fn apply_rule(
        &self,
        session: &mut ClientSession,
        topic: &Topic,
        revision: i64,
    ) -> Result<(), CommitError> {
        let not_newer = doc! {
            "_id": topic.as_str(),
            "$or": [{ "rule": { "$exists": false } }, { "rule": { "$lte": revision } }],
        };
        let topics = self.collections.topics();
        let noted = topics
            .update_one(not_newer, doc! { "$set": { "rule": revision } })
            .upsert(true)
            .session(&mut *session)
            .await;
        match noted {
            Ok(_) => Ok(()),
            // It is there and did not match: its rule is newer.
            Err(error) if is_duplicate_key(&error) => {
                Err(self.stale(session, topic, revision).await)
            }
            Err(error) => Err(of_commit(error)),
        }
    }

    async fn stale(&self, session: &mut ClientSession, topic: &Topic, offered: i64) -> CommitError {
        match self.topic(session, topic).await {
            Ok(known) => CommitError::StaleRule {
                topic: topic.clone(),
                offered: from_bson(offered),
                applied: from_bson(known.rule.unwrap_or(offered)),
            },
            Err(error) => of_commit(error),
        }
    }

    /// The first event that `rule` keeps.
    async fn kept_by(
        &self,
        session: &mut ClientSession,
        topic: &Topic,
        known: &TopicDocument,
        rule: &Retention,
    ) -> Result<i64, Error> {
        let mut below = known.first;
        if let Some(age) = rule.max_age_ms {
            let oldest = self.clock.now().minus_ms(age);
            below = below.max(self.place_of_time(session, topic, known, oldest).await?);
        }
        if let Some(most) = rule.max_bytes {
            // All events go whose sum leaves more than `most` behind them, and the one that does not
            // quite: what is behind it fits.
            let to_go = known.bytes.saturating_sub(to_bson(most));
            if to_go > known.forgotten_bytes {
                let kept = (known.first, known.next);
                let last = self.first_reaching(session, topic, kept, "bytes", to_go).await?;
                below = below.max((last + 1).min(known.next));
            }
        }
        Ok(below)
    }

    /// Forgets what is below `below`, if the topic still is as `known`, and no rule newer than
    /// `revision` was applied.
    async fn forget(
        &self,
        session: &mut ClientSession,
        topic: &Topic,
        known: &TopicDocument,
        below: i64,
        revision: Option<i64>,
    ) -> Result<Step, Error> {
        let below = below.min(known.next);
        if below <= known.first {
            // An earlier one may have been stopped between saying so and doing so.
            self.remove_forgotten(session, topic, known.first).await?;
            return Ok(Step::Done(known.clone()));
        }
        let last_gone = doc! { "topic": topic.as_str(), "seq": below - 1 };
        let events = self.collections.events();
        let Some(last_gone) = events
            .find_one(last_gone)
            .projection(doc! { "_id": 0, "bytes": 1, "latestTs": 1 })
            .session(&mut *session)
            .await?
        else {
            return self.forget_what_is_missing(session, topic, known, below, revision).await;
        };
        let gone = Sums {
            bytes: number_in(&last_gone, "bytes").unwrap_or(known.forgotten_bytes),
            latest_ts: number_in(&last_gone, "latestTs").unwrap_or(known.latest_ts),
        };
        let change = beginning(below, gone);
        self.forget_by(session, topic, known, below, change, revision).await
    }

    /// As [`Store::forget`], where the last one to forget is not there: somebody else forgot it, or its
    /// time was over, or it is damaged, which must not keep the others from going.
    async fn forget_what_is_missing(
        &self,
        session: &mut ClientSession,
        topic: &Topic,
        known: &TopicDocument,
        below: i64,
        revision: Option<i64>,
    ) -> Result<Step, Error> {
        let now = self.topic(session, topic).await?;
        if now.first != known.first {
            return Ok(Step::Again);
        }
        let (_, gone) = self.there_from(session, topic, known, below).await?;
        self.forget_by(session, topic, known, below, beginning(below, gone), revision).await
    }

    /// Makes `change`, by which the topic begins at `below`, if the topic still is as `known`, and
    /// removes what is before that.
    pub(crate) async fn forget_by(
        &self,
        session: &mut ClientSession,
        topic: &Topic,
        known: &TopicDocument,
        below: i64,
        change: mongodb::bson::Document,
        revision: Option<i64>,
    ) -> Result<Step, Error> {
        // A topic that never forgot anything need not say where it begins.
        let same_first = match known.first {
            1 => doc! { "$in": [1, null] },
            first => doc! { "$eq": first },
        };
        let mut as_known = doc! { "_id": topic.as_str(), "first": same_first };
        if let Some(revision) = revision {
            as_known.insert("rule", revision);
        }
        let topics = self.collections.topics();
        let changed = topics
            .find_one_and_update(as_known, change)
            .return_document(ReturnDocument::After)
            .session(&mut *session)
            .await?;
        let Some(left) = changed else {
            let now = self.topic(session, topic).await?;
            let is_stale = revision.is_some_and(|mine| now.rule.is_some_and(|rule| rule > mine));
            return Ok(if is_stale { Step::Stale } else { Step::Again });
        };
        self.remove_forgotten(session, topic, below).await?;
        self.causality.reached(session.operation_time());
        Ok(Step::Done(left))
    }

    async fn remove_forgotten(
        &self,
        session: &mut ClientSession,
        topic: &Topic,
        first: i64,
    ) -> Result<(), Error> {
        let forgotten = doc! { "topic": topic.as_str(), "seq": { "$lt": first } };
        // Mostly there is nothing, and a look costs less than two writes that change nothing.
        let events = self.collections.events();
        let one = events.find_one(forgotten.clone()).projection(doc! { "_id": 1 });
        if one.session(&mut *session).await?.is_none() {
            return Ok(());
        }
        self.collections.parts().delete_many(forgotten.clone()).session(&mut *session).await?;
        let by_place = mongodb::options::Hint::Keys(doc! { "topic": 1, "seq": 1 });
        events.delete_many(forgotten).hint(by_place).session(session).await?;
        Ok(())
    }
}
