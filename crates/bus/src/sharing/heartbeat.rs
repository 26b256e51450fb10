//! That a gateway lives.

use std::fmt;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use prombus_engine::{Batch, CommitError, Durability, Engine, Expect, StateOp};
use prombus_proto::{Clock, IdSource};
use serde::{Deserialize, Serialize};

use crate::stored::heartbeat::StoredHeartbeat;
use crate::time::now;

/// One life of one gateway.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub(crate) struct GatewayId(String);

/// The heartbeat of this gateway.
#[derive(Debug)]
pub(crate) struct Heartbeat {
    gateway: GatewayId,
    lease_time: Duration,
    /// When the last one that was stored began.
    last: Mutex<Option<Instant>>,
}

/// How long the heartbeat of a gateway that is gone stays. By the wall clocks, so much longer than those
/// may differ.
const KEPT_MS: u64 = 60 * 60 * 1000;

impl GatewayId {
    /// A new life.
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
        Self { gateway, lease_time, last: Mutex::new(None) }
    }

    pub(crate) const fn gateway(&self) -> &GatewayId {
        &self.gateway
    }

    /// How often others are looked at. A heartbeat is due every second time.
    pub(super) fn pace(&self) -> Duration {
        self.lease_time / 10
    }

    /// After how long without a new heartbeat a gateway is gone.
    ///
    /// It is less than the lease time by what two looks may take: one until the last heartbeat is seen,
    /// one until its age is. So a gateway that dies is replaced within the lease time.
    pub(super) fn patience(&self) -> Duration {
        self.lease_time - 2 * self.pace()
    }

    /// Whether nobody can take this gateway for gone yet. Others see a heartbeat when it is stored or
    /// later, and it is dated from when it began.
    pub(crate) fn is_trusted(&self, now: Instant) -> bool {
        self.age(now).is_some_and(|age| age < self.patience())
    }

    pub(super) fn is_due(&self, now: Instant) -> bool {
        self.age(now).is_none_or(|age| age >= 2 * self.pace())
    }

    fn age(&self, now: Instant) -> Option<Duration> {
        let last = *self.last.lock().unwrap_or_else(PoisonError::into_inner);
        last.map(|began| now.saturating_duration_since(began))
    }

    /// Stores one. Not through the committer: what waits there is not to make this gateway look dead.
    pub(crate) async fn store(
        &self,
        engine: &dyn Engine,
        clock: &dyn Clock,
    ) -> Result<(), CommitError> {
        let Some(key) = StoredHeartbeat::key(&self.gateway) else { return Ok(()) };
        let expires_at = Some(clock.now().plus_ms(KEPT_MS));
        let value = StoredHeartbeat {}.encode().into();
        let put = StateOp::Put { key, value, expires_at, expect: Expect::Any };
        let began = now();
        engine.commit(Batch::of_state(vec![put], Durability::Buffered)).await?;
        *self.last.lock().unwrap_or_else(PoisonError::into_inner) = Some(began);
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
        tokio::time::advance(heartbeat.patience() - Duration::from_secs(2)).await;
        assert!(!heartbeat.is_trusted(now()));
    }
}
