//! ACK: events are done; others may be published in the same commit.

use prombus_bus::Refusal;
use prombus_proto::frame::{Ack, AckMark, Corr, Ids};
use prombus_proto::{EventId, Group, NewEvent, Topic};

use crate::auth::Action;
use crate::gateway::answers::{AckedFrame, Due};
use crate::gateway::client::{Client, Together};

impl Client {
    pub(in crate::gateway) fn ack(&mut self, ack: Ack, corr: Option<Corr>) -> Result<(), Refusal> {
        let Ack { topic, group, ids, mark, publish } = ack;
        if let Some(events) = publish {
            return self.ack_and_publish(&topic, &group, ids.into_vec(), mark, events, corr);
        }
        if let Together::Nothing = self.together {
            self.subscribed(&topic, &group)?;
            let (ids, frames) = (vec![], vec![]);
            self.together = Together::Acking { topic, group, ids, mark, frames };
        }
        if let Together::Acking { ids: others, frames, .. } = &mut self.together {
            frames.push(AckedFrame { corr, ids: ids.as_slice().len() });
            match ids {
                Ids::One(id) => others.push(id),
                Ids::Many(mut ids) => others.append(&mut ids),
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
        corr: Option<Corr>,
    ) -> Result<(), Refusal> {
        self.subscribed(topic, group)?;
        for (target, _) in &events {
            self.check(Action::Publish(target))?;
        }
        let prepared = self.gateway.bus.prepare_mixed(&self.connection, events)?;
        let published = prepared.ids().cloned().collect();
        let mark_until = mark.map(|mark| self.marked_until(mark));
        let subscription = &self.subscribed(topic, group)?.subscription;
        let answer = subscription.ack(ids, mark_until, Some(prepared));
        self.answers.push(Due::AckedAndPublished { answer, corr, ids: published });
        Ok(())
    }
}
