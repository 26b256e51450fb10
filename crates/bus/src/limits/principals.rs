//! Principals: whom the limits of a client belong to, however many connections it opens.

use std::collections::HashMap;
use std::fmt;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::Arc;
use std::time::Instant;

use parking_lot::{Mutex, MutexGuard};

use super::fair_bucket::FairBucket;
use super::{ConnectionLimit, Deficit, Rate, TokenBucket};

/// The owner of limits that connections share.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Principal {
    /// A token of the configuration, by an identity that does not reveal it.
    Token(Arc<str>),
    /// The holder of a client certificate, by the name that the configuration lists.
    Certificate(Arc<str>),
    /// The subject of signed tokens.
    Subject { issuer: Option<Arc<str>>, subject: Arc<str> },
    /// A client without a name.
    Network(Network),
}

/// What one client without a name is assumed to have: an IPv4 address, or a /64 of IPv6, which a host
/// usually has as a whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Network(IpAddr);

impl Network {
    #[must_use]
    pub const fn of(address: IpAddr) -> Self {
        match address.to_canonical() {
            IpAddr::V4(address) => Self(IpAddr::V4(address)),
            IpAddr::V6(address) => {
                let [a, b, c, d, ..] = address.segments();
                Self(IpAddr::V6(Ipv6Addr::new(a, b, c, d, 0, 0, 0, 0)))
            }
        }
    }
}

impl Principal {
    /// Returns the principal of clients without a name at `address`.
    #[must_use]
    pub const fn of_address(address: IpAddr) -> Self {
        Self::Network(Network::of(address))
    }
}

impl fmt::Display for Principal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Token(name) => write!(f, "token {name}"),
            Self::Certificate(name) => write!(f, "certificate {name}"),
            Self::Subject { issuer: Some(issuer), subject } => {
                write!(f, "subject {subject} of {issuer}")
            }
            Self::Subject { issuer: None, subject } => write!(f, "subject {subject}"),
            Self::Network(Network(address)) if address.is_ipv6() => {
                write!(f, "network {address}/64")
            }
            Self::Network(Network(address)) => write!(f, "address {address}"),
        }
    }
}

/// The limits that all connections of a principal share.
#[derive(Debug)]
pub(crate) struct PrincipalLimit {
    principal: Principal,
    tokens: Mutex<FairBucket>,
    bytes: Option<Mutex<TokenBucket>>,
}

/// The limits of every principal that has a connection or has taken tokens that are not refilled yet:
/// connecting again refills nothing.
#[derive(Debug)]
pub(crate) struct Principals {
    rate: Rate,
    bytes_per_sec: Option<u64>,
    known: Mutex<Known>,
}

#[derive(Debug)]
struct Known {
    limits: HashMap<Principal, Arc<PrincipalLimit>>,
    /// At this number of principals, unused ones are removed.
    sweep_at: usize,
}

const FIRST_SWEEP: usize = 1024;

impl Principals {
    pub(crate) fn new(rate: Rate, bytes_per_sec: Option<u64>) -> Self {
        let known = Known { limits: HashMap::new(), sweep_at: FIRST_SWEEP };
        Self { rate, bytes_per_sec, known: Mutex::new(known) }
    }

    /// Makes `connection` share the limits of `principal`.
    pub(crate) fn admit(&self, connection: &ConnectionLimit, principal: &Principal, now: Instant) {
        connection.share(principal, || self.limit_of(principal, now));
    }

    fn limit_of(&self, principal: &Principal, now: Instant) -> Arc<PrincipalLimit> {
        let mut known = self.known.lock();
        if let Some(limit) = known.limits.get(principal) {
            return Arc::clone(limit);
        }
        known.sweep(now);
        let limit = Arc::new(PrincipalLimit {
            principal: principal.clone(),
            tokens: Mutex::new(FairBucket::full(self.rate, now)),
            bytes: self
                .bytes_per_sec
                .map(|bytes| Mutex::new(TokenBucket::full(Rate::of_bytes(bytes), now))),
        });
        known.limits.insert(principal.clone(), Arc::clone(&limit));
        limit
    }
}

impl Known {
    /// Removes principals without connections whose buckets are full, when there are many principals.
    fn sweep(&mut self, now: Instant) {
        if self.limits.len() < self.sweep_at {
            return;
        }
        self.limits.retain(|_, limit| Arc::strong_count(limit) > 1 || !limit.is_full(now));
        self.sweep_at = (self.limits.len() * 2).max(FIRST_SWEEP);
    }
}

impl PrincipalLimit {
    pub(super) const fn principal(&self) -> &Principal {
        &self.principal
    }

    pub(super) fn tokens(&self) -> MutexGuard<'_, FairBucket> {
        self.tokens.lock()
    }

    pub(super) fn take_bytes(&self, bytes: u64, now: Instant) -> Result<(), Deficit> {
        self.bytes.as_ref().map_or(Ok(()), |limit| limit.lock().overdraw(bytes, now))
    }

    pub(super) fn give_back(&self, count: u64) {
        self.tokens.lock().give_back(count);
    }

    pub(super) fn give_bytes_back(&self, bytes: u64) {
        if let Some(limit) = &self.bytes {
            limit.lock().give_back(bytes);
        }
    }

    fn is_full(&self, now: Instant) -> bool {
        let bytes_are_full = self.bytes.as_ref().is_none_or(|limit| limit.lock().is_full(now));
        bytes_are_full && self.tokens.lock().is_full(now)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const RATE: Rate = Rate { capacity: 10, refill_per_sec: 10 };

    fn network(text: &str) -> Principal {
        Principal::of_address(text.parse().unwrap())
    }

    #[test]
    fn addresses_of_one_ipv6_network_are_one_principal() {
        assert_eq!(network("2001:db8:1:2::1"), network("2001:db8:1:2:ffff:ffff:ffff:ffff"));
        assert_ne!(network("2001:db8:1:2::1"), network("2001:db8:1:3::1"));
        assert_ne!(network("192.0.2.1"), network("192.0.2.2"));
        assert_eq!(network("::ffff:192.0.2.1"), network("192.0.2.1"));
    }

    #[test]
    fn connections_of_a_principal_share_its_tokens_and_bytes() {
        let now = Instant::now();
        let principals = Principals::new(RATE, Some(1000));
        let connect = |principal: &Principal| {
            let limit = ConnectionLimit::new(Some(RATE), Some(1000), now);
            principals.admit(&limit, principal, now);
            limit
        };
        let (one, other) = (network("192.0.2.1"), network("192.0.2.2"));
        connect(&one).try_consume(7, now).unwrap();
        connect(&one).try_take_bytes(1000, now).unwrap();
        let again = connect(&one);
        let limited = again.try_take(4, now).unwrap_err();
        let deficit = Deficit::Wait(Duration::from_millis(100));
        assert_eq!(limited, super::super::LimitScope::Principal.limited(deficit));
        again.try_take_bytes(1, now).unwrap_err();
        again.try_consume(3, now).unwrap();
        assert_eq!(again.status(now).unwrap().available, 7, "a refusal takes from neither");
        again.give_back(3);
        connect(&one).try_deliver(3, now).unwrap();
        connect(&other).try_consume(10, now).unwrap();
        connect(&other).try_take_bytes(1000, now).unwrap();
    }

    #[test]
    fn principals_are_forgotten_once_their_buckets_are_full() {
        let start = Instant::now();
        let principals = Principals::new(RATE, None);
        let held = ConnectionLimit::new(Some(RATE), None, start);
        principals.admit(&held, &network("192.0.2.1"), start);
        for number in 0..FIRST_SWEEP * 8 {
            let limit = ConnectionLimit::new(Some(RATE), None, start);
            let subject = number.to_string().into();
            principals.admit(&limit, &Principal::Subject { issuer: None, subject }, start);
            limit.try_consume(1, start).unwrap();
        }
        assert!(principals.known.lock().limits.len() > FIRST_SWEEP * 8, "all have taken a token");
        let later = start + Duration::from_secs(1);
        principals.known.lock().sweep_at = 0;
        let limit = ConnectionLimit::new(Some(RATE), None, later);
        principals.admit(&limit, &network("192.0.2.2"), later);
        assert_eq!(principals.known.lock().limits.len(), 2);
    }
}
