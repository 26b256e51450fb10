//! What the store has to contain, by what it acknowledged.

use std::collections::BTreeMap;
use std::sync::Arc;

use prombus_proto::{EncodedEvent, EventId, Seq};

use super::{COMMIT_KEY, TOPICS, read_events, read_number, read_value, topic};
use crate::disk::read::seek_id::seek_id;
use crate::disk::read::topic_view::TopicView;
use crate::disk::shared::Shared;
use crate::{CommitError, Committed, Durability, Position, Unavailable};

/// A commit of the simulation.
pub(super) struct NewCommit {
    pub(super) number: u64,
    /// The topic that it deletes.
    pub(super) deleted: Option<String>,
    pub(super) events: Vec<(String, EventId, EncodedEvent)>,
    pub(super) keys: Vec<(String, Option<String>)>,
}

impl NewCommit {
    /// The key that tells whether it is stored.
    pub(super) fn marker(&self) -> String {
        format!("commit {}", self.number)
    }

    fn is_stored(&self, shared: &Shared) -> bool {
        read_value(shared, &self.marker()).is_some()
    }
}

#[derive(Clone, Default)]
pub(super) struct Model {
    newest_number: u64,
    /// What is durable for certain.
    durable: Content,
    /// What was written after that, in order, and may or may not survive a crash.
    unsettled: Vec<Unsettled>,
}

#[derive(Clone, Default)]
struct Content {
    last_commit: u64,
    topics: BTreeMap<String, ModelTopic>,
    keys: BTreeMap<String, String>,
}

#[derive(Clone)]
enum Unsettled {
    /// With the positions, if it was acknowledged.
    Commit(Arc<NewCommit>, Option<Vec<Position>>),
    /// A trim that was not acknowledged.
    Trim { topic: String, below: Seq },
    /// The same for a retention rule, which may trim anything.
    Retain { topic: String },
}

#[derive(Clone, Default)]
struct ModelTopic {
    first: usize,
    /// Whether it was deleted and has had no event since, so that its numbering may begin again.
    is_deleted: bool,
    /// The JSON of every event ever stored, the first one at index 0.
    events: Vec<(EventId, Arc<[u8]>)>,
}

/// How the numbering of a topic that was deleted goes on.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Numbering {
    GoesOn,
    BeginsAgain,
}

fn seq_at(index: usize) -> Seq {
    Seq(index as u64 + 1)
}

impl ModelTopic {
    fn bounds(&self) -> (Seq, Seq) {
        if self.is_deleted {
            return (Seq::FIRST, Seq::FIRST);
        }
        (seq_at(self.first), seq_at(self.events.len()))
    }

    fn delete(&mut self) {
        self.first = self.events.len();
        self.is_deleted = true;
    }

    fn trim(&mut self, below: Seq) {
        let below = usize::try_from(below.0.saturating_sub(1)).expect("few events");
        self.first = self.first.max(below.min(self.events.len()));
    }

    /// Begins again at the first position if the engine has.
    fn add(&mut self, id: &EventId, event: &EncodedEvent, numbering: Numbering) -> Position {
        if std::mem::take(&mut self.is_deleted) && numbering == Numbering::BeginsAgain {
            (self.first, self.events) = (0, Vec::new());
        }
        let retained = self.events.iter().enumerate().skip(self.first);
        let known = retained.filter(|(_, (known, _))| known == id).map(|(index, _)| index).next();
        if let Some(index) = known {
            return Position { seq: seq_at(index), duplicate: true };
        }
        let seq = seq_at(self.events.len());
        let mut json = Vec::new();
        event.write_json(seq, &mut json);
        self.events.push((id.clone(), json.into()));
        Position { seq, duplicate: false }
    }
}

impl Content {
    fn topic(&mut self, name: &str) -> &mut ModelTopic {
        self.topics.entry(name.to_owned()).or_default()
    }

    /// `numbering` says how a topic that was deleted before goes on, if the positions are not known.
    fn apply(
        &mut self,
        commit: &NewCommit,
        answered: Option<&[Position]>,
        numbering: impl Fn(&str) -> Numbering,
    ) {
        if let Some(topic) = &commit.deleted {
            self.topic(topic).delete();
        }
        let mut positions = Vec::new();
        for (index, (name, id, event)) in commit.events.iter().enumerate() {
            let numbering = match answered {
                Some(answered) if answered[index].seq == Seq::FIRST => Numbering::BeginsAgain,
                Some(_) => Numbering::GoesOn,
                None => numbering(name),
            };
            positions.push(self.topic(name).add(id, event, numbering));
        }
        if let Some(answered) = answered {
            assert_eq!(answered, positions, "positions of commit {}", commit.number);
        }
        for (key, value) in &commit.keys {
            match value {
                Some(value) => self.keys.insert(key.clone(), value.clone()),
                None => self.keys.remove(key),
            };
        }
        self.last_commit = commit.number;
    }
}

impl Model {
    pub(super) fn take_number(&mut self) -> u64 {
        self.newest_number += 1;
        self.newest_number
    }

    pub(super) fn bounds(&self, topic: &str) -> (Seq, Seq) {
        self.durable.topics.get(topic).map_or((Seq::FIRST, Seq::FIRST), ModelTopic::bounds)
    }

    /// An id that the topic has or had.
    pub(super) fn some_id(&self, topic: &str, random: usize) -> Option<EventId> {
        let events = &self.durable.topics.get(topic)?.events;
        let index = random.checked_rem(events.len())?;
        Some(events[index].0.clone())
    }

    pub(super) fn answered(&mut self, commit: NewCommit, answer: Result<Committed, CommitError>) {
        let commit = Arc::new(commit);
        match answer {
            Ok(committed) => {
                self.unsettled.push(Unsettled::Commit(commit, Some(committed.positions)));
                if committed.durability >= Durability::Fsync {
                    self.settle_all();
                }
            }
            Err(CommitError::Unavailable(Unavailable::Poisoned(_))) => {
                self.unsettled.push(Unsettled::Commit(commit, None));
            }
            // Nothing of it is stored.
            Err(CommitError::Full(_) | CommitError::Unavailable(_)) => {}
            Err(error) => panic!("commit {} was refused: {error}", commit.number),
        }
    }

    pub(super) fn trimmed(&mut self, name: &str, below: Seq, answer: &Result<Seq, CommitError>) {
        match answer {
            Ok(first) => {
                self.settle_all();
                let topic = self.durable.topic(name);
                topic.trim(below);
                assert_eq!(topic.bounds().0, *first);
            }
            Err(CommitError::Full(_)) => {}
            Err(_) => self.unsettled.push(Unsettled::Trim { topic: name.to_owned(), below }),
        }
    }

    /// Retention dropped the events before the answer, if it is one.
    pub(super) fn retained(&mut self, name: &str, answer: &Result<Seq, CommitError>) {
        match answer {
            Ok(first) => {
                self.settle_all();
                let topic = self.durable.topic(name);
                assert!(topic.bounds().0 <= *first && *first <= topic.bounds().1);
                topic.trim(*first);
            }
            Err(CommitError::Full(_)) => {}
            Err(_) => self.unsettled.push(Unsettled::Retain { topic: name.to_owned() }),
        }
    }

    /// A sync succeeded, so everything written before it is durable.
    fn settle_all(&mut self) {
        self.durable = self.visible();
        self.unsettled.clear();
    }

    /// What readers see: everything acknowledged, durable or not.
    fn visible(&self) -> Content {
        let mut content = self.durable.clone();
        for unsettled in &self.unsettled {
            if let Unsettled::Commit(commit, Some(positions)) = unsettled {
                content.apply(commit, Some(positions), |_| Numbering::GoesOn);
            }
        }
        content
    }

    /// The process ended, but the machine did not: whatever readers saw is still there.
    pub(super) fn killed(&mut self) {
        let is_lost = |unsettled: &Unsettled| match unsettled {
            Unsettled::Commit(_, positions) => positions.is_none(),
            Unsettled::Trim { .. } | Unsettled::Retain { .. } => true,
        };
        self.durable = self.visible();
        self.unsettled.retain(is_lost);
    }

    /// Learns from a reopened store what became of the unsettled commits and trims.
    pub(super) fn settle(&mut self, shared: &Shared) {
        let (last, found) = (self.durable.last_commit, read_number(shared, COMMIT_KEY));
        assert!(found >= last, "the acknowledged commit {last} is lost");
        for unsettled in std::mem::take(&mut self.unsettled) {
            match unsettled {
                Unsettled::Commit(commit, positions) if commit.is_stored(shared) => {
                    // An event that begins a topic again is at the first position, unless it was trimmed.
                    let ids: Vec<_> =
                        commit.events.iter().map(|(name, id, _)| (name, id)).collect();
                    let numbering = |name: &str| numbering_in(shared, name, &ids);
                    self.durable.apply(&commit, positions.as_deref(), numbering);
                }
                Unsettled::Commit(..) => {}
                Unsettled::Trim { topic: name, below } => {
                    let first = shared.view().topics.get(&topic(&name)).map(|view| view.first);
                    let model = self.durable.topic(&name);
                    if first > Some(model.bounds().0) {
                        model.trim(below);
                    }
                }
                Unsettled::Retain { topic: name } => {
                    if let Some(view) = shared.view().topics.get(&topic(&name)) {
                        self.durable.topic(&name).trim(view.first);
                    }
                }
            }
        }
    }

    /// Compares what readers see with what was acknowledged.
    pub(super) fn check(&self, shared: &Shared) {
        let mut visible = self.visible();
        for name in TOPICS {
            visible.topic(name).check(shared, name);
        }
        for key in (0..12).map(|n| format!("key {n}")) {
            assert_eq!(read_value(shared, &key).as_ref(), visible.keys.get(&key), "{key}");
        }
        assert_eq!(read_number(shared, COMMIT_KEY), visible.last_commit);
    }
}

/// Returns how a commit without an answer continued the numbering of a deleted topic.
fn numbering_in(shared: &Shared, name: &str, ids: &[(&String, &EventId)]) -> Numbering {
    let first_of = ids.iter().find(|(of, _)| *of == name).map(|(_, id)| *id);
    let at = first_of.and_then(|id| seek_id(shared, &topic(name), id).expect("no faults"));
    if at == Some(Seq::FIRST) { Numbering::BeginsAgain } else { Numbering::GoesOn }
}

impl ModelTopic {
    fn check(&self, shared: &Shared, name: &str) {
        let found = read_events(shared, &topic(name));
        // A rule alone makes no topic.
        let is_listed = |view: &TopicView| view.bounds().next > Seq::FIRST;
        let is_listed = shared.view().topics.get(&topic(name)).is_some_and(|view| is_listed(view));
        assert!(self.is_deleted != is_listed || self.events.is_empty(), "{name} is listed");
        let mut found = found.iter();
        for (index, (id, json)) in self.events.iter().enumerate().skip(self.first) {
            let seq = seq_at(index);
            let event = found.next().unwrap_or_else(|| panic!("{name} lost event {seq}"));
            assert_eq!((event.seq, &event.id), (seq, id), "{name}");
            assert!(event.json == json[..], "{name} has another event {seq}");
            if index % 7 == 0 {
                let found = seek_id(shared, &topic(name), id).expect("the disk has no faults");
                assert_eq!(found, Some(seq), "{name}: {id}");
            }
        }
        assert!(found.next().is_none(), "{name} has an event that nobody stored");
    }
}
