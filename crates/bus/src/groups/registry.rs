//! The groups that have a task.

use std::collections::HashMap;

use parking_lot::Mutex;
use prombus_proto::{Group, Topic};
use tokio::sync::mpsc::UnboundedSender;

use crate::groups::Command;

type Name = (Topic, Group);

/// The command channel of every group that has a task.
#[derive(Debug, Default)]
pub(crate) struct Groups(Mutex<HashMap<Name, UnboundedSender<Command>>>);

impl Groups {
    /// Returns the command channel of a group, which `start` opens if the group has no task.
    pub(crate) fn get_or_start<E>(
        &self,
        topic: &Topic,
        group: &Group,
        start: impl FnOnce() -> Result<UnboundedSender<Command>, E>,
    ) -> Result<UnboundedSender<Command>, E> {
        let mut groups = self.0.lock();
        let name = (topic.clone(), group.clone());
        // The channel of a task that panicked is closed.
        if let Some(known) = groups.get(&name).filter(|known| !known.is_closed()) {
            return Ok(known.clone());
        }
        let started = start()?;
        groups.insert(name, started.clone());
        Ok(started)
    }

    pub(crate) fn get(&self, topic: &Topic, group: &Group) -> Option<UnboundedSender<Command>> {
        self.0.lock().get(&(topic.clone(), group.clone())).cloned()
    }

    /// Removes a group if `is_quiet`, which is asked while nobody can find the group.
    pub(crate) fn retire(
        &self,
        topic: &Topic,
        group: &Group,
        is_quiet: impl FnOnce() -> bool,
    ) -> bool {
        let mut groups = self.0.lock();
        let quiet = is_quiet();
        if quiet {
            groups.remove(&(topic.clone(), group.clone()));
        }
        quiet
    }

    /// Removes and returns all channels.
    pub(crate) fn take_all(&self) -> Vec<UnboundedSender<Command>> {
        self.0.lock().drain().map(|(_, commands)| commands).collect()
    }
}
