//! NACK: reports that an event failed, and asks for its redelivery.

use std::time::Duration;

use prombus_bus::Refusal;
use prombus_proto::frame::{Corr, Nack};

use crate::gateway::answers::PendingAnswer;
use crate::gateway::client::Client;

impl Client {
    pub(in crate::gateway::client) fn nack(
        &mut self,
        nack: Nack,
        corr: &mut Option<Corr>,
    ) -> Result<(), Refusal> {
        let Nack { topic, group, id, reason, delay_ms } = nack;
        let active = self.active_subscription(&topic, &group)?;
        let reply = active.subscription.nack(id, reason, delay_ms.map(Duration::from_millis));
        self.answers.push(PendingAnswer::Nacked { reply, corr: corr.take() });
        Ok(())
    }
}
