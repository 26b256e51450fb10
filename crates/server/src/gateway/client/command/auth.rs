//! AUTH: presents a token. May be repeated; the newest token counts.

use prombus_bus::Refusal;
use prombus_proto::ErrorCode;
use prombus_proto::frame::{Auth, Corr};

use crate::auth::{Action, Grant};
use crate::gateway::client::Client;

impl Client {
    pub(in crate::gateway::client) fn authenticate(
        &mut self,
        auth: &Auth,
        corr: Option<&Corr>,
    ) -> Result<(), Refusal> {
        let authenticator = &self.gateway.authenticator;
        let grant = match &auth.token {
            Some(token) => authenticator
                .check(token.secret(), self.now())
                .map_err(|bad| Refusal::new(ErrorCode::BadToken, bad.to_string()))?,
            None if authenticator.is_open() => Grant::unrestricted(),
            None => return Err(Refusal::new(ErrorCode::BadFrame, "token is missing".to_owned())),
        };
        let now = self.now();
        self.subscriptions
            .retain(|(topic, _), _| grant.authorize(Action::Subscribe(topic), || now).is_ok());
        // The previous token may have expired, which stopped deliveries.
        for active in self.subscriptions.values().filter(|active| !active.is_paused) {
            // No one waits for the reply.
            drop(active.subscription.resume());
        }
        self.gateway.bus.identify(&self.connection, &grant.principal_at(self.address));
        self.grant = Some(grant);
        self.answers.ok(corr);
        Ok(())
    }
}
