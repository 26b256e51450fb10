//! AUTH: say who this is. May be repeated; the newest token counts.

use prombus_bus::Refusal;
use prombus_proto::ErrorCode;
use prombus_proto::frame::{Auth, Corr};

use crate::auth::Action;
use crate::gateway::client::Client;

impl Client {
    pub(in crate::gateway) fn authenticate(
        &mut self,
        auth: &Auth,
        corr: Option<&Corr>,
    ) -> Result<(), Refusal> {
        let grant = self
            .gateway
            .authenticator
            .check(auth.token.secret(), self.now())
            .map_err(|bad| Refusal::new(ErrorCode::BadToken, bad.to_string()))?;
        let now = self.now();
        // What the new token does not allow ends; what an expired one had stopped goes on.
        self.subscriptions
            .retain(|(topic, _), _| grant.authorize(Action::Subscribe(topic), || now).is_ok());
        for known in self.subscriptions.values().filter(|known| !known.is_paused) {
            // Nobody waits for it.
            drop(known.subscription.resume());
        }
        self.grant = Some(grant);
        self.answers.ok(corr);
        Ok(())
    }

    /// Nothing more is delivered, until a new token comes.
    pub(in crate::gateway) fn deliver_nothing(&self) {
        for known in self.subscriptions.values() {
            // Nobody waits for it.
            drop(known.subscription.pause());
        }
    }
}
