//! The steps of a migration, as text and as JSON.

use std::fmt;

use prombus_proto::Topic;
use serde_json::{Value, json};

use crate::layout::indexes::IndexProblem;
use crate::layout::version::LAYOUT;

/// The steps that a database needs, in order.
#[derive(Clone, Debug)]
pub struct MigrationPlan {
    database: String,
    layout: Option<i64>,
    steps: Vec<Step>,
}

/// One step of a migration. `Display` describes it.
#[derive(Clone, Debug)]
pub struct Step(Action);

#[derive(Clone, Debug)]
#[expect(clippy::large_enum_variant, reason = "a plan has few steps")]
pub(super) enum Action {
    CreateCollection(&'static str),
    BuildIndex { problem: IndexProblem, documents: u64 },
    RecordLayout { from: Option<i64> },
    ChangeTtl { topic: Topic, from: Option<u64>, to: Option<u64>, events: u64, resumes: bool },
}

impl MigrationPlan {
    pub(super) fn new(database: &str, layout: Option<i64>, actions: Vec<Action>) -> Self {
        let steps = actions.into_iter().map(Step).collect();
        Self { database: database.to_owned(), layout, steps }
    }

    /// The name of the database.
    #[must_use]
    pub fn database(&self) -> &str {
        &self.database
    }

    /// Returns `true` if no version of this program has used the database.
    #[must_use]
    pub const fn is_new(&self) -> bool {
        self.layout.is_none()
    }

    /// Empty if the database needs no migration.
    #[must_use]
    pub fn steps(&self) -> &[Step] {
        &self.steps
    }

    /// The plan for programs (`prombus migrate --json`).
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
    pub(super) const fn action(&self) -> &Action {
        &self.0
    }

    /// About how many documents the step reads or changes.
    #[must_use]
    pub const fn documents(&self) -> u64 {
        match &self.0 {
            Action::CreateCollection(_) | Action::RecordLayout { .. } => 0,
            Action::BuildIndex { documents, .. } => *documents,
            Action::ChangeTtl { events, .. } => *events,
        }
    }

    fn to_json(&self) -> Value {
        match &self.0 {
            Action::CreateCollection(name) => {
                json!({ "step": "create_collection", "collection": name })
            }
            Action::BuildIndex {
                problem: IndexProblem::Missing { collection, expected },
                documents,
            } => json!({
                "step": "create_index",
                "collection": collection,
                "index": expected.to_string(),
                "documents": documents,
            }),
            Action::BuildIndex {
                problem: IndexProblem::Different { collection, expected, name, found },
                documents,
            } => json!({
                "step": "rebuild_index",
                "collection": collection,
                "index": expected.to_string(),
                "name": name,
                "found": found.to_string(),
                "documents": documents,
            }),
            Action::RecordLayout { from } => {
                json!({ "step": "note_layout", "from": from, "to": LAYOUT })
            }
            Action::ChangeTtl { topic, from, to, events, resumes } => json!({
                "step": "change_ttl",
                "topic": topic,
                "from_ms": from,
                "to_ms": to,
                "events": events,
                "goes_on": resumes,
            }),
        }
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Action::CreateCollection(name) => write!(f, "create the collection {name}"),
            Action::BuildIndex {
                problem: IndexProblem::Missing { collection, expected },
                documents,
            } => write!(f, "build the index {collection} {expected}, over {documents} documents"),
            Action::BuildIndex {
                problem: IndexProblem::Different { collection, expected, name, found },
                documents,
            } => write!(
                f,
                "drop the index {collection} {found}, named {name}, and build {expected} instead, \
                 over {documents} documents; queries that need it are slow until it is built"
            ),
            Action::RecordLayout { from: None } => write!(f, "record layout {LAYOUT}"),
            Action::RecordLayout { from: Some(from) } => write!(
                f,
                "record layout {LAYOUT} in place of {from}; older versions of prombus can no longer \
                 use the database"
            ),
            Action::ChangeTtl { topic, from, to, events, resumes } => {
                let resume = if *resumes { "resume: " } else { "" };
                write!(f, "{resume}keep the events of {topic} ")?;
                match (from, to) {
                    (_, None) => write!(f, "for ever")?,
                    (Some(from), Some(to)) if from != to => {
                        write!(f, "for {to} ms instead of {from} ms")?;
                    }
                    (_, Some(to)) => write!(f, "for {to} ms")?,
                }
                match events {
                    0 => Ok(()),
                    events => write!(f, ", including the {events} existing ones"),
                }
            }
        }
    }
}
