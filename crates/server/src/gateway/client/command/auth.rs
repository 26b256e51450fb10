//! AUTH: presents a token. May be repeated; the newest token counts.

use prombus_bus::Refusal;
use prombus_proto::ErrorCode;
use prombus_proto::frame::{Auth, Corr};

use crate::auth::{Action, Credential, Grant, Login, Secret, Standing};
use crate::gateway::client::Client;
use crate::gateway::client::active_subscription::ActiveSubscription;

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
        let grant = match &auth.token {
            Some(token) => {
                let login = Login { token: token.secret(), caller: self.caller, standing };
                let grant = self.gateway.log_in(login)?;
                self.credential = Some(Credential::Token(Secret::from(token.secret())));
                grant
            }
            None if self.gateway.access().authenticator.is_open() => Grant::unrestricted(),
            None => return Err(Refusal::new(ErrorCode::BadFrame, "token is missing".to_owned())),
        };
        self.adopt(grant);
        self.answers.ok(corr);
        Ok(())
    }

    /// Checks what the client presented again, after a reload. Its rights may have ended or changed.
    pub(in crate::gateway) fn check_rights_again(&mut self) {
        let access = self.gateway.access();
        match access.authenticator.check_again(self.credential.as_ref(), self.now()) {
            Some(grant) => self.adopt(grant),
            None => {
                self.grant = None;
                self.stop_deliveries();
            }
        }
    }

    /// Ends the subscriptions that the grant does not allow.
    fn adopt(&mut self, grant: Grant) {
        let now = self.now();
        self.subscriptions.retain(|(topic, group), _| {
            grant.authorize(Action::Consume { topic, group }, || now).is_ok()
        });
        // The previous token may have expired, which stopped deliveries.
        self.subscriptions.values().for_each(ActiveSubscription::resume_unless_paused);
        self.gateway.bus.identify(&self.connection, &grant.principal_at(self.caller.address));
        self.grant = Some(grant);
    }
}
