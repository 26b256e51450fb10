//! The groups that have a task.

use std::collections::HashMap;

use parking_lot::Mutex;
use prombus_proto::{Group, Topic};
use tokio::sync::mpsc::UnboundedSender;
use tokio::sync::mpsc::error::SendError;

use crate::groups::Command;

type Name = (Topic, Group);

/// The command channel of every group that has a task.
#[derive(Debug, Default)]
pub(crate) struct Groups(Mutex<HashMap<Name, UnboundedSender<Command>>>);

impl Groups {
    /// Sends `command` to a group and returns its command channel, which `start` opens if the group has no
    /// task. If the task is about to end, it handles the command first, or a new task does.
    pub(crate) fn send<E>(
        &self,
        topic: &Topic,
        group: &Group,
        command: Command,
        start: impl FnOnce() -> Result<UnboundedSender<Command>, E>,
    ) -> Result<UnboundedSender<Command>, E> {
        // Held until the command is sent: `retire` sees it, or has removed the group.
        let mut groups = self.0.lock();
        let name = (topic.clone(), group.clone());
        let command = match groups.get(&name) {
            Some(known) => match known.send(command) {
                Ok(()) => return Ok(known.clone()),
                // The channel of a task that panicked is closed.
                Err(SendError(command)) => command,
            },
            None => command,
        };
        let started = start()?;
        // Its receiver has just been created.
        let _ = started.send(command);
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
