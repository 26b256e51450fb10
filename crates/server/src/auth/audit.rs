//! The audit log: who logged in, who was refused, who changed what. Its lines have the target `audit` and
//! contain no token.

use std::fmt::Display;
use std::hash::Hash;
use std::net::IpAddr;
use std::time::Instant;

use parking_lot::Mutex;
use prombus_bus::{LinePace, Network, PacedLine, Transport};
use prombus_proto::Topic;

use super::action::{Action, ActionKind};
use super::identity::Identity;

/// The target of the lines, for `log.level`.
pub const TARGET: &str = "audit";
/// Lines per second that differ in more than their count. Fewer about failed logins: an attacker who has many
/// addresses must not fill the log.
const MAX_LINES: usize = 4096;
const MAX_FAILED_LOGINS: usize = 100;

/// Where a client is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Caller {
    pub address: IpAddr,
    pub transport: Transport,
}

/// Writes the lines. Attackers and clients in a loop cause one line per second, with a count.
#[derive(Debug)]
pub struct Audit {
    lines: Mutex<LinePace<LineKind, ()>>,
    failed_logins: Mutex<LinePace<Network, ()>>,
}

/// Lines of one kind are counted together.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum LineKind {
    Login(Identity, IpAddr),
    Refusal(Identity, ActionKind),
}

impl Default for Audit {
    fn default() -> Self {
        let lines = Mutex::new(LinePace::new(MAX_LINES));
        Self { lines, failed_logins: Mutex::new(LinePace::new(MAX_FAILED_LOGINS)) }
    }
}

impl Audit {
    pub fn login(&self, identity: &Identity, caller: Caller, now: Instant) {
        let kind = LineKind::Login(identity.clone(), caller.address);
        if let Some(count) = due(&self.lines, kind, now) {
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
        if let Some(count) = due(&self.failed_logins, Network::of(caller.address), now) {
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
        if let Some(count) = due(&self.lines, kind, now) {
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

    /// Records an operation on the whole server, such as a backup. These lines are never left out.
    pub fn administered(&self, identity: &Identity, caller: Caller, operation: &str) {
        tracing::info!(
            target: TARGET,
            principal = identity.name(),
            kind = identity.kind(),
            address = %caller.address,
            transport = caller.transport.name(),
            operation,
            "administered"
        );
    }
}

/// Returns how many lines of this kind the next one stands for, or `None` if it is too early for it. Says how many
/// of other kinds were left out because there were too many kinds.
fn due<K: Clone + Eq + Hash>(pace: &Mutex<LinePace<K, ()>>, kind: K, now: Instant) -> Option<u64> {
    let (line, others) = {
        let mut pace = pace.lock();
        let line = pace.record(kind, 1, now, || ())?;
        (line, pace.take_others())
    };
    if let Some(PacedLine::Others { count }) = others {
        tracing::warn!(target: TARGET, count, "left out lines of other clients: there were too many");
    }
    match line {
        PacedLine::Repeated { count, .. } | PacedLine::Others { count } => Some(count),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn writes_one_line_of_a_kind_per_second_with_a_count() {
        let (audit, start) = (Audit::default(), Instant::now());
        let refusal = |name: &str, kind| LineKind::Refusal(Identity::Token(name.into()), kind);
        let at = |ms| start + Duration::from_millis(ms);
        let due_at = |kind, ms| due(&audit.lines, kind, at(ms));
        let due = |name, ms| due_at(refusal(name, ActionKind::Publish), ms);
        assert_eq!(due("a", 0), Some(1));
        assert_eq!((due("a", 1), due("a", 999)), (None, None));
        assert_eq!(due("b", 999), Some(1));
        assert_eq!(due_at(refusal("a", ActionKind::Read), 999), Some(1));
        assert_eq!(due("a", 1000), Some(3));
        assert_eq!((due("a", 1999), due("a", 2000)), (None, Some(2)));
    }
}
