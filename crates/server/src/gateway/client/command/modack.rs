//! MODACK: extends or shortens a lease.

use std::time::Duration;

use prombus_bus::Refusal;
use prombus_proto::frame::{Corr, ModAck};

use crate::gateway::answers::PendingAnswer;
use crate::gateway::client::Client;

impl Client {
    pub(in crate::gateway::client) fn modack(
        &mut self,
        modack: ModAck,
        corr: &mut Option<Corr>,
    ) -> Result<(), Refusal> {
        let ModAck { topic, group, id, extend_ms } = modack;
        let active = self.active_subscription(&topic, &group)?;
        let reply = active.subscription.extend(id, Duration::from_millis(extend_ms));
        self.answers.push(PendingAnswer::Done { reply, corr: corr.take() });
        Ok(())
    }
}
