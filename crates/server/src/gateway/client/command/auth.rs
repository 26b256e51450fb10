//! AUTH: presents a token. May be repeated; the newest token counts.

use prombus_bus::Refusal;
use prombus_proto::frame::{Auth, Corr};

use crate::auth::{Action, Login, Standing};
use crate::gateway::client::Client;

/// How many tokens of an authenticated client may be rejected before its address counts.
const MAX_FAILED_RENEWALS: u32 = 3;

impl Client {
    pub(in crate::gateway::client) fn authenticate(
        &mut self,
        auth: &Auth,
        corr: Option<&Corr>,
    ) -> Result<(), Refusal> {
        let login =
            Login { token: auth.token.secret(), caller: self.caller, standing: self.standing() };
        let grant = self.gateway.log_in(login).inspect_err(|_| self.failed_logins += 1)?;
        self.failed_logins = 0;
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

    /// Returns whether the client may renew its token while others at its address guess. One that guesses
    /// itself may not.
    const fn standing(&self) -> Standing {
        if self.grant.is_some() && self.failed_logins < MAX_FAILED_RENEWALS {
            Standing::LoggedIn
        } else {
            Standing::Stranger
        }
    }
}
