//! Tickets: what a web page presents where it cannot present a token.
//!
//! A browser's `EventSource` and `WebSocket` cannot send an `Authorization` header, and a token in a URL ends up in
//! logs of proxies. So a page asks for a ticket with its token, and puts that into the URL: it works once, soon,
//! and at the gateway that issued it.

use std::collections::{HashMap, VecDeque};
use std::time::{Duration, Instant};

use aws_lc_rs::rand;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use parking_lot::Mutex;
use prombus_bus::{Principal, Refusal};
use prombus_proto::ErrorCode;

use super::credential::Credential;
use super::token_digest::TokenDigest;

/// How long a ticket can be used.
pub const LIFETIME: Duration = Duration::from_secs(30);
/// How many tickets a principal may get in that time, used or not.
pub const MAX_PER_PRINCIPAL: usize = 100;
/// How many tickets may be issued in that time, used or not.
pub const MAX_TICKETS: usize = 10_000;
/// Why a ticket is refused. A client need not know which of these it is.
pub const INVALID: &str =
    "the ticket is unknown, used or too old; ask for another one with POST /ticket";
/// As random as the key of a cipher: nobody guesses a ticket.
const TICKET_BYTES: usize = 32;

/// The tickets that were issued lately.
#[derive(Default)]
pub struct Tickets(Mutex<Issued>);

#[derive(Default)]
struct Issued {
    /// By the digest of the ticket. What the time of a look-up reveals about a digest says nothing about a ticket.
    unused: HashMap<TokenDigest, Credential>,
    per_principal: HashMap<Principal, usize>,
    /// All that count against the limits, oldest first.
    recent: VecDeque<Recent>,
}

struct Recent {
    ends_at: Instant,
    digest: TokenDigest,
    principal: Principal,
}

impl Tickets {
    /// Returns a ticket for the rights of what `principal` presented.
    ///
    /// # Errors
    ///
    /// `limit_exceeded` if there are too many.
    pub fn issue(
        &self,
        credential: Credential,
        principal: Principal,
        now: Instant,
    ) -> Result<String, Refusal> {
        let ticket = random_ticket()?;
        let mut issued = self.0.lock();
        issued.forget_ended(now);
        let own = issued.per_principal.get(&principal).copied().unwrap_or_default();
        if own >= MAX_PER_PRINCIPAL || issued.recent.len() >= MAX_TICKETS {
            let oldest = issued
                .recent
                .iter()
                .find(|recent| issued.recent.len() >= MAX_TICKETS || recent.principal == principal);
            return Err(too_many(oldest.map(|oldest| oldest.ends_at - now)));
        }
        let (digest, ends_at) = (TokenDigest::of(&ticket), now + LIFETIME);
        issued.unused.insert(digest, credential);
        *issued.per_principal.entry(principal.clone()).or_default() += 1;
        issued.recent.push_back(Recent { ends_at, digest, principal });
        Ok(ticket)
    }

    /// Returns what the holder of the ticket presented for it, unless it was used before or is too old.
    pub fn redeem(&self, ticket: &str, now: Instant) -> Option<Credential> {
        let digest = TokenDigest::of(ticket);
        let mut issued = self.0.lock();
        issued.forget_ended(now);
        issued.unused.remove(&digest)
    }
}

impl Issued {
    fn forget_ended(&mut self, now: Instant) {
        while let Some(ended) = self.recent.pop_front_if(|recent| recent.ends_at <= now) {
            self.unused.remove(&ended.digest);
            if let Some(count) = self.per_principal.get_mut(&ended.principal) {
                *count -= 1;
                if *count == 0 {
                    self.per_principal.remove(&ended.principal);
                }
            }
        }
    }
}

/// Returns a ticket that nobody holds. Its characters need no encoding in a URL.
pub fn random_ticket() -> Result<String, Refusal> {
    let mut bytes = [0; TICKET_BYTES];
    rand::fill(&mut bytes).map_err(|_| {
        let message = "the system has no random numbers; try again later";
        Refusal::new(ErrorCode::Internal, message)
    })?;
    Ok(URL_SAFE_NO_PAD.encode(bytes))
}

fn too_many(wait: Option<Duration>) -> Refusal {
    let message = format!(
        "too many tickets: a client gets {MAX_PER_PRINCIPAL} in {} s, and all clients together \
         {MAX_TICKETS}",
        LIFETIME.as_secs()
    );
    Refusal { retry_after: wait, ..Refusal::new(ErrorCode::LimitExceeded, message) }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;
    use crate::auth::Secret;

    fn token(text: &str) -> Credential {
        Credential::Token(Secret::from(text))
    }

    fn principal(name: &str) -> Principal {
        Principal::Token(name.into())
    }

    fn revealed(credential: Option<Credential>) -> Option<String> {
        match credential? {
            Credential::Token(token) => Some(token.reveal().to_owned()),
            Credential::Certificate(_) => None,
        }
    }

    #[test]
    fn a_ticket_works_once_and_until_it_ends() {
        let (tickets, start) = (Tickets::default(), Instant::now());
        let issue = |name: &str| tickets.issue(token(name), principal(name), start).unwrap();
        let (one, two, three) = (issue("a"), issue("b"), issue("c"));
        assert_eq!(revealed(tickets.redeem(&one, start)).as_deref(), Some("a"));
        assert!(tickets.redeem(&one, start).is_none(), "it was used");
        let last = start + LIFETIME - Duration::from_millis(1);
        assert_eq!(revealed(tickets.redeem(&two, last)).as_deref(), Some("b"));
        assert!(tickets.redeem(&three, start + LIFETIME).is_none(), "it has ended");
        for other in ["", "a", &random_ticket().unwrap(), &one.to_uppercase()] {
            assert!(tickets.redeem(other, start).is_none(), "{other}");
        }
        assert!(tickets.0.lock().unused.is_empty());
    }

    #[test]
    fn tickets_differ_and_fit_into_urls() {
        let tickets: HashSet<_> = (0..1000).map(|_| random_ticket().unwrap()).collect();
        assert_eq!(tickets.len(), 1000);
        let is_plain = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
        assert!(tickets.iter().all(|it| it.len() == 43 && it.chars().all(is_plain)));
    }

    /// Used tickets count as well, so that the memory is bounded whatever clients do.
    #[test]
    fn their_number_is_limited_per_principal_and_in_total() {
        let (tickets, start) = (Tickets::default(), Instant::now());
        let issue = |name: &str, now| tickets.issue(token("t"), principal(name), now);
        for n in 0..MAX_PER_PRINCIPAL {
            let ticket = issue("greedy", start).unwrap();
            if n % 2 == 0 {
                assert!(tickets.redeem(&ticket, start).is_some());
            }
        }
        let later = start + Duration::from_secs(10);
        let refusal = issue("greedy", later).unwrap_err();
        assert_eq!(refusal.code, ErrorCode::LimitExceeded);
        assert_eq!(refusal.retry_after, Some(Duration::from_secs(20)));
        for n in 0..MAX_TICKETS - MAX_PER_PRINCIPAL {
            issue(&format!("other {}", n / MAX_PER_PRINCIPAL), later).unwrap();
        }
        assert_eq!(issue("one more", later).unwrap_err().code, ErrorCode::LimitExceeded);
        assert_eq!(tickets.0.lock().recent.len(), MAX_TICKETS);
        // The first ones have ended.
        issue("greedy", start + LIFETIME).unwrap();
        issue("one more", start + LIFETIME).unwrap();
        let everything_ended = later + LIFETIME * 2;
        assert!(tickets.redeem("", everything_ended).is_none());
        let issued = tickets.0.lock();
        assert!(issued.recent.is_empty() && issued.unused.is_empty());
        assert!(issued.per_principal.is_empty());
    }
}
