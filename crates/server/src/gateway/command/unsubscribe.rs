//! UNSUBSCRIBE: take part no longer; what is out goes to others at once.

use prombus_bus::Refusal;
use prombus_proto::frame::{Corr, Membership};

use crate::gateway::answers::Due;
use crate::gateway::client::Client;

impl Client {
    pub(in crate::gateway) fn unsubscribe(
        &mut self,
        which: Membership,
        corr: Option<Corr>,
    ) -> Result<(), Refusal> {
        self.subscribed(&which.topic, &which.group)?;
        if let Some(known) = self.subscriptions.remove(&(which.topic, which.group)) {
            self.answers.push(Due::Done { answer: known.subscription.end(), corr });
        }
        Ok(())
    }
}
