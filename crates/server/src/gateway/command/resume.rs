//! RESUME: deliver again.

use prombus_bus::Refusal;
use prombus_proto::frame::{Corr, Membership};

use crate::gateway::answers::Due;
use crate::gateway::client::Client;

impl Client {
    pub(in crate::gateway) fn resume(
        &mut self,
        which: &Membership,
        corr: Option<Corr>,
    ) -> Result<(), Refusal> {
        let known = self.subscribed(&which.topic, &which.group)?;
        known.is_paused = false;
        let answer = known.subscription.resume();
        self.answers.push(Due::Done { answer, corr });
        Ok(())
    }
}
