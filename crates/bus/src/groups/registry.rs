//! The groups that are in use.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use prombus_proto::{Group, Topic};
use tokio::sync::mpsc::UnboundedSender;

use crate::groups::Command;

type Name = (Topic, Group);

/// The way to each group that has a task.
#[derive(Debug, Default)]
pub(crate) struct Groups(Mutex<HashMap<Name, UnboundedSender<Command>>>);

impl Groups {
    /// The way to a group; its task is started by `start` if it has none.
    pub(crate) fn get_or_start<E>(
        &self,
        topic: &Topic,
        group: &Group,
        start: impl FnOnce() -> Result<UnboundedSender<Command>, E>,
    ) -> Result<UnboundedSender<Command>, E> {
        let mut groups = self.groups();
        let name = (topic.clone(), group.clone());
        // One that failed is closed, and made anew.
        if let Some(known) = groups.get(&name).filter(|known| !known.is_closed()) {
            return Ok(known.clone());
        }
        let started = start()?;
        groups.insert(name, started.clone());
        Ok(started)
    }

    pub(crate) fn get(&self, topic: &Topic, group: &Group) -> Option<UnboundedSender<Command>> {
        self.groups().get(&(topic.clone(), group.clone())).cloned()
    }

    /// Takes a group out, if `is_quiet` while nobody can find it.
    pub(crate) fn retire(
        &self,
        topic: &Topic,
        group: &Group,
        is_quiet: impl FnOnce() -> bool,
    ) -> bool {
        let mut groups = self.groups();
        let quiet = is_quiet();
        if quiet {
            groups.remove(&(topic.clone(), group.clone()));
        }
        quiet
    }

    /// All of them, which are forgotten.
    pub(crate) fn take_all(&self) -> Vec<UnboundedSender<Command>> {
        self.groups().drain().map(|(_, commands)| commands).collect()
    }

    fn groups(&self) -> MutexGuard<'_, HashMap<Name, UnboundedSender<Command>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
