//! How old the heartbeats of other gateways are, by this gateway's own clock.

use std::collections::{BTreeSet, HashMap};
use std::time::{Duration, Instant};

use prombus_engine::Version;

use super::heartbeat::GatewayId;

/// The last seen heartbeat of each gateway, and since when it has not changed.
#[derive(Debug, Default)]
pub(super) struct PeerHeartbeats(HashMap<GatewayId, Observation>);

#[derive(Clone, Copy, Debug)]
struct Observation {
    /// `None` if there is no heartbeat.
    heartbeat: Option<Version>,
    since: Instant,
}

impl PeerHeartbeats {
    /// Records the heartbeat of `gateway` as of `now`, and returns how long it has not changed.
    pub(super) fn observe(
        &mut self,
        gateway: &GatewayId,
        heartbeat: Option<Version>,
        now: Instant,
    ) -> Duration {
        let new = Observation { heartbeat, since: now };
        let known = self.0.entry(gateway.clone()).or_insert(new);
        if known.heartbeat != heartbeat {
            *known = new;
        }
        now.saturating_duration_since(known.since)
    }

    /// Forgets every other gateway. One that is observed again later counts as just seen.
    pub(super) fn keep_only(&mut self, gateways: &BTreeSet<GatewayId>) {
        self.0.retain(|gateway, _| gateways.contains(gateway));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_heartbeat_that_does_not_change_ages() {
        let gateway = GatewayId::of("a");
        let mut peers = PeerHeartbeats::default();
        let start = Instant::now();
        let at = |s: u64| start + Duration::from_secs(s);
        let secs = |age: Duration| age.as_secs();
        assert_eq!(secs(peers.observe(&gateway, Some(Version(1)), at(0))), 0);
        assert_eq!(secs(peers.observe(&gateway, Some(Version(1)), at(5))), 5);
        assert_eq!(secs(peers.observe(&gateway, Some(Version(2)), at(6))), 0);
        assert_eq!(secs(peers.observe(&gateway, Some(Version(2)), at(9))), 3);
        // A gateway whose heartbeat has expired is not dead at once: the check may have been late.
        assert_eq!(secs(peers.observe(&gateway, None, at(10))), 0);
        assert_eq!(secs(peers.observe(&gateway, None, at(14))), 4);
        peers.keep_only(&BTreeSet::new());
        assert_eq!(secs(peers.observe(&gateway, None, at(20))), 0);
    }
}
