//! ACK: events are done; others may be published in the same commit.

use prombus_bus::Refusal;
use prombus_proto::frame::{Ack, AckIds, Corr};
use prombus_proto::{EventId, Group, NewEvent, Topic};

use crate::auth::Action;
use crate::gateway::answers::{AckedFrame, Due};
use crate::gateway::client::{Client, Together};

/// How many ids are held back to be asked together.
const TOGETHER_IDS: usize = 10_000;

impl Client {
    pub(in crate::gateway) async fn ack(
        &mut self,
        ack: Ack,
        corr: Option<Corr>,
    ) -> Result<(), Refusal> {
        let Ack { topic, group, ids, publish } = ack;
        self.subscribed(&topic, &group)?;
        let ids = match ids {
            AckIds::One(id) => vec![id],
            AckIds::Many(ids) => ids,
        };
        match publish {
            Some(events) => self.ack_and_publish(&topic, &group, ids, events, corr).await,
            None => {
                self.ack_with_others(topic, group, ids, corr).await;
                Ok(())
            }
        }
    }

    async fn ack_and_publish(
        &mut self,
        topic: &Topic,
        group: &Group,
        ids: Vec<EventId>,
        events: Vec<(Topic, NewEvent)>,
        corr: Option<Corr>,
    ) -> Result<(), Refusal> {
        self.ask_together().await;
        for (target, _) in &events {
            self.check(Action::Publish(target))?;
        }
        let prepared = self.gateway.bus.prepare_mixed(&self.connection, events)?;
        let published = prepared.ids().cloned().collect();
        let subscription = &self.subscribed(topic, group)?.subscription;
        let answer = subscription.ack(ids, Some(prepared));
        self.answers.push(Due::AckedAndPublished { answer, corr, ids: published });
        Ok(())
    }

    async fn ack_with_others(
        &mut self,
        topic: Topic,
        group: Group,
        mut more: Vec<EventId>,
        corr: Option<Corr>,
    ) {
        let fits = match &self.together {
            Together::Acking { topic: same_topic, group: same_group, ids, .. } => {
                *same_topic == topic && *same_group == group && ids.len() < TOGETHER_IDS
            }
            _ => false,
        };
        if !fits {
            self.ask_together().await;
            self.together = Together::Acking { topic, group, ids: vec![], frames: vec![] };
        }
        if let Together::Acking { ids, frames, .. } = &mut self.together {
            frames.push(AckedFrame { corr, ids: more.len() });
            ids.append(&mut more);
        }
    }
}
