//! SEEN: which events a group has marked as handled.

use std::sync::Arc;

use prombus_bus::Refusal;
use prombus_proto::frame::{Corr, Seen};

use crate::auth::Action;
use crate::gateway::answers::{Due, Looking};
use crate::gateway::client::Client;

impl Client {
    pub(in crate::gateway) fn seen(
        &mut self,
        seen: Seen,
        corr: Option<Corr>,
    ) -> Result<(), Refusal> {
        let Seen { topic, group, ids } = seen;
        self.check(Action::Subscribe(&topic))?;
        let gateway = Arc::clone(&self.gateway);
        let looking =
            Looking::new(async move { gateway.bus.seen(&topic, &group, ids.into_vec()).await });
        self.answers.push(Due::Seen { looking, corr });
        Ok(())
    }
}
