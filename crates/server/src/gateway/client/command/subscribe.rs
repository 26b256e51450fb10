//! SUBSCRIBE: joins a group.

use std::collections::hash_map::Entry;
use std::time::Duration;

use prombus_bus::{Refusal, StartAt, SubscribeOptions};
use prombus_proto::ErrorCode;
use prombus_proto::frame::{Corr, StartFrom, Subscribe};

use crate::auth::Action;
use crate::gateway::answers::{AnsweredSubscribe, PendingAnswer};
use crate::gateway::client::Client;
use crate::gateway::client::active_subscription::ActiveSubscription;

impl Client {
    pub(in crate::gateway::client) fn subscribe(
        &mut self,
        subscribe: Subscribe,
        corr: &mut Option<Corr>,
    ) -> Result<(), Refusal> {
        let Subscribe { topic, group, opts } = subscribe;
        self.check(Action::Consume { topic: &topic, group: &group })?;
        let key = (topic, group);
        if self.subscriptions.contains_key(&key) {
            let (topic, group) = &key;
            let message = format!("this connection already subscribes to {group} on {topic}");
            return Err(Refusal::new(ErrorCode::AlreadySubscribed, message));
        }
        let max = self.settings().max_subscriptions;
        if self.subscriptions.len() >= max {
            let message = format!("a connection has at most {max} subscriptions");
            return Err(Refusal::new(ErrorCode::BadFrame, message));
        }
        let options = SubscribeOptions {
            start: match opts.from {
                StartFrom::Latest => StartAt::Latest,
                StartFrom::Earliest => StartAt::Earliest,
                StartFrom::Ts(ts) => StartAt::Time(ts),
                StartFrom::AfterId(id) => StartAt::AfterId(id),
            },
            max_in_flight: opts.max_in_flight,
            ack_timeout: opts.ack_timeout_ms.map(Duration::from_millis),
            max_attempts: opts.max_attempts,
        };
        let bus = &self.gateway.bus;
        bus.charge(&self.connection, 1)?.keep();
        let (subscription, joined) = bus.join(&self.connection, &key.0, &key.1, options)?;
        let (corr, member) = (corr.take(), subscription.member());
        self.subscriptions.insert(key.clone(), ActiveSubscription::joining(subscription));
        self.answers.push(PendingAnswer::Subscribed { joined, corr, key, member });
        Ok(())
    }

    /// Starts deliveries of a subscription whose SUBSCRIBE has been answered with OK, and removes one that
    /// was refused.
    pub(in crate::gateway::client) fn subscribe_answered(&mut self, answered: AnsweredSubscribe) {
        let AnsweredSubscribe { key, member, has_joined } = answered;
        let Entry::Occupied(mut entry) = self.subscriptions.entry(key) else { return };
        // Another SUBSCRIBE may have followed an UNSUBSCRIBE.
        if entry.get().subscription.member() != member {
            return;
        }
        if has_joined {
            let now = self.gateway.clock.now();
            let (topic, group) = entry.key();
            let action = Action::Consume { topic, group };
            let may_deliver =
                self.grant.as_ref().is_some_and(|grant| grant.authorize(action, || now).is_ok());
            entry.get_mut().confirm(may_deliver);
        } else {
            entry.remove();
        }
    }
}
