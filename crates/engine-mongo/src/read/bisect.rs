//! Finds positions by a field that rises with `seq`. Each query probes many positions at once.

use std::collections::HashMap;

use mongodb::ClientSession;
use mongodb::bson::{Bson, doc};
use mongodb::error::Error;
use prombus_proto::Topic;

use crate::layout::numbers::number_in;
use crate::store::Store;

/// Positions probed by one query: a million events take four queries.
const PROBES: i64 = 32;

impl Store {
    /// Returns the first event of `topic` in the range from `first` to before `next` whose `field`, an
    /// expression that rises with `seq`, is at least `least`; `next` if there is none. Events that were
    /// trimmed in the meantime count as smaller.
    pub(crate) async fn first_at_least(
        &self,
        session: &mut ClientSession,
        topic: &Topic,
        (first, next): (i64, i64),
        field: impl Into<Bson>,
        least: i64,
    ) -> Result<i64, Error> {
        let field = field.into();
        let (mut low, mut high) = (first, next);
        while low < high {
            let probes = probes_between(low, high);
            let values = self.values_at(session, topic, &probes, &field).await?;
            for probe in probes {
                if values.get(&probe).is_some_and(|value| *value >= least) {
                    high = probe;
                    break;
                }
                low = probe + 1;
            }
        }
        Ok(low)
    }

    async fn values_at(
        &self,
        session: &mut ClientSession,
        topic: &Topic,
        seqs: &[i64],
        field: &Bson,
    ) -> Result<HashMap<i64, i64>, Error> {
        let filter = doc! { "topic": topic.as_str(), "seq": { "$in": seqs } };
        let projection = doc! { "_id": 0, "seq": 1, "value": field };
        let events = self.collections.events();
        let mut found = events.find(filter).projection(projection).session(&mut *session).await?;
        let mut values = HashMap::new();
        while found.advance(session).await? {
            let event = found.current();
            if let (Some(seq), Some(value)) = (number_in(event, "seq"), number_in(event, "value")) {
                values.insert(seq, value);
            }
        }
        Ok(values)
    }
}

/// Evenly spaced positions from `low` to before `high`; all of them if they are few.
fn probes_between(low: i64, high: i64) -> Vec<i64> {
    let count = (high - low).min(PROBES);
    let step = (high - low) / (count + 1);
    match high - low <= PROBES {
        true => (low..high).collect(),
        false => (1..=count).map(|n| low + n * step).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn probes_rise_and_stay_in_the_range() {
        for (low, high) in [(1, 2), (1, 33), (1, 34), (5, 1_000_000), (i64::MAX - 100, i64::MAX)] {
            let probes = probes_between(low, high);
            assert!(!probes.is_empty());
            assert!(probes.is_sorted_by(|one, two| one < two));
            assert!(probes.iter().all(|probe| (low..high).contains(probe)));
        }
        assert_eq!(probes_between(3, 6), [3, 4, 5]);
    }
}
