//! The task that keeps this gateway alive for others, and looks after the groups that it waits for.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use prombus_engine::{Engine, ReadError, StateEntry, StateKey, Version};
use prombus_proto::{Clock, Group, IdSource, Topic};
use tokio::time::MissedTickBehavior;

use super::heartbeat::{GatewayId, Heartbeat};
use super::peer_heartbeats::PeerHeartbeats;
use crate::groups::Command;
use crate::groups::Groups;
use crate::stored::group_lease::GroupLease;
use crate::stored::heartbeat::StoredHeartbeat;
use crate::time::now;

/// What groups need to share a store with other gateways.
#[derive(Debug)]
pub(crate) struct GroupLeases {
    pub(crate) heartbeat: Heartbeat,
    /// The groups that somebody subscribes to here and that others hold, and where their group_leases are.
    waiting: Mutex<BTreeMap<Name, StateKey>>,
}

type Name = (Topic, Group);

/// How many group_leases are looked at with one question.
const AT_ONCE: usize = 1000;

impl GroupLeases {
    pub(crate) fn new(ids: &IdSource, lease_time: Duration) -> Self {
        let heartbeat = Heartbeat::of(GatewayId::new(ids), lease_time);
        Self { heartbeat, waiting: Mutex::default() }
    }

    /// From now on the group is told when it may be taken.
    pub(crate) fn watch(&self, topic: &Topic, group: &Group, group_lease: &StateKey) {
        self.waiting().insert((topic.clone(), group.clone()), group_lease.clone());
    }

    pub(crate) fn unwatch(&self, topic: &Topic, group: &Group) {
        self.waiting().remove(&(topic.clone(), group.clone()));
    }

    fn waiting(&self) -> MutexGuard<'_, BTreeMap<Name, StateKey>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Heartbeat and looks for ever.
    pub(crate) async fn run(
        self: Arc<Self>,
        engine: Arc<dyn Engine>,
        clock: Arc<dyn Clock>,
        groups: Arc<Groups>,
    ) {
        let mut ticks = tokio::time::interval(self.heartbeat.pace());
        // After a long wait for the store, one look is as good as many.
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut peers = PeerHeartbeats::default();
        loop {
            ticks.tick().await;
            if self.heartbeat.is_due(now())
                && let Err(error) = self.heartbeat.store(engine.as_ref(), clock.as_ref()).await
            {
                tracing::warn!("cannot say that this gateway lives: {error}");
            }
            if let Err(error) = self.look(engine.as_ref(), &groups, &mut peers).await {
                tracing::warn!("cannot look after groups that other gateways hold: {error}");
            }
        }
    }

    async fn look(
        &self,
        engine: &dyn Engine,
        groups: &Groups,
        peers: &mut PeerHeartbeats,
    ) -> Result<(), ReadError> {
        let waiting = self.waiting().clone();
        let (names, keys): (Vec<Name>, Vec<StateKey>) = waiting.into_iter().unzip();
        let mut held = Vec::new();
        for (names, keys) in names.chunks(AT_ONCE).zip(keys.chunks(AT_ONCE)) {
            for (name, entry) in names.iter().zip(engine.get_many(keys).await?) {
                match holder_in(entry.as_ref()) {
                    // One of our own is left where its commit had no answer.
                    Some((holder, version)) if holder != *self.heartbeat.gateway() => {
                        held.push((name, holder, version));
                    }
                    _ => tell(groups, name, entry.map(|entry| entry.version)),
                }
            }
        }
        let holders: BTreeSet<GatewayId> =
            held.iter().map(|(_, holder, _)| holder.clone()).collect();
        peers.keep_only(&holders);
        let gone = self.gone(engine, &holders, peers).await?;
        for (name, holder, version) in held {
            if gone.contains(&holder) {
                tell(groups, name, Some(version));
            }
        }
        Ok(())
    }

    /// Those of `gateways` whose heartbeat has not changed for too long.
    async fn gone(
        &self,
        engine: &dyn Engine,
        gateways: &BTreeSet<GatewayId>,
        peers: &mut PeerHeartbeats,
    ) -> Result<BTreeSet<GatewayId>, ReadError> {
        let known =
            gateways.iter().filter_map(|gateway| Some((gateway, StoredHeartbeat::key(gateway)?)));
        let (known, keys): (Vec<_>, Vec<StateKey>) = known.unzip();
        let heartbeat = if keys.is_empty() { vec![] } else { engine.get_many(&keys).await? };
        let now = now();
        let mut gone = BTreeSet::new();
        for (gateway, heartbeat) in known.into_iter().zip(heartbeat) {
            let age = peers.note(gateway, heartbeat.map(|heartbeat| heartbeat.version), now);
            if age >= self.heartbeat.patience() {
                gone.insert(gateway.clone());
            }
        }
        Ok(gone)
    }
}

/// What cannot be read says nothing: its group finds out what is wrong when it takes it.
fn holder_in(entry: Option<&StateEntry>) -> Option<(GatewayId, Version)> {
    let entry = entry?;
    Some((GroupLease::decode(&entry.value).ok()?.holder?, entry.version))
}

/// Tells a group that it may be taken, if its group_lease still is this one.
fn tell(groups: &Groups, (topic, group): &Name, group_lease: Option<Version>) {
    if let Some(commands) = groups.get(topic, group) {
        // One that has ended does not wait any more.
        let _ = commands.send(Command::TakeOver { expired: group_lease });
    }
}
