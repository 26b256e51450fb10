//! MARK: records that a group has handled events.

use std::time::Duration;

use prombus_bus::{DEFAULT_MARK_TTL, Refusal};
use prombus_proto::Timestamp;
use prombus_proto::frame::{AckMark, Corr, Mark};

use crate::auth::Action;
use crate::gateway::answers::PendingAnswer;
use crate::gateway::client::Client;

impl Client {
    pub(in crate::gateway::client) async fn mark(
        &mut self,
        mark: &Mark,
        corr: &mut Option<Corr>,
    ) -> Result<(), Refusal> {
        let Mark { topic, group, ids, ttl_ms } = mark;
        self.check(Action::Consume { topic, group })?;
        let bus = &self.gateway.bus;
        let ids = ids.as_slice();
        let commit = bus.mark(&self.connection, topic, group, ids, ttl(*ttl_ms)).await?;
        self.answers.push(PendingAnswer::Marked { commit, corr: corr.take() });
        Ok(())
    }

    /// Returns when the marks of an ACK expire.
    pub(in crate::gateway::client) fn marked_until(&self, mark: AckMark) -> Timestamp {
        self.gateway.bus.marked_until(ttl(mark.ttl_ms))
    }
}

fn ttl(ms: Option<u64>) -> Duration {
    ms.map_or(DEFAULT_MARK_TTL, Duration::from_millis)
}
