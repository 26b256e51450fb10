//! PAUSE: stops deliveries to a subscription. Leases keep their deadlines.

use prombus_bus::Refusal;
use prombus_proto::frame::{Corr, Membership};

use crate::gateway::answers::PendingAnswer;
use crate::gateway::client::Client;

impl Client {
    pub(in crate::gateway::client) fn pause(
        &mut self,
        membership: &Membership,
        corr: &mut Option<Corr>,
    ) -> Result<(), Refusal> {
        let active = self.active_subscription(&membership.topic, &membership.group)?;
        let reply = active.pause();
        self.answers.push(PendingAnswer::Done { reply, corr: corr.take() });
        Ok(())
    }
}
