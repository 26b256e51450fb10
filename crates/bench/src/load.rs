//! The load of a run: how many events of which size, over how many connections, and when.
//!
//! - `event_text`: the payload of an event, which has the time at which it was sent
//! - `schedule`: when an event is to be sent
//! - `send_plan`: what one connection sends when, and what its answers mean, without I/O
//! - `pacer`: wakes connections on schedule

pub(crate) mod event_text;
pub(crate) mod pacer;
pub(crate) mod schedule;
pub(crate) mod send_plan;

use prombus_proto::Topic;
use prombus_proto::limits::MAX_FRAME_EVENTS;

use crate::BenchError;

/// The load of a run.
#[derive(Clone, Debug)]
pub struct Load {
    pub events: u64,
    /// Bytes per event: its complete JSON as readers get it, with a `seq` of seven digits.
    pub size: usize,
    /// Events per frame.
    pub batch: u64,
    /// Events per connection that may be published and not answered, or delivered and not
    /// acknowledged.
    pub window: u64,
    /// Connections that publish, and as many others that consume.
    pub connections: usize,
    /// Topics that the frames go to in turn.
    pub topics: usize,
    /// Consumer groups of every topic.
    pub groups: usize,
    /// The topic, or the prefix of all topics.
    pub topic: Topic,
    /// Events per second of all connections together; `None` sends as fast as possible.
    pub rate: Option<f64>,
}

impl Default for Load {
    fn default() -> Self {
        Self {
            events: 100_000,
            size: 236,
            batch: 1,
            window: 1000,
            connections: 1,
            topics: 1,
            groups: 1,
            topic: Topic::new("bench.topic").expect("a topic's name"),
            rate: None,
        }
    }
}

impl Load {
    /// Fails if an option is not valid, and names it as the command line does.
    pub fn check(&self) -> Result<(), BenchError> {
        let max = MAX_FRAME_EVENTS as u64;
        let msg = if self.events == 0 {
            "--n must be at least 1".to_owned()
        } else if self.batch == 0 || self.batch > max {
            format!("--batch must be 1 to {max}, not {}", self.batch)
        } else if self.window == 0 {
            "--window must be at least 1".to_owned()
        } else if self.connections == 0 {
            "--connections must be at least 1".to_owned()
        } else if self.topics == 0 {
            "--topics must be at least 1".to_owned()
        } else if self.groups == 0 {
            "--groups must be at least 1".to_owned()
        } else if self.rate.is_some_and(|rate| !rate.is_finite() || rate <= 0.0) {
            "--rate must be more than 0; leave it out to send as fast as possible".to_owned()
        } else {
            return Ok(());
        };
        Err(BenchError::Load(msg))
    }

    /// Returns the topic, or several topics with its name as prefix.
    pub fn topics(&self) -> Result<Vec<Topic>, BenchError> {
        if self.topics == 1 {
            return Ok(vec![self.topic.clone()]);
        }
        let name = |number| {
            let name = format!("{}.{number}", self.topic);
            Topic::new(&name).map_err(|error| BenchError::Load(format!("--topic {name}: {error}")))
        };
        (0..self.topics).map(name).collect()
    }

    /// Returns the topics of the consumer with this index. Every topic has a consumer, and every
    /// consumer has a topic.
    #[must_use]
    pub fn topics_of(&self, index: usize) -> Vec<usize> {
        let (consumers, topics) = (self.connections, self.topics);
        let pairs = (0..consumers.max(topics)).map(|pair| (pair % consumers, pair % topics));
        pairs.filter(|(consumer, _)| *consumer == index).map(|(_, topic)| topic).collect()
    }

    /// Returns the number of deliveries; every group gets every event.
    #[must_use]
    pub const fn deliveries(&self) -> u64 {
        self.events * self.groups as u64
    }

    /// Returns the nominal bytes of all events.
    #[must_use]
    pub const fn bytes(&self) -> u64 {
        self.events * self.size as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rejects_invalid_options_by_name() {
        let default = Load::default;
        default().check().unwrap();
        for (load, name) in [
            (Load { events: 0, ..default() }, "--n"),
            (Load { batch: 0, ..default() }, "--batch"),
            (Load { batch: 1001, ..default() }, "--batch"),
            (Load { window: 0, ..default() }, "--window"),
            (Load { connections: 0, ..default() }, "--connections"),
            (Load { topics: 0, ..default() }, "--topics"),
            (Load { groups: 0, ..default() }, "--groups"),
            (Load { rate: Some(0.0), ..default() }, "--rate"),
            (Load { rate: Some(f64::NAN), ..default() }, "--rate"),
        ] {
            let error = load.check().unwrap_err().to_string();
            assert!(error.starts_with(name), "{error}");
        }
    }

    #[test]
    fn every_topic_has_a_consumer_and_every_consumer_has_a_topic() {
        let of = |connections, topics| {
            let load = Load { connections, topics, ..Load::default() };
            (0..connections).map(|index| load.topics_of(index)).collect::<Vec<_>>()
        };
        assert_eq!(of(1, 3), [vec![0, 1, 2]]);
        assert_eq!(of(2, 3), [vec![0, 2], vec![1]]);
        assert_eq!(of(3, 2), [vec![0], vec![1], vec![0]]);
    }
}
