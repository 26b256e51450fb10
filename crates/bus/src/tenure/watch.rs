//! The task that keeps this gateway alive for others, and looks after the groups that it waits for.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use prombus_engine::{Engine, ReadError, StateEntry, StateKey, Version};
use prombus_proto::{Clock, Group, IdSource, Topic};
use tokio::time::MissedTickBehavior;

use super::beat::{Beats, GatewayId};
use super::record::Tenure;
use super::sightings::Sightings;
use crate::bus::now;
use crate::group::Command;
use crate::groups::Groups;

/// What groups need to share a store with other gateways.
#[derive(Debug)]
pub(crate) struct Tenures {
    pub(crate) beats: Beats,
    /// The groups that somebody subscribes to here and that others hold, and where their tenures are.
    waiting: Mutex<BTreeMap<Name, StateKey>>,
}

type Name = (Topic, Group);

/// How many tenures are looked at with one question.
const AT_ONCE: usize = 1000;

impl Tenures {
    pub(crate) fn new(ids: &IdSource, lease_time: Duration) -> Self {
        let beats = Beats::of(GatewayId::new(ids), lease_time);
        Self { beats, waiting: Mutex::default() }
    }

    /// From now on the group is told when it may be taken.
    pub(crate) fn wait_for(&self, topic: &Topic, group: &Group, tenure: &StateKey) {
        self.waiting().insert((topic.clone(), group.clone()), tenure.clone());
    }

    pub(crate) fn wait_no_more(&self, topic: &Topic, group: &Group) {
        self.waiting().remove(&(topic.clone(), group.clone()));
    }

    fn waiting(&self) -> MutexGuard<'_, BTreeMap<Name, StateKey>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Beats and looks for ever.
    pub(crate) async fn run(
        self: Arc<Self>,
        engine: Arc<dyn Engine>,
        clock: Arc<dyn Clock>,
        groups: Arc<Groups>,
    ) {
        let mut ticks = tokio::time::interval(self.beats.pace());
        // After a long wait for the store, one look is as good as many.
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut sightings = Sightings::default();
        loop {
            ticks.tick().await;
            if self.beats.is_due(now())
                && let Err(error) = self.beats.store(engine.as_ref(), clock.as_ref()).await
            {
                tracing::warn!("cannot say that this gateway lives: {error}");
            }
            if let Err(error) = self.look(engine.as_ref(), &groups, &mut sightings).await {
                tracing::warn!("cannot look after groups that other gateways hold: {error}");
            }
        }
    }

    async fn look(
        &self,
        engine: &dyn Engine,
        groups: &Groups,
        sightings: &mut Sightings,
    ) -> Result<(), ReadError> {
        let waiting = self.waiting().clone();
        let (names, keys): (Vec<Name>, Vec<StateKey>) = waiting.into_iter().unzip();
        let mut held = Vec::new();
        for (names, keys) in names.chunks(AT_ONCE).zip(keys.chunks(AT_ONCE)) {
            for (name, entry) in names.iter().zip(engine.get_many(keys).await?) {
                match holder_in(entry.as_ref()) {
                    // One of our own is left where its commit had no answer.
                    Some((holder, version)) if holder != *self.beats.gateway() => {
                        held.push((name, holder, version));
                    }
                    _ => tell(groups, name, entry.map(|entry| entry.version)),
                }
            }
        }
        let holders: BTreeSet<GatewayId> =
            held.iter().map(|(_, holder, _)| holder.clone()).collect();
        sightings.keep_only(&holders);
        let gone = self.gone(engine, &holders, sightings).await?;
        for (name, holder, version) in held {
            if gone.contains(&holder) {
                tell(groups, name, Some(version));
            }
        }
        Ok(())
    }

    /// Those of `gateways` whose beat has not changed for too long.
    async fn gone(
        &self,
        engine: &dyn Engine,
        gateways: &BTreeSet<GatewayId>,
        sightings: &mut Sightings,
    ) -> Result<BTreeSet<GatewayId>, ReadError> {
        let known = gateways.iter().filter_map(|gateway| Some((gateway, gateway.key()?)));
        let (known, keys): (Vec<_>, Vec<StateKey>) = known.unzip();
        let beats = if keys.is_empty() { vec![] } else { engine.get_many(&keys).await? };
        let now = now();
        let mut gone = BTreeSet::new();
        for (gateway, beat) in known.into_iter().zip(beats) {
            let age = sightings.note(gateway, beat.map(|beat| beat.version), now);
            if age >= self.beats.patience() {
                gone.insert(gateway.clone());
            }
        }
        Ok(gone)
    }
}

/// What cannot be read says nothing: its group finds out what is wrong when it takes it.
fn holder_in(entry: Option<&StateEntry>) -> Option<(GatewayId, Version)> {
    let entry = entry?;
    Some((Tenure::decode(&entry.value).ok()?.holder?, entry.version))
}

/// Tells a group that it may be taken, if its tenure still is this one.
fn tell(groups: &Groups, (topic, group): &Name, tenure: Option<Version>) {
    if let Some(commands) = groups.get(topic, group) {
        // One that has ended does not wait any more.
        let _ = commands.send(Command::TakeOver { tenure });
    }
}
