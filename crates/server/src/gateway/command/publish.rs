//! PUBLISH: store one event or many, all or none.

use prombus_bus::{Prepared, Refusal};
use prombus_proto::frame::{Corr, Publish, PublishEvents};

use crate::auth::Action;
use crate::gateway::answers::{PublishedFrame, PublishedIds};
use crate::gateway::client::{Client, Together};

/// How much is held back to be submitted together.
const TOGETHER_BYTES: usize = 1 << 20;

impl Client {
    pub(in crate::gateway) async fn publish(
        &mut self,
        publish: Publish,
        corr: Option<Corr>,
    ) -> Result<(), Refusal> {
        let Publish { topic, events } = publish;
        self.check(Action::Publish(&topic))?;
        let (events, is_one) = match events {
            PublishEvents::One(event) => (vec![event], true),
            PublishEvents::Many(events) => (events, false),
        };
        let more = self.gateway.bus.prepare(&self.connection, &topic, events)?;
        let ids = if is_one {
            PublishedIds::One(more.ids().next().expect("one event has one id").clone())
        } else {
            PublishedIds::Many(more.ids().cloned().collect())
        };
        if !matches!(self.together, Together::Publishing { .. }) {
            self.ask_together().await;
            self.together = Together::Publishing { prepared: Prepared::none(), frames: vec![] };
        }
        if let Together::Publishing { prepared, frames } = &mut self.together {
            frames.push(PublishedFrame { corr, ids });
            prepared.append(more);
            if prepared.bytes() > TOGETHER_BYTES {
                self.ask_together().await;
            }
        }
        Ok(())
    }
}
