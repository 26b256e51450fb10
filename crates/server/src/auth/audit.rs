//! The audit log: who logged in, who was refused, who changed what. Its lines have the target `audit` and
//! contain no token.

use std::fmt::Display;
use std::net::IpAddr;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use prombus_bus::{Network, Transport};
use prombus_proto::Topic;

use super::action::{Action, ActionKind};
use super::identity::Identity;
use super::recent_map::RecentMap;

/// The target of the lines, for `log.level`.
pub const TARGET: &str = "audit";
/// Lines that differ in nothing that matters are written this often.
const INTERVAL: Duration = Duration::from_secs(1);
/// Kinds of lines that are remembered, at least.
const LINES: usize = 4096;

/// Where a client is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Caller {
    pub address: IpAddr,
    pub transport: Transport,
}

/// Writes the lines. Attackers and clients in a loop cause one line per second, with a count.
#[derive(Debug)]
pub struct Audit {
    recent: Mutex<RecentMap<LineKind, Recent>>,
}

/// Lines of one kind are counted together.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum LineKind {
    Login(Identity, IpAddr),
    FailedLogin(Network),
    Refusal(Identity, ActionKind),
}

#[derive(Debug)]
struct Recent {
    written: Instant,
    /// Those since then.
    unwritten: u64,
}

impl Default for Audit {
    fn default() -> Self {
        Self { recent: Mutex::new(RecentMap::new(LINES)) }
    }
}

impl Audit {
    pub fn login(&self, identity: &Identity, caller: Caller, now: Instant) {
        let kind = LineKind::Login(identity.clone(), caller.address);
        if let Some(count) = self.due(kind, now) {
            tracing::info!(
                target: TARGET,
                principal = identity.name(),
                kind = identity.kind(),
                address = %caller.address,
                transport = caller.transport.name(),
                count,
                "login"
            );
        }
    }

    /// Records a login that was refused for `reason`, which must not reveal the token.
    pub fn failed_login(&self, caller: Caller, reason: &dyn Display, now: Instant) {
        if let Some(count) = self.due(LineKind::FailedLogin(Network::of(caller.address)), now) {
            tracing::warn!(
                target: TARGET,
                address = %caller.address,
                transport = caller.transport.name(),
                %reason,
                count,
                "login refused"
            );
        }
    }

    /// Records an action that a valid token does not allow.
    pub fn refused(&self, identity: &Identity, caller: Caller, action: Action<'_>, now: Instant) {
        let kind = LineKind::Refusal(identity.clone(), action.kind());
        if let Some(count) = self.due(kind, now) {
            tracing::warn!(
                target: TARGET,
                principal = identity.name(),
                kind = identity.kind(),
                address = %caller.address,
                transport = caller.transport.name(),
                action = action.kind().as_str(),
                topic = action.topic().map(Topic::as_str),
                group = action.group().map(prombus_proto::Group::as_str),
                count,
                "forbidden"
            );
        }
    }

    /// Records a change by an administrator. These lines are never left out.
    pub fn changed(&self, identity: &Identity, caller: Caller, topic: &Topic, change: &str) {
        tracing::info!(
            target: TARGET,
            principal = identity.name(),
            kind = identity.kind(),
            address = %caller.address,
            transport = caller.transport.name(),
            topic = topic.as_str(),
            change,
            "changed"
        );
    }

    /// Returns how many lines of this kind the next one stands for, or `None` if it is too early for it.
    fn due(&self, kind: LineKind, now: Instant) -> Option<u64> {
        let mut recent = self.recent.lock();
        match recent.get(&kind) {
            Some(last) if now.saturating_duration_since(last.written) < INTERVAL => {
                last.unwritten += 1;
                None
            }
            Some(last) => {
                let count = last.unwritten + 1;
                *last = Recent { written: now, unwritten: 0 };
                Some(count)
            }
            None => {
                recent.insert(kind, Recent { written: now, unwritten: 0 });
                Some(1)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn writes_one_line_of_a_kind_per_second_with_a_count() {
        let (audit, start) = (Audit::default(), Instant::now());
        let refusal = |name: &str, kind| LineKind::Refusal(Identity::Token(name.into()), kind);
        let at = |ms| start + Duration::from_millis(ms);
        let due = |name, ms| audit.due(refusal(name, ActionKind::Publish), at(ms));
        assert_eq!(due("a", 0), Some(1));
        assert_eq!((due("a", 1), due("a", 999)), (None, None));
        assert_eq!(due("b", 999), Some(1));
        assert_eq!(audit.due(refusal("a", ActionKind::Read), at(999)), Some(1));
        assert_eq!(due("a", 1000), Some(3));
        assert_eq!((due("a", 1999), due("a", 2000)), (None, Some(2)));
    }
}
