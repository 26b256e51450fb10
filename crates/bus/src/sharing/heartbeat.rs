//! The heartbeat by which a gateway shows the others that it is alive.

use std::fmt;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use prombus_engine::{Batch, CommitError, Durability, Engine, Expect, StateOp};
use prombus_proto::{Clock, IdSource};
use serde::{Deserialize, Serialize};

use crate::stored::heartbeat::StoredHeartbeat;
use crate::time::now;

/// One run of a gateway: a restarted gateway gets a new id.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub(crate) struct GatewayId(String);

/// The heartbeat of this gateway.
#[derive(Debug)]
pub(crate) struct Heartbeat {
    gateway: GatewayId,
    lease_time: Duration,
    /// When the commit of the last stored heartbeat started.
    last_stored: Mutex<Option<Instant>>,
}

/// How long a dead gateway's heartbeat stays stored. Expiry goes by wall clocks, so this is far longer than
/// the clocks of gateways may differ.
const EXPIRES_AFTER_MS: u64 = 60 * 60 * 1000;

impl GatewayId {
    pub(crate) fn new(ids: &IdSource) -> Self {
        Self(ids.next_id().to_string())
    }

    #[cfg(test)]
    pub(super) fn of(text: &str) -> Self {
        Self(text.to_owned())
    }
}

impl fmt::Display for GatewayId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Heartbeat {
    pub(super) const fn of(gateway: GatewayId, lease_time: Duration) -> Self {
        Self { gateway, lease_time, last_stored: Mutex::new(None) }
    }

    pub(crate) const fn gateway(&self) -> &GatewayId {
        &self.gateway
    }

    /// How often leases are checked. A heartbeat is due at every second check.
    pub(super) fn check_interval(&self) -> Duration {
        self.lease_time / 10
    }

    /// The age at which a heartbeat counts as that of a dead gateway.
    ///
    /// It is two checks less than the lease time, because it may take one check until the last heartbeat is
    /// seen and another until its age is. So a gateway that dies is replaced within the lease time.
    pub(super) fn dead_after(&self) -> Duration {
        self.lease_time - 2 * self.check_interval()
    }

    /// Returns `true` as long as no other gateway can count this one as dead. The others see a heartbeat no
    /// earlier than its commit starts, which is the time its age counts from.
    pub(crate) fn is_trusted(&self, now: Instant) -> bool {
        self.age(now).is_some_and(|age| age < self.dead_after())
    }

    pub(super) fn is_due(&self, now: Instant) -> bool {
        self.age(now).is_none_or(|age| age >= 2 * self.check_interval())
    }

    fn age(&self, now: Instant) -> Option<Duration> {
        let last_stored = *self.last_stored.lock();
        last_stored.map(|started| now.saturating_duration_since(started))
    }

    /// Stores a heartbeat. It bypasses the committer, whose queue must not make this gateway look dead.
    pub(crate) async fn store(
        &self,
        engine: &dyn Engine,
        clock: &dyn Clock,
    ) -> Result<(), CommitError> {
        let Some(key) = StoredHeartbeat::key(&self.gateway) else { return Ok(()) };
        let expires_at = Some(clock.now().plus_ms(EXPIRES_AFTER_MS));
        let value = StoredHeartbeat {}.encode().into();
        let put = StateOp::Put { key, value, expires_at, expect: Expect::Any };
        let started = now();
        engine.commit(Batch::of_state(vec![put], Durability::Buffered)).await?;
        *self.last_stored.lock() = Some(started);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use prombus_engine::MemoryEngine;
    use prombus_proto::{ManualClock, Timestamp};

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_gateway_stops_trusting_itself_before_others_take_over() {
        let clock = ManualClock::at(Timestamp(1));
        let engine = MemoryEngine::new(std::sync::Arc::new(clock.clone()));
        let heartbeat = Heartbeat::of(GatewayId::of("a"), Duration::from_secs(10));
        assert!(heartbeat.is_due(now()) && !heartbeat.is_trusted(now()));
        heartbeat.store(&engine, &clock).await.unwrap();
        assert!(!heartbeat.is_due(now()) && heartbeat.is_trusted(now()));
        tokio::time::advance(Duration::from_secs(2)).await;
        assert!(heartbeat.is_due(now()) && heartbeat.is_trusted(now()));
        tokio::time::advance(heartbeat.dead_after() - Duration::from_secs(2)).await;
        assert!(!heartbeat.is_trusted(now()));
    }
}
