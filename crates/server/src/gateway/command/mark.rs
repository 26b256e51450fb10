//! MARK: a group has handled events.

use std::time::Duration;

use prombus_bus::{DEFAULT_MARK_TTL, Refusal};
use prombus_proto::frame::{Corr, Mark};

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
}

/// How long a mark is kept that says so, or does not.
pub(super) fn ttl(ms: Option<u64>) -> Duration {
    ms.map_or(DEFAULT_MARK_TTL, Duration::from_millis)
}
