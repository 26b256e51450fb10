//! ACK: completes events, and optionally publishes others in the same commit.

use prombus_bus::{Charges, PublishBatch, Refusal};
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
            let (ids, charges, frames) = (vec![], Charges::default(), vec![]);
            self.batch = PendingBatch::Ack { topic, group, ids, mark, charges, frames };
        }
        let charged = self.charge_marks(mark, ids.as_slice().len())?;
        if let PendingBatch::Ack { ids: batch_ids, charges, frames, .. } = &mut self.batch {
            charges.append(charged);
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
        let acked = ids.len();
        let charges = self.charge_marks(mark, acked)?;
        let mark_until = mark.map(|mark| self.marked_until(mark));
        let subscription = &self.active_subscription(topic, group)?.subscription;
        let reply = subscription.ack_charged(ids, mark_until, Some(batch), charges);
        let corr = corr.take();
        self.answers.push(PendingAnswer::AckedAndPublished { reply, corr, acked, published });
        Ok(())
    }

    /// Takes what a MARK of as many events takes.
    fn charge_marks(&self, mark: Option<AckMark>, ids: usize) -> Result<Charges, Refusal> {
        match mark {
            Some(_) => self.gateway.bus.charge(&self.connection, ids as u64),
            None => Ok(Charges::default()),
        }
    }
}
