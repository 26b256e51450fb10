//! Places by what rises with `seq`: by halving, or rather by asking for many places at once.

use std::collections::HashMap;

use mongodb::ClientSession;
use mongodb::bson::doc;
use mongodb::error::Error;
use prombus_proto::Topic;

use crate::layout::numbers::number_in;
use crate::store::Store;

/// Places asked for in one question: four questions for a million events.
const PLACES_AT_ONCE: i64 = 32;

impl Store {
    /// The first event of `topic` from `first` on whose `member`, which rises with `seq`, is `least`
    /// or more; `next` where none before it is. What was forgotten meanwhile counts as less.
    pub(crate) async fn first_reaching(
        &self,
        session: &mut ClientSession,
        topic: &Topic,
        (first, next): (i64, i64),
        member: &str,
        least: i64,
    ) -> Result<i64, Error> {
        let (mut low, mut high) = (first, next);
        while low < high {
            let places = places_between(low, high);
            let values = self.values_at(session, topic, &places, member).await?;
            for place in places {
                if values.get(&place).is_some_and(|value| *value >= least) {
                    high = place;
                    break;
                }
                low = place + 1;
            }
        }
        Ok(low)
    }

    async fn values_at(
        &self,
        session: &mut ClientSession,
        topic: &Topic,
        places: &[i64],
        member: &str,
    ) -> Result<HashMap<i64, i64>, Error> {
        let wanted = doc! { "topic": topic.as_str(), "seq": { "$in": places } };
        let projection = doc! { "_id": 0, "seq": 1, member: 1 };
        let events = self.collections.events();
        let mut found = events.find(wanted).projection(projection).session(&mut *session).await?;
        let mut values = HashMap::new();
        while found.advance(session).await? {
            let event = found.current();
            if let (Some(seq), Some(value)) = (number_in(event, "seq"), number_in(event, member)) {
                values.insert(seq, value);
            }
        }
        Ok(values)
    }
}

/// Places from `low` on and before `high`, evenly; all of them where they are few.
fn places_between(low: i64, high: i64) -> Vec<i64> {
    let count = (high - low).min(PLACES_AT_ONCE);
    let step = (high - low) / (count + 1);
    match high - low <= PLACES_AT_ONCE {
        true => (low..high).collect(),
        false => (1..=count).map(|n| low + n * step).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_in_order_and_within() {
        for (low, high) in [(1, 2), (1, 33), (1, 34), (5, 1_000_000), (i64::MAX - 100, i64::MAX)] {
            let places = places_between(low, high);
            assert!(!places.is_empty());
            assert!(places.is_sorted_by(|one, two| one < two));
            assert!(places.iter().all(|place| (low..high).contains(place)));
        }
        assert_eq!(places_between(3, 6), [3, 4, 5]);
    }
}
