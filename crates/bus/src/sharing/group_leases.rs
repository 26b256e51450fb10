//! The task that renews this gateway's heartbeat and watches the leases of groups that other gateways own.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use prombus_engine::{Engine, ReadError, StateEntry, StateKey, Version};
use prombus_proto::{Clock, Group, IdSource, Topic};
use tokio::time::MissedTickBehavior;

use super::heartbeat::{GatewayId, Heartbeat};
use super::peer_heartbeats::PeerHeartbeats;
use crate::groups::{Command, Groups};
use crate::stored::group_lease::GroupLease;
use crate::stored::group_properties::GroupProperties;
use crate::stored::heartbeat::StoredHeartbeat;
use crate::time::now;

/// What groups need to share a store with other gateways.
#[derive(Debug)]
pub(crate) struct GroupLeases {
    pub(crate) heartbeat: Heartbeat,
    watched: Mutex<BTreeMap<Name, Watched>>,
}

/// What a group of this gateway has to know of other gateways.
#[derive(Clone, Debug)]
enum Watched {
    /// Another gateway owns the group: its lease.
    Lease(StateKey),
    /// This gateway owns the group: its properties, and the version that it was told last.
    Properties { key: StateKey, told: Option<Version> },
}

type Name = (Topic, Group);

/// How many leases are read at once.
const LEASES_PER_READ: usize = 1000;

impl GroupLeases {
    pub(crate) fn new(ids: &IdSource, lease_time: Duration) -> Self {
        let heartbeat = Heartbeat::of(GatewayId::new(ids), lease_time);
        Self { heartbeat, watched: Mutex::default() }
    }

    /// Sends the group a [`Command::TakeOver`] whenever it can be claimed, until [`GroupLeases::unwatch`].
    pub(crate) fn watch_lease(&self, topic: &Topic, group: &Group, lease: &StateKey) {
        let watched = Watched::Lease(lease.clone());
        self.watched.lock().insert((topic.clone(), group.clone()), watched);
    }

    /// Sends the group a [`Command::PropertiesStored`] whenever there are others than before, until
    /// [`GroupLeases::unwatch`].
    pub(crate) fn watch_properties(&self, topic: &Topic, group: &Group, key: &StateKey) {
        let watched = Watched::Properties { key: key.clone(), told: None };
        self.watched.lock().insert((topic.clone(), group.clone()), watched);
    }

    pub(crate) fn unwatch(&self, topic: &Topic, group: &Group) {
        self.watched.lock().remove(&(topic.clone(), group.clone()));
    }

    #[cfg(test)]
    pub(crate) fn watches(&self, topic: &Topic, group: &Group) -> bool {
        self.watched.lock().contains_key(&(topic.clone(), group.clone()))
    }

    pub(crate) async fn run(
        self: Arc<Self>,
        engine: Arc<dyn Engine>,
        clock: Arc<dyn Clock>,
        groups: Arc<Groups>,
    ) {
        let mut ticks = tokio::time::interval(self.heartbeat.check_interval());
        // After a long wait for the store, one check is as good as many.
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut peers = PeerHeartbeats::default();
        loop {
            ticks.tick().await;
            if self.heartbeat.is_due(now())
                && let Err(error) = self.heartbeat.store(engine.as_ref(), clock.as_ref()).await
            {
                tracing::warn!("cannot renew the heartbeat of this gateway: {error}; retrying");
            }
            if let Err(error) = self.check_leases(engine.as_ref(), &groups, &mut peers).await {
                tracing::warn!("cannot read the leases of other gateways: {error}; retrying");
            }
            if let Err(error) = self.check_properties(engine.as_ref(), &groups).await {
                tracing::warn!("cannot read the properties of groups: {error}; retrying");
            }
        }
    }

    /// Tells watched groups that were released, or whose owner is dead, to claim their lease.
    async fn check_leases(
        &self,
        engine: &dyn Engine,
        groups: &Groups,
        peers: &mut PeerHeartbeats,
    ) -> Result<(), ReadError> {
        let (names, keys) = self.watched_keys(|watched| match watched {
            Watched::Lease(key) => Some(key),
            Watched::Properties { .. } => None,
        });
        let mut owned = Vec::new();
        for (names, keys) in names.chunks(LEASES_PER_READ).zip(keys.chunks(LEASES_PER_READ)) {
            for (name, entry) in names.iter().zip(engine.get_many(keys).await?) {
                match owner_in(entry.as_ref()) {
                    Some((owner, version)) if owner != *self.heartbeat.gateway() => {
                        owned.push((name, owner, version));
                    }
                    // Released, or left to this gateway by a claim that had no answer.
                    _ => {
                        let expired = entry.map(|entry| entry.version);
                        tell(groups, name, Command::TakeOver { expired });
                    }
                }
            }
        }
        let owners: BTreeSet<GatewayId> = owned.iter().map(|(_, owner, _)| owner.clone()).collect();
        peers.keep_only(&owners);
        let dead = self.dead_gateways(engine, &owners, peers).await?;
        for (name, owner, version) in owned {
            if dead.contains(&owner) {
                tell(groups, name, Command::TakeOver { expired: Some(version) });
            }
        }
        Ok(())
    }

    /// Tells the groups of this gateway what other gateways have stored for them.
    async fn check_properties(
        &self,
        engine: &dyn Engine,
        groups: &Groups,
    ) -> Result<(), ReadError> {
        let (names, keys) = self.watched_keys(|watched| match watched {
            Watched::Lease(_) => None,
            Watched::Properties { key, .. } => Some(key),
        });
        for (names, keys) in names.chunks(LEASES_PER_READ).zip(keys.chunks(LEASES_PER_READ)) {
            for (name, entry) in names.iter().zip(engine.get_many(keys).await?) {
                if let Some(entry) = entry
                    && let Ok(properties) = GroupProperties::decode(&entry.value)
                    && self.is_news(name, entry.version)
                {
                    tell(groups, name, Command::PropertiesStored(properties));
                }
            }
        }
        Ok(())
    }

    /// Returns `true` if the group was not told of the properties of this version, and records that it is.
    fn is_news(&self, name: &Name, version: Version) -> bool {
        match self.watched.lock().get_mut(name) {
            Some(Watched::Properties { told, .. }) => told.replace(version) != Some(version),
            _ => false,
        }
    }

    fn watched_keys(
        &self,
        key: impl Fn(&Watched) -> Option<&StateKey>,
    ) -> (Vec<Name>, Vec<StateKey>) {
        let watched = self.watched.lock();
        let keyed = watched.iter().filter_map(|(name, watched)| Some((name, key(watched)?)));
        keyed.map(|(name, key)| (name.clone(), key.clone())).unzip()
    }

    /// Returns those of `gateways` whose heartbeat has not changed for too long.
    async fn dead_gateways(
        &self,
        engine: &dyn Engine,
        gateways: &BTreeSet<GatewayId>,
        peers: &mut PeerHeartbeats,
    ) -> Result<BTreeSet<GatewayId>, ReadError> {
        let keyed =
            gateways.iter().filter_map(|gateway| Some((gateway, StoredHeartbeat::key(gateway)?)));
        let (gateways, keys): (Vec<_>, Vec<StateKey>) = keyed.unzip();
        let heartbeats = if keys.is_empty() { vec![] } else { engine.get_many(&keys).await? };
        let now = now();
        let mut dead = BTreeSet::new();
        for (gateway, heartbeat) in gateways.into_iter().zip(heartbeats) {
            let age = peers.observe(gateway, heartbeat.map(|heartbeat| heartbeat.version), now);
            if age >= self.heartbeat.dead_after() {
                dead.insert(gateway.clone());
            }
        }
        Ok(dead)
    }
}

/// Returns the owner that a stored lease names. A lease that cannot be decoded counts as free: the group
/// reports the error when it tries to claim it.
fn owner_in(entry: Option<&StateEntry>) -> Option<(GatewayId, Version)> {
    let entry = entry?;
    Some((GroupLease::decode(&entry.value).ok()?.holder?, entry.version))
}

fn tell(groups: &Groups, (topic, group): &Name, command: Command) {
    if let Some(commands) = groups.get(topic, group) {
        // A group that has ended needs neither an owner nor properties.
        let _ = commands.send(command);
    }
}
