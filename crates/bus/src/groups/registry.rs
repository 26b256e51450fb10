//! The groups that have a task.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use prombus_proto::{ErrorCode, Group, Topic};
use tokio::sync::mpsc::UnboundedSender;
use tokio::sync::mpsc::error::SendError;
use tokio::sync::oneshot;

use crate::error::Refusal;
use crate::groups::Command;
use crate::stored::deletion::Deleted;

type Name = (Topic, Group);

/// The command channel of every group that has a task.
#[derive(Debug, Default)]
pub(crate) struct Groups(Mutex<Registered>);

#[derive(Debug, Default)]
struct Registered {
    channels: HashMap<Name, UnboundedSender<Command>>,
    /// What is being deleted: nobody may join these groups.
    fenced: Vec<Deleted>,
}

/// Keeps groups from being joined and started until it is dropped.
#[derive(Debug)]
pub(crate) struct Fence {
    groups: Arc<Groups>,
    deleted: Deleted,
}

impl Groups {
    /// Sends `command` to a group and returns its command channel, which `start` opens if the group has no
    /// task. If the task is about to end, it handles the command first, or a new task does.
    ///
    /// # Errors
    ///
    /// If the group is being deleted, or `start` fails.
    pub(crate) fn send(
        &self,
        topic: &Topic,
        group: &Group,
        command: Command,
        start: impl FnOnce() -> Result<UnboundedSender<Command>, Refusal>,
    ) -> Result<UnboundedSender<Command>, Refusal> {
        // Held until the command is sent: `retire` sees it, or has removed the group.
        let mut registered = self.0.lock();
        if registered.fenced.iter().any(|deleted| deleted.contains(topic, group)) {
            return Err(being_deleted(topic));
        }
        let groups = &mut registered.channels;
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
        self.0.lock().channels.get(&(topic.clone(), group.clone())).cloned()
    }

    /// Removes a group if `is_quiet`, which is asked while nobody can find the group.
    pub(crate) fn retire(
        &self,
        topic: &Topic,
        group: &Group,
        is_quiet: impl FnOnce() -> bool,
    ) -> bool {
        let mut registered = self.0.lock();
        let quiet = is_quiet();
        if quiet {
            registered.channels.remove(&(topic.clone(), group.clone()));
        }
        quiet
    }

    /// Removes and returns all channels.
    pub(crate) fn take_all(&self) -> Vec<UnboundedSender<Command>> {
        self.0.lock().channels.drain().map(|(_, commands)| commands).collect()
    }

    /// Ends the tasks and subscriptions of what is about to be deleted, and keeps them from starting until the
    /// fence is dropped. When this returns, no task of it will store anything more.
    pub(crate) async fn end(self: &Arc<Self>, deleted: Deleted) -> Fence {
        let fence = Fence { groups: Arc::clone(self), deleted: deleted.clone() };
        let channels = {
            let mut registered = self.0.lock();
            registered.fenced.push(deleted.clone());
            registered.channels_of(&deleted)
        };
        let mut ending = Vec::new();
        for commands in channels {
            let (reply, ended) = oneshot::channel();
            if commands.send(Command::End { reason: deleted.reason(), reply }).is_ok() {
                ending.push(ended);
            }
        }
        for ended in ending {
            // An error means that the task has ended already.
            let _ = ended.await;
        }
        fence
    }

    /// Sends the groups of what another gateway has deleted the command that `command` returns.
    pub(crate) fn tell_all(&self, deleted: &Deleted, command: impl Fn() -> Command) {
        for commands in self.0.lock().channels_of(deleted) {
            // A group whose task has ended need not know.
            let _ = commands.send(command());
        }
    }
}

impl Registered {
    fn channels_of(&self, deleted: &Deleted) -> Vec<UnboundedSender<Command>> {
        let of = self.channels.iter().filter(|((topic, group), _)| deleted.contains(topic, group));
        of.map(|(_, commands)| commands.clone()).collect()
    }
}

impl Drop for Fence {
    fn drop(&mut self) {
        let fenced = &mut self.groups.0.lock().fenced;
        // Two deletions of the same thing have a fence each.
        if let Some(index) = fenced.iter().position(|deleted| *deleted == self.deleted) {
            fenced.swap_remove(index);
        }
    }
}

/// The caller may try again: once the deletion is over, the group can be created again.
fn being_deleted(topic: &Topic) -> Refusal {
    let message = format!("{topic} or the group is being deleted; try again");
    Refusal::new(ErrorCode::StorageUnavailable, message)
}
