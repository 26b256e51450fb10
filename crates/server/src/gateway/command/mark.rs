//! MARK: a group has handled events.

use std::time::Duration;

use prombus_bus::{DEFAULT_MARK_TTL, Refusal};
use prombus_proto::Timestamp;
use prombus_proto::frame::{AckMark, Corr, Mark};

use crate::auth::Action;
use crate::gateway::answers::Due;
use crate::gateway::client::Client;

impl Client {
    pub(in crate::gateway) async fn mark(
        &mut self,
        mark: &Mark,
        corr: Option<Corr>,
    ) -> Result<(), Refusal> {
        let Mark { topic, group, ids, ttl_ms } = mark;
        self.check(Action::Subscribe(topic))?;
        let bus = &self.gateway.bus;
        let ids = ids.as_slice();
        let submitted = bus.mark(&self.connection, topic, group, ids, ttl(*ttl_ms)).await?;
        self.answers.push(Due::Marked { submitted, corr });
        Ok(())
    }

    /// Until when the mark of an ACK is kept.
    pub(in crate::gateway) fn marked_until(&self, mark: AckMark) -> Timestamp {
        self.gateway.bus.marked_until(ttl(mark.ttl_ms))
    }
}

/// How long a mark is kept that says so, or does not.
fn ttl(ms: Option<u64>) -> Duration {
    ms.map_or(DEFAULT_MARK_TTL, Duration::from_millis)
}
