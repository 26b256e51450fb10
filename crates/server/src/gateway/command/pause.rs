//! PAUSE: deliver nothing more for now; what is out keeps its deadline.

use prombus_bus::Refusal;
use prombus_proto::frame::{Corr, Membership};

use crate::gateway::answers::Due;
use crate::gateway::client::Client;

impl Client {
    pub(in crate::gateway) fn pause(
        &mut self,
        which: &Membership,
        corr: Option<Corr>,
    ) -> Result<(), Refusal> {
        let known = self.subscribed(&which.topic, &which.group)?;
        known.is_paused = true;
        let answer = known.subscription.pause();
        self.answers.push(Due::Done { answer, corr });
        Ok(())
    }
}
