//! NACK: reports that events failed, to be redelivered or dead-lettered.

use std::time::Duration;

use prombus_bus::{AfterNack, Refusal};
use prombus_proto::frame::{self, Corr, Nack};

use crate::gateway::answers::PendingAnswer;
use crate::gateway::client::Client;

impl Client {
    pub(in crate::gateway::client) fn nack(
        &mut self,
        nack: Nack,
        corr: &mut Option<Corr>,
    ) -> Result<(), Refusal> {
        let Nack { topic, group, ids, reason, next } = nack;
        let active = self.active_subscription(&topic, &group)?;
        let next = match next {
            frame::AfterNack::BackOff => AfterNack::BackOff,
            frame::AfterNack::DelayMs(ms) => AfterNack::Delay(Duration::from_millis(ms)),
            frame::AfterNack::Dead => AfterNack::DeadLetter,
        };
        let count = ids.as_slice().len();
        let reply = active.subscription.nack(ids.into_vec(), reason, next);
        self.answers.push(PendingAnswer::Nacked { reply, ids: count, corr: corr.take() });
        Ok(())
    }
}
