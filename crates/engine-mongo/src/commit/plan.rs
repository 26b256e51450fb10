//! What a batch comes to, given what is there: no I/O.

use std::collections::{BTreeMap, HashMap, HashSet};

use bytes::Bytes;
use mongodb::bson::RawDocumentBuf;
use prombus_engine::{Batch, Conflict, Expect, Position, StateEntry, StateKey, StateOp, Version};
use prombus_proto::{EventId, Seq, Timestamp, Topic};

use crate::layout::event_document::{Sums, encode};
use crate::layout::numbers::{from_bson, to_bson};
use crate::layout::topic_document::TopicDocument;

/// What the transaction found.
#[derive(Default)]
pub(crate) struct Seen {
    pub(crate) topics: HashMap<String, TopicDocument>,
    pub(crate) state: HashMap<StateKey, StateEntry>,
    /// Where ids of the batch are already, by topic. Empty when none is expected to be.
    pub(crate) ids: HashMap<(String, String), Seq>,
}

/// What is to be written.
pub(crate) struct Plan {
    pub(crate) positions: Vec<Position>,
    pub(crate) events: Vec<RawDocumentBuf>,
    pub(crate) parts: Vec<RawDocumentBuf>,
    /// Topics that grow, as they are afterwards.
    pub(crate) grown: Vec<(Topic, TopicDocument)>,
    /// Topics that only have to stay as they are.
    pub(crate) guarded: Vec<Topic>,
    /// What becomes of each key that is touched.
    pub(crate) state: BTreeMap<StateKey, Becomes>,
}

/// What becomes of a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Becomes {
    Put {
        value: Bytes,
        expires_at: Option<Timestamp>,
    },
    Deleted,
    /// Nothing was there, and that was expected: nobody else may put something meanwhile.
    StillAbsent,
}

/// The version of a value put earlier in the same batch. No commit is given it.
const OF_THIS_BATCH: Version = Version(u64::MAX);

/// The plan for `batch`, or the first expectation that does not hold.
pub(crate) fn stage(batch: &Batch, seen: &Seen, now: Timestamp) -> Result<Plan, Conflict> {
    check_last_positions(batch, seen)?;
    let state = stage_state(&batch.state, seen, now)?;
    let mut plan = Plan {
        positions: Vec::with_capacity(batch.events.len()),
        events: Vec::new(),
        parts: Vec::new(),
        grown: Vec::new(),
        guarded: Vec::new(),
        state,
    };
    stage_events(batch, seen, &mut plan);
    let grows: HashSet<&str> = plan.grown.iter().map(|(topic, _)| topic.as_str()).collect();
    let expected = batch.expected_last.iter().map(|(topic, _)| topic);
    plan.guarded = expected.filter(|topic| !grows.contains(topic.as_str())).cloned().collect();
    plan.guarded.sort_unstable();
    plan.guarded.dedup();
    Ok(plan)
}

fn check_last_positions(batch: &Batch, seen: &Seen) -> Result<(), Conflict> {
    for (topic, expected) in &batch.expected_last {
        let actual = seen.topics.get(topic.as_str()).map_or(Seq::ZERO, TopicDocument::last);
        if actual != *expected {
            return Err(Conflict::Last { topic: topic.clone(), expected: *expected, actual });
        }
    }
    Ok(())
}

fn stage_events(batch: &Batch, seen: &Seen, plan: &mut Plan) {
    let mut within: HashMap<(&Topic, &EventId), Seq> = HashMap::new();
    let mut growing: BTreeMap<&Topic, TopicDocument> = BTreeMap::new();
    for event in &batch.events {
        let (topic, id) = (event.topic(), event.id());
        let before = within.get(&(topic, id)).copied().or_else(|| {
            // Made only when ids were looked up at all.
            match seen.ids.is_empty() {
                true => None,
                false => seen.ids.get(&(topic.as_str().to_owned(), id.to_string())).copied(),
            }
        });
        if let Some(seq) = before {
            plan.positions.push(Position { seq, duplicate: true });
            continue;
        }
        let end = growing.entry(topic).or_insert_with(|| match seen.topics.get(topic.as_str()) {
            Some(known) => known.clone(),
            None => TopicDocument::new(topic.as_str()),
        });
        let seq = Seq(from_bson(end.next));
        let sums = Sums { bytes: end.bytes, latest_ts: end.latest_ts };
        let (document, parts, sums) = encode(event, seq, sums, end.ttl_ms);
        end.next = to_bson(seq.next().0);
        end.bytes = sums.bytes;
        end.latest_ts = sums.latest_ts;
        plan.events.push(document);
        plan.parts.extend(parts);
        plan.positions.push(Position { seq, duplicate: false });
        within.insert((topic, id), seq);
    }
    plan.grown = growing.into_iter().map(|(topic, end)| (topic.clone(), end)).collect();
}

fn stage_state(
    ops: &[StateOp],
    seen: &Seen,
    now: Timestamp,
) -> Result<BTreeMap<StateKey, Becomes>, Conflict> {
    let mut changes: BTreeMap<StateKey, Becomes> = BTreeMap::new();
    for op in ops {
        let key = op.key();
        let stored = seen.state.get(key).filter(|entry| !entry.has_expired(now));
        let actual = match changes.get(key) {
            Some(Becomes::Put { expires_at, .. }) => {
                let is_over = expires_at.is_some_and(|end| end <= now);
                (!is_over).then_some(OF_THIS_BATCH)
            }
            Some(Becomes::Deleted | Becomes::StillAbsent) => None,
            None => stored.map(|entry| entry.version),
        };
        // Its own version is none that anybody can have expected.
        let is_own = actual == Some(OF_THIS_BATCH) && matches!(op.expect(), Expect::Version(_));
        if is_own || !op.expect().holds(actual) {
            return Err(Conflict::State { key: key.clone(), actual });
        }
        let becomes = match op {
            StateOp::Put { value, expires_at, .. } => {
                Becomes::Put { value: value.clone(), expires_at: *expires_at }
            }
            StateOp::Delete { expect: Expect::Absent, .. } if !seen.state.contains_key(key) => {
                Becomes::StillAbsent
            }
            StateOp::Delete { .. } => Becomes::Deleted,
        };
        changes.insert(key.clone(), becomes);
    }
    Ok(changes)
}
