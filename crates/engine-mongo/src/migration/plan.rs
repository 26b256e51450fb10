//! What is to be done, in words and as JSON.

use std::fmt;

use prombus_proto::Topic;
use serde_json::{Value, json};

use crate::layout::indexes::Flaw;
use crate::layout::version::LAYOUT;

/// All that is to be done, in order.
#[derive(Clone, Debug)]
pub struct MigrationPlan {
    database: String,
    layout: Option<i64>,
    steps: Vec<Step>,
}

/// One thing that is to be done. As text, it says what.
#[derive(Clone, Debug)]
pub struct Step(Work);

#[derive(Clone, Debug)]
#[expect(clippy::large_enum_variant, reason = "a plan has few steps")]
pub(super) enum Work {
    Collection(&'static str),
    Index { flaw: Flaw, documents: u64 },
    Layout { from: Option<i64> },
    Ttl { topic: Topic, from: Option<u64>, to: Option<u64>, events: u64, goes_on: bool },
}

impl MigrationPlan {
    pub(super) fn new(database: &str, layout: Option<i64>, work: Vec<Work>) -> Self {
        let steps = work.into_iter().map(Step).collect();
        Self { database: database.to_owned(), layout, steps }
    }

    /// The database it is for.
    #[must_use]
    pub fn database(&self) -> &str {
        &self.database
    }

    /// Nothing if the database is as it has to be.
    #[must_use]
    pub fn steps(&self) -> &[Step] {
        &self.steps
    }

    /// For programs.
    #[must_use]
    pub fn to_json(&self) -> Value {
        json!({
            "database": self.database,
            "layout": self.layout,
            "wanted_layout": LAYOUT,
            "steps": self.steps.iter().map(Step::to_json).collect::<Vec<_>>(),
        })
    }
}

impl Step {
    pub(super) const fn work(&self) -> &Work {
        &self.0
    }

    /// About how many documents it looks at or changes.
    #[must_use]
    pub const fn documents(&self) -> u64 {
        match &self.0 {
            Work::Collection(_) | Work::Layout { .. } => 0,
            Work::Index { documents, .. } => *documents,
            Work::Ttl { events, .. } => *events,
        }
    }

    fn to_json(&self) -> Value {
        match &self.0 {
            Work::Collection(name) => json!({ "step": "create_collection", "collection": name }),
            Work::Index { flaw: Flaw::Missing { collection, due }, documents } => json!({
                "step": "create_index",
                "collection": collection,
                "index": due.to_string(),
                "documents": documents,
            }),
            Work::Index { flaw: Flaw::Different { collection, due, name, found }, documents } => {
                json!({
                    "step": "rebuild_index",
                    "collection": collection,
                    "index": due.to_string(),
                    "name": name,
                    "found": found.to_string(),
                    "documents": documents,
                })
            }
            Work::Layout { from } => {
                json!({ "step": "note_layout", "from": from, "to": LAYOUT })
            }
            Work::Ttl { topic, from, to, events, goes_on } => json!({
                "step": "change_ttl",
                "topic": topic,
                "from_ms": from,
                "to_ms": to,
                "events": events,
                "goes_on": goes_on,
            }),
        }
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Work::Collection(name) => write!(f, "create the collection {name}"),
            Work::Index { flaw: Flaw::Missing { collection, due }, documents } => {
                write!(f, "build the index {collection} {due}, over {documents} documents")
            }
            Work::Index { flaw: Flaw::Different { collection, due, name, found }, documents } => {
                write!(
                    f,
                    "drop the index {collection} {found}, named {name}, and build {due} instead, \
                     over {documents} documents; until it is there, what needs it is slow"
                )
            }
            Work::Layout { from: None } => write!(f, "note layout {LAYOUT}"),
            Work::Layout { from: Some(from) } => {
                write!(
                    f,
                    "note layout {LAYOUT} in place of {from}: older versions of prombus cannot use \
                     the database any more"
                )
            }
            Work::Ttl { topic, from, to, events, goes_on } => {
                let and_events = match events {
                    0 => String::new(),
                    events => format!(", also for the {events} events that are there"),
                };
                let again = if *goes_on { "go on to " } else { "" };
                match (from, to) {
                    (_, None) => {
                        write!(f, "{again}let {topic} keep its events for ever{and_events}")
                    }
                    (None, Some(to)) => {
                        write!(f, "{again}let {topic} keep events for {to} ms{and_events}")
                    }
                    (Some(from), Some(to)) if from == to => {
                        write!(f, "{again}let {topic} keep events for {to} ms{and_events}")
                    }
                    (Some(from), Some(to)) => write!(
                        f,
                        "{again}let {topic} keep events for {to} ms instead of {from} ms{and_events}"
                    ),
                }
            }
        }
    }
}
