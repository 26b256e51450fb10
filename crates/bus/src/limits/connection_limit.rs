//! The limits of a connection: its own buckets, and those of its principal.

use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use super::fair_bucket::{FairBucket, TokenUse};
use super::principals::{Principal, PrincipalLimit};
use super::{Deficit, LimitScope, LimitStatus, Limited, Rate, TokenBucket};

/// The limits of one connection, or none. Clones share them.
///
/// Whatever is taken here is taken from the connection and from its principal, or from neither.
#[derive(Clone, Debug)]
pub struct ConnectionLimit(Option<Arc<Mutex<Buckets>>>);

/// How many ids are looked up for a token: that costs far less than to store as many events.
const LOOKUPS_PER_TOKEN: usize = 100;

/// How many bytes of refused frames are parsed for a token.
const REFUSED_BYTES_PER_TOKEN: usize = 4 << 10;

/// Returns the tokens for looking up `count` ids.
pub(crate) const fn lookup_tokens(count: usize) -> u64 {
    count.div_ceil(LOOKUPS_PER_TOKEN) as u64
}

/// The buckets of a connection. Its principal's are locked after them, never before.
#[derive(Debug)]
struct Buckets {
    tokens: FairBucket,
    bytes: Option<TokenBucket>,
    /// `None` until the client is known.
    principal: Option<Arc<PrincipalLimit>>,
}

impl ConnectionLimit {
    /// Returns a limit of `rate` and of `bytes_per_sec`, or no limit if there is no `rate`.
    pub(crate) fn new(rate: Option<Rate>, bytes_per_sec: Option<u64>, now: Instant) -> Self {
        let bytes = bytes_per_sec.map(|bytes| TokenBucket::full(Rate::of_bytes(bytes), now));
        Self(rate.map(|rate| {
            let tokens = FairBucket::full(rate, now);
            Arc::new(Mutex::new(Buckets { tokens, bytes, principal: None }))
        }))
    }

    /// Takes `count` tokens for a request of the client, or none.
    ///
    /// # Errors
    ///
    /// The deficit, if the connection or its principal has fewer tokens.
    pub fn try_consume(&self, count: u64, now: Instant) -> Result<(), Deficit> {
        self.try_take(count, now).map_err(|limited| limited.deficit)
    }

    /// Takes `count` tokens for deliveries, or none.
    ///
    /// # Errors
    ///
    /// The deficit, if the connection or its principal has fewer tokens.
    pub fn try_deliver(&self, count: u64, now: Instant) -> Result<(), Deficit> {
        let taken = self.with(|buckets| buckets.take(TokenUse::Delivery, count, now));
        taken.unwrap_or(Ok(())).map_err(|limited| limited.deficit)
    }

    /// Like [`ConnectionLimit::try_consume`], but the error says whose tokens are missing.
    pub(crate) fn try_take(&self, count: u64, now: Instant) -> Result<(), Limited> {
        self.with(|buckets| buckets.take(TokenUse::Request, count, now)).unwrap_or(Ok(()))
    }

    /// Takes `bytes` of published events from the byte limits of the connection and its principal, or none.
    pub(crate) fn try_take_bytes(&self, bytes: u64, now: Instant) -> Result<(), Limited> {
        self.with(|buckets| buckets.take_bytes(bytes, now)).unwrap_or(Ok(()))
    }

    /// Takes what looking up `count` ids costs, which has been done already.
    ///
    /// What the connection lacks it owes, up to what a second refills: until it is paid, the connection gets
    /// no tokens. Its principal owes nothing, as others share it. What the principal lacks, the connection
    /// pays in its place.
    pub(crate) fn owe_lookups(&self, count: usize, now: Instant) {
        if count > 0 {
            self.owe(lookup_tokens(count), now);
        }
    }

    /// Charges the connection for `frames` of `bytes` that were parsed and refused, as
    /// `owe_lookups` does. Takes at least a token per frame. Returns how much longer a
    /// request waits for tokens because of that.
    pub fn owe_refused_frames(&self, frames: usize, bytes: usize, now: Instant) -> Duration {
        self.owe(bytes.div_ceil(REFUSED_BYTES_PER_TOKEN).max(frames) as u64, now)
    }

    /// Returns when the connection will have paid what it owes, or `None` if it owes nothing.
    #[must_use]
    pub fn pays_debt_at(&self, now: Instant) -> Option<Instant> {
        let debt = self.with(|buckets| buckets.tokens.debt(now))??;
        Some(now + debt)
    }

    /// Returns `count` tokens that were not used.
    pub fn give_back(&self, count: u64) {
        self.with(|buckets| {
            buckets.tokens.give_back(count);
            if let Some(principal) = &buckets.principal {
                principal.give_back(count);
            }
        });
    }

    /// Returns `bytes` that were not published after all.
    pub(crate) fn give_bytes_back(&self, bytes: u64) {
        self.with(|buckets| {
            if let Some(limit) = &mut buckets.bytes {
                limit.give_back(bytes);
            }
            if let Some(principal) = &buckets.principal {
                principal.give_bytes_back(bytes);
            }
        });
    }

    /// Returns the tokens of the connection that a request may take now, or `None` without a limit.
    #[must_use]
    pub fn status(&self, now: Instant) -> Option<LimitStatus> {
        self.with(|buckets| buckets.tokens.status(TokenUse::Request, now))
    }

    /// Returns how many tokens a request may take now, from the connection and its principal.
    #[must_use]
    pub fn available(&self, now: Instant) -> u64 {
        self.with(|buckets| buckets.available(TokenUse::Request, now)).unwrap_or(u64::MAX)
    }

    /// Returns how many tokens deliveries may take now, from the connection and its principal.
    #[must_use]
    pub fn deliverable(&self, now: Instant) -> u64 {
        self.with(|buckets| buckets.available(TokenUse::Delivery, now)).unwrap_or(u64::MAX)
    }

    /// Returns whose tokens it shares, once that is known.
    #[must_use]
    pub fn principal(&self) -> Option<Principal> {
        self.with(|buckets| buckets.principal.as_ref().map(|it| it.principal().clone()))?
    }

    /// Shares the limit that `find` returns from now on, unless it shares that of `principal` already.
    pub(super) fn share(&self, principal: &Principal, find: impl FnOnce() -> Arc<PrincipalLimit>) {
        self.with(|buckets| {
            if buckets.principal.as_ref().is_none_or(|known| known.principal() != principal) {
                buckets.principal = Some(find());
            }
        });
    }

    /// Returns `true` if both limit the same connection.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        match (&self.0, &other.0) {
            (Some(one), Some(other)) => Arc::ptr_eq(one, other),
            (None, None) => true,
            _ => false,
        }
    }

    pub(crate) const fn is_off(&self) -> bool {
        self.0.is_none()
    }

    fn owe(&self, count: u64, now: Instant) -> Duration {
        self.with(|buckets| buckets.owe(count, now)).unwrap_or_default()
    }

    fn with<T>(&self, act: impl FnOnce(&mut Buckets) -> T) -> Option<T> {
        let buckets = self.0.as_ref()?;
        Some(act(&mut buckets.lock()))
    }
}

impl Buckets {
    fn take(&mut self, usage: TokenUse, count: u64, now: Instant) -> Result<(), Limited> {
        let mut principal = self.principal.as_ref().map(|principal| principal.tokens());
        let mut buckets = [
            Some((&mut self.tokens, LimitScope::Connection)),
            principal.as_deref_mut().map(|tokens| (tokens, LimitScope::Principal)),
        ];
        let mut worst = None;
        for (tokens, scope) in buckets.iter_mut().flatten() {
            let Some(deficit) = tokens.deficit(usage, count, now) else { continue };
            if let Deficit::Wait(wait) = deficit {
                tokens.save(usage, count, wait, now);
            }
            worst = Limited::longer(worst, scope.limited(deficit));
        }
        if let Some(limited) = worst {
            return Err(limited);
        }
        for (tokens, _) in buckets.into_iter().flatten() {
            tokens.take(usage, count);
        }
        Ok(())
    }

    fn owe(&mut self, count: u64, now: Instant) -> Duration {
        // Others share the principal: it pays for no more than the connection does.
        let count = count.min(self.tokens.chargeable(now));
        let principal = self.principal.as_ref();
        let given = principal.map_or(count, |it| it.tokens().take_up_to(count, now));
        self.tokens.owe(count + (count - given), now)
    }

    fn take_bytes(&mut self, bytes: u64, now: Instant) -> Result<(), Limited> {
        let Some(limit) = &mut self.bytes else { return Ok(()) };
        limit
            .overdraw(bytes, now)
            .map_err(|deficit| LimitScope::ConnectionBytes.limited(deficit))?;
        let Some(principal) = &self.principal else { return Ok(()) };
        principal.take_bytes(bytes, now).map_err(|deficit| {
            limit.give_back(bytes);
            LimitScope::PrincipalBytes.limited(deficit)
        })
    }

    fn available(&mut self, usage: TokenUse, now: Instant) -> u64 {
        let own = self.tokens.status(usage, now).available;
        let of_principal = self.principal.as_ref().map(|it| it.tokens().status(usage, now));
        own.min(of_principal.map_or(u64::MAX, |status| status.available))
    }
}
