//! SEEN: looks up which events a group has marked as handled.

use std::sync::Arc;

use prombus_bus::Refusal;
use prombus_proto::frame::{Corr, Seen};

use crate::auth::Action;
use crate::gateway::answers::{LaterAnswer, PendingAnswer};
use crate::gateway::client::Client;

impl Client {
    pub(in crate::gateway::client) fn seen(
        &mut self,
        seen: Seen,
        corr: &mut Option<Corr>,
    ) -> Result<(), Refusal> {
        let Seen { topic, group, ids } = seen;
        self.check(Action::Consume { topic: &topic, group: &group })?;
        self.gateway.bus.charge_lookup(&self.connection, ids.as_slice().len())?;
        let gateway = Arc::clone(&self.gateway);
        let seen =
            LaterAnswer::new(async move { gateway.bus.seen(&topic, &group, ids.into_vec()).await });
        self.answers.push(PendingAnswer::Seen { seen, corr: corr.take() });
        Ok(())
    }
}
