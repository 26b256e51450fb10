//! ACK: completes events, and optionally publishes others in the same commit.

use prombus_bus::{PublishBatch, Refusal};
use prombus_proto::frame::{Ack, AckMark, Corr, Ids};
use prombus_proto::{EventId, Group, NewEvent, Topic};

use crate::auth::Action;
use crate::gateway::answers::{AckedFrame, PendingAnswer};
use crate::gateway::client::{Client, PendingBatch};

impl Client {
    pub(in crate::gateway::client) fn ack(
        &mut self,
        ack: Ack,
        corr: &mut Option<Corr>,
    ) -> Result<(), Refusal> {
        let Ack { topic, group, ids, mark, publish } = ack;
        if let Some(events) = publish {
            return self.ack_and_publish(&topic, &group, ids.into_vec(), mark, events, corr);
        }
        if let PendingBatch::None = self.batch {
            self.active_subscription(&topic, &group)?;
            let (ids, frames) = (vec![], vec![]);
            self.batch = PendingBatch::Ack { topic, group, ids, mark, frames };
        }
        if let PendingBatch::Ack { ids: batch_ids, frames, .. } = &mut self.batch {
            frames.push(AckedFrame { corr: corr.take(), ids: ids.as_slice().len() });
            match ids {
                Ids::One(id) => batch_ids.push(id),
                Ids::Many(mut ids) => batch_ids.append(&mut ids),
            }
        }
        Ok(())
    }

    fn ack_and_publish(
        &mut self,
        topic: &Topic,
        group: &Group,
        ids: Vec<EventId>,
        mark: Option<AckMark>,
        events: Vec<(Topic, NewEvent)>,
        corr: &mut Option<Corr>,
    ) -> Result<(), Refusal> {
        self.active_subscription(topic, group)?;
        for (target, _) in &events {
            self.check(Action::Publish(target))?;
        }
        let mut batch = PublishBatch::new();
        batch.push_mixed(&self.gateway.bus, &self.connection, events)?;
        let published = batch.ids().cloned().collect();
        let mark_until = mark.map(|mark| self.marked_until(mark));
        let subscription = &self.active_subscription(topic, group)?.subscription;
        let reply = subscription.ack(ids, mark_until, Some(batch));
        let corr = corr.take();
        self.answers.push(PendingAnswer::AckedAndPublished { reply, corr, ids: published });
        Ok(())
    }
}
