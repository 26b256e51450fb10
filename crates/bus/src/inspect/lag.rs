//! The lag of a group.

use prombus_engine::{Bounds, Engine, ReadBudget, ReadError};
use prombus_proto::{Seq, Timestamp, Topic};

use crate::stored::cursor::{Cursor, Progress};

/// How far a group is behind its topic.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Lag {
    /// Events that are not acknowledged.
    pub events: u64,
    /// The time since the first of them was stored, in milliseconds.
    pub ms: u64,
}

/// Returns the time from when the event at `seq` was stored until `now`, in milliseconds; 0 if the topic no
/// longer has it.
pub(crate) async fn age(
    engine: &dyn Engine,
    now: Timestamp,
    topic: &Topic,
    seq: Seq,
) -> Result<u64, ReadError> {
    let Some(arrival) = engine.arrival(topic, seq).await? else { return Ok(0) };
    let stored_at = match arrival.exact() {
        Some(stored_at) => stored_at,
        // Publishers usually tell the truth, and a lie counts only within the bounds.
        None => match engine.read(topic, seq, ReadBudget::of_events(1)).await {
            Ok(page) => {
                let event = page.events.first().filter(|event| event.seq == seq);
                event.map_or(arrival.latest(), |event| arrival.closest_to(event.ts))
            }
            Err(ReadError::Damaged(_)) => arrival.latest(),
            Err(error) => return Err(error),
        },
    };
    Ok(now.0.saturating_sub(stored_at.0))
}

/// Returns the number of unacknowledged events within `bounds`, and the first of them.
///
/// Events that retention removed do not count: they can no longer be delivered.
pub(crate) fn open_events(cursor: &Cursor, bounds: &Bounds) -> (u64, Option<Seq>) {
    let after_floor = cursor.floor.next();
    let (mut open, mut first_open) = (0, None);
    let mut seq = after_floor;
    for progress in cursor.above() {
        if seq >= bounds.next {
            break;
        }
        if seq >= bounds.first && progress != Progress::Done {
            open += 1;
            first_open.get_or_insert(seq);
        }
        seq = seq.next();
    }
    let rest = seq.max(bounds.first);
    if rest < bounds.next {
        open += bounds.next.0 - rest.0;
        first_open.get_or_insert(rest);
    }
    (open, first_open)
}

#[cfg(test)]
mod tests {
    use prombus_proto::Timestamp;

    use super::*;
    use crate::stored::cursor::Attempts;

    const fn tried(deliveries: u32) -> Progress {
        Progress::Tried(Attempts::of_deliveries(deliveries))
    }

    fn cursor(floor: u64, above: &[Progress]) -> Cursor {
        Cursor::starting_behind(Seq(floor), Timestamp(0)).with_above(above.iter().copied())
    }

    fn open(cursor: &Cursor, first: u64, next: u64) -> (u64, Option<u64>) {
        let bounds = Bounds { first: Seq(first), next: Seq(next), bytes: 0 };
        let (events, first) = open_events(cursor, &bounds);
        (events, first.map(|seq| seq.0))
    }

    #[test]
    fn counts_the_events_above_the_floor() {
        assert_eq!(open(&cursor(0, &[]), 1, 11), (10, Some(1)));
        assert_eq!(open(&cursor(7, &[]), 1, 11), (3, Some(8)));
        assert_eq!(open(&cursor(10, &[]), 1, 11), (0, None));
        assert_eq!(open(&cursor(0, &[]), 1, 1), (0, None));
    }

    #[test]
    fn skips_acknowledged_events_above_the_floor() {
        let above = [tried(1), Progress::Done, Progress::Done, tried(2)];
        assert_eq!(open(&cursor(2, &above), 1, 11), (6, Some(3)));
        assert_eq!(open(&cursor(2, &above), 1, 7), (2, Some(3)));
    }

    #[test]
    fn skips_events_that_retention_removed() {
        assert_eq!(open(&cursor(0, &[]), 8, 11), (3, Some(8)));
        assert_eq!(open(&cursor(0, &[]), 11, 11), (0, None));
        let above = [tried(1), Progress::Done, Progress::Done, tried(2)];
        assert_eq!(open(&cursor(2, &above), 4, 11), (5, Some(6)));
    }
}
