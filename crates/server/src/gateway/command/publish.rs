//! PUBLISH: store one event or many, all or none.

use std::iter;

use prombus_bus::{PublishBatch, Refusal};
use prombus_proto::frame::{Corr, Publish, PublishEvents};

use crate::auth::Action;
use crate::gateway::answers::{PublishedFrame, PublishedIds};
use crate::gateway::client::{Client, Together};

impl Client {
    /// Takes `corr` if it is not refused.
    pub(in crate::gateway) fn publish(
        &mut self,
        publish: Publish,
        corr: &mut Option<Corr>,
    ) -> Result<(), Refusal> {
        let Publish { topic, events } = publish;
        self.check(Action::Publish(&topic))?;
        if let Together::Nothing = self.together {
            self.together = Together::Publishing { prepared: PublishBatch::none(), frames: vec![] };
        }
        if let Together::Publishing { prepared, frames } = &mut self.together {
            let (bus, connection) = (&self.gateway.bus, &self.connection);
            let before = prepared.len();
            let ids = match events {
                PublishEvents::One(event) => {
                    bus.prepare_more(prepared, connection, &topic, iter::once(event))?;
                    PublishedIds::One(prepared.ids().nth(before).expect("one more").clone())
                }
                PublishEvents::Many(events) => {
                    bus.prepare_more(prepared, connection, &topic, events.into_iter())?;
                    PublishedIds::Many(prepared.ids().skip(before).cloned().collect())
                }
            };
            frames.push(PublishedFrame { corr: corr.take(), ids });
        }
        Ok(())
    }
}
