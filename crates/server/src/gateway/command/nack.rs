//! NACK: an event failed; it comes again later.

use std::time::Duration;

use prombus_bus::Refusal;
use prombus_proto::frame::{Corr, Nack};

use crate::gateway::answers::Due;
use crate::gateway::client::Client;

impl Client {
    pub(in crate::gateway) fn nack(
        &mut self,
        nack: Nack,
        corr: Option<Corr>,
    ) -> Result<(), Refusal> {
        let Nack { topic, group, id, reason, delay_ms } = nack;
        let known = self.subscribed(&topic, &group)?;
        let answer = known.subscription.nack(id, reason, delay_ms.map(Duration::from_millis));
        self.answers.push(Due::Nacked { answer, corr });
        Ok(())
    }
}
