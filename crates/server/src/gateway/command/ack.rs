//! ACK: events are done; others may be published in the same commit.

use std::time::Duration;

use prombus_bus::Refusal;
use prombus_proto::frame::{Ack, AckMark, Corr};
use prombus_proto::{EventId, Group, NewEvent, Topic};

use super::mark::ttl;
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
        let Ack { topic, group, ids, mark, publish } = ack;
        self.subscribed(&topic, &group)?;
        let ids = ids.into_vec();
        let mark = mark.map(|AckMark { ttl_ms }| ttl(ttl_ms));
        match publish {
            Some(events) => self.ack_and_publish(&topic, &group, ids, mark, events, corr).await,
            None => {
                self.ack_with_others(topic, group, ids, mark, corr).await;
                Ok(())
            }
        }
    }

    async fn ack_and_publish(
        &mut self,
        topic: &Topic,
        group: &Group,
        ids: Vec<EventId>,
        mark: Option<Duration>,
        events: Vec<(Topic, NewEvent)>,
        corr: Option<Corr>,
    ) -> Result<(), Refusal> {
        self.ask_together().await;
        for (target, _) in &events {
            self.check(Action::Publish(target))?;
        }
        let prepared = self.gateway.bus.prepare_mixed(&self.connection, events)?;
        let published = prepared.ids().cloned().collect();
        let mark_until = mark.map(|ttl| self.gateway.bus.marked_until(ttl));
        let subscription = &self.subscribed(topic, group)?.subscription;
        let answer = subscription.ack(ids, mark_until, Some(prepared));
        self.answers.push(Due::AckedAndPublished { answer, corr, ids: published });
        Ok(())
    }

    async fn ack_with_others(
        &mut self,
        topic: Topic,
        group: Group,
        mut more: Vec<EventId>,
        mark: Option<Duration>,
        corr: Option<Corr>,
    ) {
        let fits = match &self.together {
            Together::Acking {
                topic: same_topic, group: same_group, ids, mark: same_mark, ..
            } => {
                *same_topic == topic
                    && *same_group == group
                    && *same_mark == mark
                    && ids.len() < TOGETHER_IDS
            }
            _ => false,
        };
        if !fits {
            self.ask_together().await;
            let (ids, frames) = (vec![], vec![]);
            self.together = Together::Acking { topic, group, ids, mark, frames };
        }
        if let Together::Acking { ids, frames, .. } = &mut self.together {
            frames.push(AckedFrame { corr, ids: more.len() });
            ids.append(&mut more);
        }
    }
}
