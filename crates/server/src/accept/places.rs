//! Places of connections: how many there are, how many one client may take, and a few above that.
//!
//! A connection above a limit gets a surplus place for a moment: a health check is answered there, everything
//! else is refused. Surplus places cannot be held: the oldest gives way to the newest.

use std::collections::{HashMap, VecDeque};
use std::future::pending;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use prombus_bus::{Bus, PlaceLimit, Principal};
use tokio::sync::oneshot;
use tokio::time::{Instant, timeout};

/// Surplus places. Connections beyond are closed at once.
pub(crate) const MAX_SURPLUS: usize = 16;
/// The oldest surplus connection has to give way from this number on. The places above it are for those that
/// have to give way, but have not ended yet.
const SETTLED_SURPLUS: usize = MAX_SURPLUS / 2;
/// How long a surplus connection may take, a TLS handshake included.
const SURPLUS_TIME: Duration = Duration::from_secs(3);
/// Refused connections are logged at most this often.
const LOG_INTERVAL: Duration = Duration::from_secs(1);

/// The places of both ports together.
pub(crate) struct Places {
    limits: PlaceLimits,
    bus: Arc<Bus>,
    taken: Mutex<TakenPlaces>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PlaceLimits {
    pub(crate) total: usize,
    pub(crate) per_address: usize,
}

#[derive(Default)]
struct TakenPlaces {
    ordinary: usize,
    by_network: HashMap<Principal, usize>,
    surplus: usize,
    /// Dropping one makes its surplus connection give way. Oldest first.
    holds: VecDeque<oneshot::Sender<()>>,
    logged_at: Option<Instant>,
    /// Refused since then.
    unlogged: u64,
}

/// The place of one connection, which is free again when it is dropped.
pub(crate) struct Place {
    kind: PlaceKind,
    places: Arc<Places>,
}

enum PlaceKind {
    Ordinary(Principal),
    Surplus { limit: PlaceLimit, hold: oneshot::Receiver<()> },
}

/// What a connection is admitted to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Admission {
    Everything,
    /// One health check, because the connection exceeds this limit.
    HealthCheck(PlaceLimit),
}

impl Admission {
    /// Returns what a client is told that exceeds `limit`.
    pub(crate) const fn refusal(limit: PlaceLimit) -> &'static str {
        match limit {
            PlaceLimit::Total => "too many connections",
            PlaceLimit::PerAddress => "too many connections from this address",
        }
    }
}

impl Places {
    pub(crate) fn new(limits: PlaceLimits, bus: Arc<Bus>) -> Self {
        Self { limits, bus, taken: Mutex::default() }
    }

    /// Returns `None` if the connection has to be closed at once.
    pub(crate) fn take(self: &Arc<Self>, address: IpAddr) -> Option<Place> {
        let network = Principal::of_address(address);
        let mut taken = self.taken.lock();
        let kind = match taken.exceeded(self.limits, &network) {
            None => {
                taken.ordinary += 1;
                *taken.by_network.entry(network.clone()).or_default() += 1;
                Some(PlaceKind::Ordinary(network))
            }
            Some(limit) => {
                self.bus.metrics().connection_refused(limit);
                let unlogged = taken.unlogged();
                let hold = taken.hold_surplus();
                drop(taken);
                log(unlogged, limit, address);
                hold.map(|hold| PlaceKind::Surplus { limit, hold })
            }
        };
        kind.map(|kind| Place { kind, places: Arc::clone(self) })
    }
}

impl TakenPlaces {
    fn exceeded(&self, limits: PlaceLimits, network: &Principal) -> Option<PlaceLimit> {
        let of_network = self.by_network.get(network).copied().unwrap_or(0);
        if of_network >= limits.per_address {
            return Some(PlaceLimit::PerAddress);
        }
        (self.ordinary >= limits.total).then_some(PlaceLimit::Total)
    }

    fn hold_surplus(&mut self) -> Option<oneshot::Receiver<()>> {
        self.holds.retain(|hold| !hold.is_closed());
        if self.holds.len() >= SETTLED_SURPLUS {
            self.holds.pop_front();
        }
        if self.surplus >= MAX_SURPLUS {
            return None;
        }
        let (hold, held) = oneshot::channel();
        self.surplus += 1;
        self.holds.push_back(hold);
        Some(held)
    }

    /// Counts a refusal. Returns how many to log now.
    fn unlogged(&mut self) -> Option<u64> {
        self.unlogged += 1;
        let now = Instant::now();
        if self.logged_at.is_some_and(|at| now < at + LOG_INTERVAL) {
            return None;
        }
        self.logged_at = Some(now);
        Some(std::mem::take(&mut self.unlogged))
    }
}

fn log(count: Option<u64>, limit: PlaceLimit, address: IpAddr) {
    let Some(count) = count else { return };
    let setting = match limit {
        PlaceLimit::Total => "gateway.max_connections",
        PlaceLimit::PerAddress => "gateway.max_connections_per_address",
    };
    tracing::warn!(
        %address,
        count,
        "refused connections, the last from {address} because of {setting}: close what is not needed, or \
         raise the limit"
    );
}

impl Place {
    pub(crate) const fn admission(&self) -> Admission {
        match &self.kind {
            PlaceKind::Ordinary(_) => Admission::Everything,
            PlaceKind::Surplus { limit, .. } => Admission::HealthCheck(*limit),
        }
    }

    /// Waits until the connection has to end, whatever it does.
    pub(crate) async fn revoked(&mut self) {
        match &mut self.kind {
            PlaceKind::Ordinary(_) => pending().await,
            // Over, or dropped for a newer connection, is the same.
            PlaceKind::Surplus { hold, .. } => drop(timeout(SURPLUS_TIME, hold).await),
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut taken = self.places.taken.lock();
        match &self.kind {
            PlaceKind::Ordinary(network) => {
                taken.ordinary -= 1;
                if let Some(count) = taken.by_network.get_mut(network) {
                    *count -= 1;
                    if *count == 0 {
                        taken.by_network.remove(network);
                    }
                }
            }
            PlaceKind::Surplus { .. } => taken.surplus -= 1,
        }
    }
}
