//! AUTH: presents a token. May be repeated; the newest token counts.

use prombus_bus::Refusal;
use prombus_proto::frame::{Auth, Corr};

use crate::auth::{Action, Login, Standing};
use crate::gateway::client::Client;

impl Client {
    pub(in crate::gateway::client) fn authenticate(
        &mut self,
        auth: &Auth,
        corr: Option<&Corr>,
    ) -> Result<(), Refusal> {
        let standing = match &self.grant {
            Some(grant) => Standing::LoggedIn(&grant.identity),
            None => Standing::Stranger,
        };
        let login = Login { token: auth.token.secret(), caller: self.caller, standing };
        let grant = self.gateway.log_in(login)?;
        let now = self.now();
        self.subscriptions.retain(|(topic, group), _| {
            grant.authorize(Action::Consume { topic, group }, || now).is_ok()
        });
        // The previous token may have expired, which stopped deliveries.
        for active in self.subscriptions.values().filter(|active| !active.is_paused) {
            // No one waits for the reply.
            drop(active.subscription.resume());
        }
        self.grant = Some(grant);
        self.answers.ok(corr);
        Ok(())
    }
}
