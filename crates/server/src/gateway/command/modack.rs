//! MODACK: a lease ends later, or earlier.

use std::time::Duration;

use prombus_bus::Refusal;
use prombus_proto::frame::{Corr, ModAck};

use crate::gateway::answers::Due;
use crate::gateway::client::Client;

impl Client {
    pub(in crate::gateway) fn modack(
        &mut self,
        modack: ModAck,
        corr: Option<Corr>,
    ) -> Result<(), Refusal> {
        let ModAck { topic, group, id, extend_ms } = modack;
        let known = self.subscribed(&topic, &group)?;
        let answer = known.subscription.extend(id, Duration::from_millis(extend_ms));
        self.answers.push(Due::Done { answer, corr });
        Ok(())
    }
}
