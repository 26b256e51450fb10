//! What work is done.

pub(crate) mod event_text;
pub(crate) mod pacer;
pub(crate) mod schedule;
pub(crate) mod send_plan;

use prombus_proto::Topic;
use prombus_proto::limits::MAX_FRAME_EVENTS;

use crate::BenchError;

/// What work is done. [`Load::check`] says what is wrong with one.
#[derive(Clone, Debug)]
pub struct Load {
    /// How many events.
    pub events: u64,
    /// How many bytes each has: its whole JSON as readers get it, with a `seq` of seven digits.
    pub size: usize,
    /// How many events go in one frame.
    pub batch: u64,
    /// How many events of a connection may be on their way, published and not answered or lent and
    /// not acknowledged.
    pub window: u64,
    /// How many connections publish, and how many others consume.
    pub connections: usize,
    /// How many topics the events go to in turn.
    pub topics: usize,
    /// How many groups consume every topic.
    pub groups: usize,
    /// The topic, or how the names of all begin.
    pub topic: Topic,
    /// How many events a second are meant to be sent by all connections together; flat out if none.
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
    /// Says what is wrong, by the names that the command line has for it.
    pub fn check(&self) -> Result<(), BenchError> {
        let most = MAX_FRAME_EVENTS as u64;
        let wrong = if self.events == 0 {
            "--n is 0, but has to be 1 or more".to_owned()
        } else if self.batch == 0 || self.batch > most {
            format!("--batch is {}, but has to be 1 to {most}, as a frame has", self.batch)
        } else if self.window == 0 {
            "--window is 0, but has to be 1 or more".to_owned()
        } else if self.connections == 0 {
            "--connections is 0, but has to be 1 or more".to_owned()
        } else if self.topics == 0 {
            "--topics is 0, but has to be 1 or more".to_owned()
        } else if self.groups == 0 {
            "--groups is 0, but has to be 1 or more".to_owned()
        } else if self.rate.is_some_and(|rate| !rate.is_finite() || rate <= 0.0) {
            "--rate has to be more than 0 events a second; flat out is without it".to_owned()
        } else {
            return Ok(());
        };
        Err(BenchError::Load(wrong))
    }

    /// All topics: the one, or so many that begin with its name.
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

    /// The topics that consumer `place` subscribes to: every topic has a consumer, and every
    /// consumer a topic.
    #[must_use]
    pub fn topics_of(&self, place: usize) -> Vec<usize> {
        let (consumers, topics) = (self.connections, self.topics);
        let pairs = (0..consumers.max(topics)).map(|pair| (pair % consumers, pair % topics));
        pairs.filter(|(consumer, _)| *consumer == place).map(|(_, topic)| topic).collect()
    }

    /// How many deliveries there are: every group gets every event.
    #[must_use]
    pub const fn deliveries(&self) -> u64 {
        self.events * self.groups as u64
    }

    /// How many bytes all events have, nominally.
    #[must_use]
    pub const fn bytes(&self) -> u64 {
        self.events * self.size as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_makes_no_sense_is_refused_by_name() {
        let usual = Load::default;
        usual().check().unwrap();
        for (load, name) in [
            (Load { events: 0, ..usual() }, "--n"),
            (Load { batch: 0, ..usual() }, "--batch"),
            (Load { batch: 1001, ..usual() }, "--batch"),
            (Load { window: 0, ..usual() }, "--window"),
            (Load { connections: 0, ..usual() }, "--connections"),
            (Load { topics: 0, ..usual() }, "--topics"),
            (Load { groups: 0, ..usual() }, "--groups"),
            (Load { rate: Some(0.0), ..usual() }, "--rate"),
            (Load { rate: Some(f64::NAN), ..usual() }, "--rate"),
        ] {
            let error = load.check().unwrap_err().to_string();
            assert!(error.starts_with(name), "{error}");
        }
    }

    #[test]
    fn every_topic_has_a_consumer_and_every_consumer_a_topic() {
        let of = |connections, topics| {
            let load = Load { connections, topics, ..Load::default() };
            (0..connections).map(|place| load.topics_of(place)).collect::<Vec<_>>()
        };
        assert_eq!(of(1, 3), [vec![0, 1, 2]]);
        assert_eq!(of(2, 3), [vec![0, 2], vec![1]]);
        assert_eq!(of(3, 2), [vec![0], vec![1], vec![0]]);
    }
}
