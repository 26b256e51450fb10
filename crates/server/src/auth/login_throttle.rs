//! Bounds how often tokens can be guessed from one address.
//!
//! Each network has a bucket. A login takes a token from it before the server looks at the token of the
//! client, and gets it back unless the login was a guess. With an empty bucket, logins are refused
//! unseen. What an attacker can do to others at the same address (behind one NAT or proxy) is bounded as
//! well: tokens that were accepted from a network lately are not throttled there.

use std::net::{IpAddr, Ipv6Addr};
use std::time::{Duration, Instant};

use prombus_bus::{Deficit, Rate, TokenBucket};

use super::recent_map::RecentMap;
use super::token_digest::TokenDigest;

/// Networks whose buckets are remembered, at least.
const NETWORKS: usize = 4096;
/// Pairs of a network and a token that are remembered, at least.
const ACCEPTED: usize = 8192;

/// What one client is assumed to have: an IPv4 address, or an IPv6 /64.
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

/// Whether a login took a token from the bucket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fee {
    Paid,
    Waived,
}

#[derive(Debug)]
pub(super) struct LoginThrottle {
    rate: Rate,
    buckets: RecentMap<Network, TokenBucket>,
    accepted: RecentMap<(Network, TokenDigest), ()>,
}

impl LoginThrottle {
    pub(super) fn new(rate: Rate) -> Self {
        let (buckets, accepted) = (RecentMap::new(NETWORKS), RecentMap::new(ACCEPTED));
        Self { rate, buckets, accepted }
    }

    /// Takes the token of a login.
    ///
    /// # Errors
    ///
    /// The time until there is one.
    pub(super) fn begin(
        &mut self,
        network: Network,
        digest: TokenDigest,
        now: Instant,
    ) -> Result<Fee, Duration> {
        match self.bucket(network, now).try_consume(1, now) {
            Ok(()) => Ok(Fee::Paid),
            Err(_) if self.accepted.get(&(network, digest)).is_some() => Ok(Fee::Waived),
            Err(Deficit::Wait(time)) => Err(time),
            Err(Deficit::Never) => Err(Duration::MAX),
        }
    }

    /// Takes a token for a login that is not refused if there is none.
    pub(super) fn begin_trusted(&mut self, network: Network, now: Instant) -> Fee {
        match self.bucket(network, now).try_consume(1, now) {
            Ok(()) => Fee::Paid,
            Err(_) => Fee::Waived,
        }
    }

    /// Gives the token of a login back that was not a guess.
    pub(super) fn refund(&mut self, network: Network, fee: Fee, now: Instant) {
        if fee == Fee::Waived {
            return;
        }
        let bucket = self.bucket(network, now);
        bucket.give_back(1);
        if bucket.is_full(now) {
            self.buckets.remove(&network);
        }
    }

    /// Remembers a token that was accepted.
    pub(super) fn remember(&mut self, network: Network, digest: TokenDigest) {
        self.accepted.insert((network, digest), ());
    }

    fn bucket(&mut self, network: Network, now: Instant) -> &mut TokenBucket {
        if self.buckets.get(&network).is_none() {
            self.buckets.insert(network, TokenBucket::full(self.rate, now));
        }
        self.buckets.get(&network).expect("inserted above")
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const RATE: Rate = Rate { capacity: 10, refill_per_sec: 1 };

    fn network(text: &str) -> Network {
        Network::of(text.parse().unwrap())
    }

    fn guess(n: u32) -> TokenDigest {
        TokenDigest::of(&format!("guess {n}"))
    }

    fn log_in(
        throttle: &mut LoginThrottle,
        network: Network,
        right: TokenDigest,
        now: Instant,
    ) -> Result<(), Duration> {
        let fee = throttle.begin(network, right, now)?;
        throttle.refund(network, fee, now);
        throttle.remember(network, right);
        Ok(())
    }

    #[test]
    fn a_network_is_an_ipv4_address_or_an_ipv6_prefix_of_64_bits() {
        assert_eq!(network("192.0.2.1"), network("::ffff:192.0.2.1"));
        assert_ne!(network("192.0.2.1"), network("192.0.2.2"));
        assert_eq!(network("2001:db8:1:2::1"), network("2001:db8:1:2:ffff::"));
        assert_ne!(network("2001:db8:1:2::1"), network("2001:db8:1:3::1"));
    }

    #[test]
    fn ten_guesses_are_seen_at_once_and_then_one_per_second() {
        let (mut throttle, start) = (LoginThrottle::new(RATE), Instant::now());
        let (here, elsewhere) = (network("192.0.2.1"), network("192.0.2.2"));
        let seen = |throttle: &mut LoginThrottle, at: Instant| {
            (0..1000).filter(|n| throttle.begin(here, guess(*n), at).is_ok()).count()
        };
        assert_eq!(seen(&mut throttle, start), 10);
        assert_eq!(throttle.begin(here, guess(0), start), Err(Duration::from_secs(1)));
        for second in 1..100 {
            assert_eq!(seen(&mut throttle, start + Duration::from_secs(second)), 1);
        }
        assert_eq!(throttle.begin(elsewhere, guess(0), start), Ok(Fee::Paid));
    }

    #[test]
    fn right_tokens_and_expired_ones_are_not_guesses() {
        let (mut throttle, now) = (LoginThrottle::new(RATE), Instant::now());
        let here = network("192.0.2.1");
        for n in 0..1000 {
            let fee = throttle.begin(here, guess(n), now).unwrap();
            throttle.refund(here, fee, now);
        }
    }

    #[test]
    fn a_token_that_was_accepted_from_a_network_is_let_in_while_it_is_attacked() {
        let (mut throttle, now) = (LoginThrottle::new(RATE), Instant::now());
        let (here, elsewhere) = (network("192.0.2.1"), network("192.0.2.2"));
        let right = TokenDigest::of("right");
        log_in(&mut throttle, here, right, now).unwrap();
        for network in [here, elsewhere] {
            while throttle.begin(network, guess(0), now).is_ok() {}
        }
        for _ in 0..20 {
            log_in(&mut throttle, here, right, now).unwrap();
            // It took nothing, so nothing may be given back that a guess could take.
            assert!(throttle.begin(here, guess(0), now).is_err());
        }
        assert!(throttle.begin(elsewhere, right, now).is_err());
    }

    proptest! {
        /// However logins of several clients are mixed, no more guesses are seen than the rate allows.
        #[test]
        fn guesses_never_exceed_the_rate(
            steps in prop::collection::vec((0_u64..700, 0_u8..4), 1..200),
        ) {
            let (mut throttle, start) = (LoginThrottle::new(RATE), Instant::now());
            let (here, right) = (network("192.0.2.1"), TokenDigest::of("right"));
            let (mut elapsed, mut seen) = (0, 0);
            for (wait, step) in steps {
                elapsed += wait;
                let now = start + Duration::from_millis(elapsed);
                if step == 0 {
                    let _ = log_in(&mut throttle, here, right, now);
                } else if throttle.begin(here, guess(0), now).is_ok() {
                    seen += 1;
                }
            }
            prop_assert!(seen <= 10 + elapsed / 1000, "{seen} in {elapsed} ms");
        }
    }
}
