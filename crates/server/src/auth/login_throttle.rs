//! Bounds how often tokens can be guessed.
//!
//! Each network has a bucket, from which a guess takes a token. While it is empty, logins are refused
//! unseen. Clients that have logged in have buckets of their own. An attacker can do little to others at
//! the same address (behind one NAT or proxy): tokens that were accepted from a network lately are not
//! throttled there.

use std::time::{Duration, Instant};

use prombus_bus::{Deficit, Network, Rate, TokenBucket};

use super::identity::Identity;
use super::recent_map::RecentMap;
use super::token_digest::TokenDigest;

/// Buckets that are remembered, at least.
const BUCKETS: usize = 4096;
/// Pairs of a network and a token that are remembered, at least.
const ACCEPTED: usize = 8192;

/// The owner of the bucket that pays for a guess.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum Guesser {
    Stranger(Network),
    /// A client that renews its token: neither can its neighbours keep it from that, nor can it guess
    /// faster by connecting again.
    Client(Identity),
}

#[derive(Debug)]
pub(super) struct LoginThrottle {
    rate: Rate,
    buckets: RecentMap<Guesser, TokenBucket>,
    accepted: RecentMap<(Network, TokenDigest), ()>,
}

impl LoginThrottle {
    pub(super) fn new(rate: Rate) -> Self {
        let (buckets, accepted) = (RecentMap::new(BUCKETS), RecentMap::new(ACCEPTED));
        Self { rate, buckets, accepted }
    }

    /// Checks that the server may look at a login.
    ///
    /// # Errors
    ///
    /// The time until it may.
    pub(super) fn admit(
        &mut self,
        guesser: &Guesser,
        network: Network,
        digest: TokenDigest,
        now: Instant,
    ) -> Result<(), Duration> {
        let deficit = self.buckets.get(guesser).and_then(|bucket| bucket.deficit(1, now));
        match deficit {
            None => Ok(()),
            Some(_) if self.accepted.get(&(network, digest)).is_some() => Ok(()),
            Some(Deficit::Wait(time)) => Err(time),
            Some(Deficit::Never) => Err(Duration::MAX),
        }
    }

    /// Takes the token of a guess.
    ///
    /// Not when it is admitted, although threads that check tokens at the same moment may then look at
    /// one guess each: as many right tokens at that moment must not keep each other out.
    pub(super) fn guessed(&mut self, guesser: &Guesser, now: Instant) {
        if self.buckets.get(guesser).is_none() {
            self.buckets.insert(guesser.clone(), TokenBucket::full(self.rate, now));
        }
        if let Some(bucket) = self.buckets.get(guesser) {
            // An empty bucket stays empty.
            let _ = bucket.try_consume(1, now);
        }
    }

    /// Remembers a token that was accepted.
    pub(super) fn remember(&mut self, network: Network, digest: TokenDigest) {
        self.accepted.insert((network, digest), ());
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

    /// Presents a wrong token.
    fn guess_once(
        throttle: &mut LoginThrottle,
        guesser: &Guesser,
        network: Network,
        now: Instant,
    ) -> Result<(), Duration> {
        throttle.admit(guesser, network, TokenDigest::of("wrong"), now)?;
        throttle.guessed(guesser, now);
        Ok(())
    }

    fn guess_from(
        throttle: &mut LoginThrottle,
        network: Network,
        now: Instant,
    ) -> Result<(), Duration> {
        guess_once(throttle, &Guesser::Stranger(network), network, now)
    }

    fn log_in(
        throttle: &mut LoginThrottle,
        network: Network,
        right: TokenDigest,
        now: Instant,
    ) -> Result<(), Duration> {
        throttle.admit(&Guesser::Stranger(network), network, right, now)?;
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
            (0..1000).filter(|_| guess_from(throttle, here, at).is_ok()).count()
        };
        assert_eq!(seen(&mut throttle, start), 10);
        assert_eq!(guess_from(&mut throttle, here, start), Err(Duration::from_secs(1)));
        for second in 1..100 {
            assert_eq!(seen(&mut throttle, start + Duration::from_secs(second)), 1);
        }
        assert_eq!(guess_from(&mut throttle, elsewhere, start), Ok(()));
    }

    #[test]
    fn right_tokens_are_not_throttled() {
        let (mut throttle, now) = (LoginThrottle::new(RATE), Instant::now());
        for n in 0..1000 {
            let right = TokenDigest::of(&format!("right {n}"));
            log_in(&mut throttle, network("192.0.2.1"), right, now).unwrap();
        }
    }

    #[test]
    fn a_token_that_was_accepted_from_a_network_is_let_in_while_it_is_attacked() {
        let (mut throttle, now) = (LoginThrottle::new(RATE), Instant::now());
        let (here, elsewhere) = (network("192.0.2.1"), network("192.0.2.2"));
        let right = TokenDigest::of("right");
        log_in(&mut throttle, here, right, now).unwrap();
        for network in [here, elsewhere] {
            while guess_from(&mut throttle, network, now).is_ok() {}
        }
        for _ in 0..20 {
            log_in(&mut throttle, here, right, now).unwrap();
            // That lets no guess in.
            assert!(guess_from(&mut throttle, here, now).is_err());
        }
        assert!(log_in(&mut throttle, elsewhere, right, now).is_err());
    }

    #[test]
    fn a_client_that_has_logged_in_has_a_bucket_of_its_own() {
        let (mut throttle, now) = (LoginThrottle::new(RATE), Instant::now());
        let here = network("192.0.2.1");
        while guess_from(&mut throttle, here, now).is_ok() {}
        for name in ["a", "b"] {
            let client = Guesser::Client(Identity::Token(name.into()));
            let seen = (0..100).filter(|_| guess_once(&mut throttle, &client, here, now).is_ok());
            assert_eq!(seen.count(), 10);
        }
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
                } else if guess_from(&mut throttle, here, now).is_ok() {
                    seen += 1;
                }
            }
            prop_assert!(seen <= 10 + elapsed / 1000, "{seen} in {elapsed} ms");
        }
    }
}
