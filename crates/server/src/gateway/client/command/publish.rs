//! PUBLISH: stores one event or many, all or none.

use std::iter;

use prombus_bus::{PublishBatch, Refusal};
use prombus_proto::frame::{Corr, Publish, PublishEvents};

use crate::auth::Action;
use crate::gateway::answers::{PublishedFrame, PublishedIds};
use crate::gateway::client::{Client, PendingBatch};

impl Client {
    pub(in crate::gateway::client) fn publish(
        &mut self,
        publish: Publish,
        corr: &mut Option<Corr>,
    ) -> Result<(), Refusal> {
        let Publish { topic, events: new } = publish;
        self.check(Action::Publish(&topic))?;
        if let PendingBatch::None = self.batch {
            self.batch = PendingBatch::Publish { events: PublishBatch::new(), frames: vec![] };
        }
        if let PendingBatch::Publish { events, frames } = &mut self.batch {
            let (bus, connection) = (&self.gateway.bus, &self.connection);
            let before = events.len();
            let ids = match new {
                PublishEvents::One(event) => {
                    events.push(bus, connection, &topic, iter::once(event))?;
                    PublishedIds::One(events.ids().nth(before).expect("one was pushed").clone())
                }
                PublishEvents::Many(new) => {
                    events.push(bus, connection, &topic, new.into_iter())?;
                    PublishedIds::Many(events.ids().skip(before).cloned().collect())
                }
            };
            frames.push(PublishedFrame { corr: corr.take(), ids });
        }
        Ok(())
    }
}
