//! Commits of one engine to one topic take turns.
//!
//! Between gateways the database decides who was first, and the others try again. Within one
//! gateway that would only be work for nothing.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use tokio::sync::{Mutex as Turn, OwnedMutexGuard};

/// Whose turn it is, by topic.
#[derive(Debug, Default)]
pub(crate) struct Turns {
    by_topic: Mutex<HashMap<String, Weak<Turn<()>>>>,
    all: Arc<Turn<()>>,
}

/// Turns that last until it is dropped.
pub(crate) struct MyTurn {
    _held: Vec<OwnedMutexGuard<()>>,
}

const SWEPT_ABOVE: usize = 1024;

impl Turns {
    /// Waits for the turn at every one of `topics`, in one order, so that nobody waits for each
    /// other.
    pub(crate) async fn at(&self, topics: BTreeSet<&str>) -> MyTurn {
        let mut held = Vec::with_capacity(topics.len());
        for topic in topics {
            held.push(self.turn_at(topic).lock_owned().await);
        }
        MyTurn { _held: held }
    }

    /// Waits for the only turn there is, where the database cannot tell who was first.
    pub(crate) async fn alone(&self) -> MyTurn {
        MyTurn { _held: vec![self.all.clone().lock_owned().await] }
    }

    fn turn_at(&self, topic: &str) -> Arc<Turn<()>> {
        let mut by_topic = self.by_topic.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(turn) = by_topic.get(topic).and_then(Weak::upgrade) {
            return turn;
        }
        if by_topic.len() >= SWEPT_ABOVE {
            by_topic.retain(|_, turn| turn.strong_count() > 0);
        }
        let turn = Arc::new(Turn::new(()));
        by_topic.insert(topic.to_owned(), Arc::downgrade(&turn));
        turn
    }
}
