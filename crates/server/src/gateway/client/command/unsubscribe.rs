//! UNSUBSCRIBE: leaves a group. Its leased events are redelivered to other members immediately.

use prombus_bus::Refusal;
use prombus_proto::frame::{Corr, Membership};

use crate::gateway::answers::PendingAnswer;
use crate::gateway::client::Client;

impl Client {
    pub(in crate::gateway::client) fn unsubscribe(
        &mut self,
        membership: Membership,
        corr: &mut Option<Corr>,
    ) -> Result<(), Refusal> {
        let Membership { topic, group } = membership;
        self.active_subscription(&topic, &group)?;
        if let Some(active) = self.subscriptions.remove(&(topic, group)) {
            let reply = active.subscription.end();
            self.answers.push(PendingAnswer::Done { reply, corr: corr.take() });
        }
        Ok(())
    }
}
