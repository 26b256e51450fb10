//! SUBSCRIBE: joins a group.

use std::time::Duration;

use prombus_bus::{Refusal, StartAt, SubscribeOptions};
use prombus_proto::ErrorCode;
use prombus_proto::frame::{Corr, StartFrom, Subscribe};

use crate::auth::Action;
use crate::gateway::client::{ActiveSubscription, Client};

impl Client {
    pub(in crate::gateway::client) async fn subscribe(
        &mut self,
        subscribe: Subscribe,
        corr: Option<&Corr>,
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
        let subscription = bus.subscribe(&self.connection, &key.0, &key.1, options).await?;
        let group = subscription.group_info();
        self.subscriptions.insert(key, ActiveSubscription { subscription, is_paused: false });
        self.answers.subscribed(corr, group);
        self.deliver_after = self.answers.answered_with_pending();
        Ok(())
    }
}
