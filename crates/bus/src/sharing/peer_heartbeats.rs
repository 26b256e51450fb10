//! Who seems to be gone, by what this gateway has seen.

use std::collections::{BTreeSet, HashMap};
use std::time::{Duration, Instant};

use prombus_engine::Version;

use super::heartbeat::GatewayId;

/// The heartbeat of other gateways, and since when each is as it is.
#[derive(Debug, Default)]
pub(super) struct PeerHeartbeats(HashMap<GatewayId, Sighting>);

#[derive(Clone, Copy, Debug)]
struct Sighting {
    /// Nothing where there is no heartbeat.
    heartbeat: Option<Version>,
    since: Instant,
}

impl PeerHeartbeats {
    /// Takes note of what the heartbeat of `gateway` is now. Answers for how long it has been that.
    pub(super) fn note(
        &mut self,
        gateway: &GatewayId,
        heartbeat: Option<Version>,
        now: Instant,
    ) -> Duration {
        let new = Sighting { heartbeat, since: now };
        let known = self.0.entry(gateway.clone()).or_insert(new);
        if known.heartbeat != heartbeat {
            *known = new;
        }
        now.saturating_duration_since(known.since)
    }

    /// Forgets all others. Who is asked for again later counts as just seen.
    pub(super) fn keep_only(&mut self, gateways: &BTreeSet<GatewayId>) {
        self.0.retain(|gateway, _| gateways.contains(gateway));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_beat_that_does_not_change_grows_old() {
        let gateway = GatewayId::of("a");
        let mut peers = PeerHeartbeats::default();
        let start = Instant::now();
        let at = |s: u64| start + Duration::from_secs(s);
        let secs = |age: Duration| age.as_secs();
        assert_eq!(secs(peers.note(&gateway, Some(Version(1)), at(0))), 0);
        assert_eq!(secs(peers.note(&gateway, Some(Version(1)), at(5))), 5);
        assert_eq!(secs(peers.note(&gateway, Some(Version(2)), at(6))), 0);
        assert_eq!(secs(peers.note(&gateway, Some(Version(2)), at(9))), 3);
        // One whose heartbeat has expired is not gone at once: it may have been looked at late.
        assert_eq!(secs(peers.note(&gateway, None, at(10))), 0);
        assert_eq!(secs(peers.note(&gateway, None, at(14))), 4);
        peers.keep_only(&BTreeSet::new());
        assert_eq!(secs(peers.note(&gateway, None, at(20))), 0);
    }
}
