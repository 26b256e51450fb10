//! Where new event ids come from.

use std::sync::{Arc, Mutex, PoisonError};

use uuid::Uuid;

use crate::{Clock, EventId, RandomSource, SystemClock, SystemRandom, Timestamp};

/// Makes UUIDs of version 7, each greater than all this source made before, whatever the clock does.
///
/// One source serves a process. Within a millisecond (or while the clock stands still or steps
/// back) the 74 random bits count on by a random step, as RFC 9562 section 6.2 method 2 has it.
pub struct IdSource {
    clock: Arc<dyn Clock>,
    random: Arc<dyn RandomSource>,
    last: Mutex<Last>,
}

#[derive(Clone, Copy)]
struct Last {
    millis: u64,
    /// The 74 bits behind the time.
    tail: u128,
}

const TAIL_BITS: u32 = 74;
const TAIL_MASK: u128 = (1 << TAIL_BITS) - 1;
const MILLIS_MASK: u64 = (1 << 48) - 1;

impl IdSource {
    /// Creates a source that reads `clock` and `random`.
    #[must_use]
    pub fn new(clock: Arc<dyn Clock>, random: Arc<dyn RandomSource>) -> Self {
        Self { clock, random, last: Mutex::new(Last { millis: 0, tail: 0 }) }
    }

    /// Creates a source on the system clock and the system random source.
    #[must_use]
    pub fn system() -> Self {
        Self::new(Arc::new(SystemClock), Arc::new(SystemRandom))
    }

    /// The next id.
    #[must_use]
    pub fn next_id(&self) -> EventId {
        self.next_id_at(self.clock.now())
    }

    /// The next id, for who knows what time it is.
    #[must_use]
    pub fn next_id_at(&self, now: Timestamp) -> EventId {
        let now = now.0 & MILLIS_MASK;
        let random = self.random.next_u64();
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        if now > last.millis {
            // The top bit stays clear, so that one millisecond has room to count on.
            let high = u128::from(self.random.next_u64()) << 64;
            *last = Last { millis: now, tail: (high | u128::from(random)) & (TAIL_MASK >> 1) };
        } else {
            let step = u128::from(random & 0xFFFF_FFFF) + 1;
            last.tail += step;
            if last.tail > TAIL_MASK {
                *last = Last { millis: last.millis + 1, tail: step };
            }
        }
        EventId::from_uuid(assemble(*last))
    }
}

fn assemble(last: Last) -> Uuid {
    let rand_a = (last.tail >> 62) & 0xFFF;
    let rand_b = last.tail & ((1 << 62) - 1);
    let bits =
        (u128::from(last.millis) << 80) | (0x7 << 76) | (rand_a << 64) | (0b10 << 62) | rand_b;
    Uuid::from_u128(bits)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{ManualClock, SeededRandom};

    fn source(clock: &ManualClock) -> IdSource {
        IdSource::new(Arc::new(clock.clone()), Arc::new(SeededRandom::new(7)))
    }

    #[test]
    fn is_version_7_and_carries_the_time() {
        let clock = ManualClock::at(Timestamp(1_700_000_000_123));
        let uuid = source(&clock).next_id().as_uuid().unwrap();
        assert_eq!(uuid.get_version_num(), 7);
        assert_eq!(uuid.get_variant(), uuid::Variant::RFC4122);
        assert_eq!((uuid.as_u128() >> 80) as u64, 1_700_000_000_123);
    }

    #[test]
    fn rises_while_the_clock_stands_still_or_steps_back() {
        let clock = ManualClock::at(Timestamp(1_700_000_000_000));
        let source = source(&clock);
        let mut previous = source.next_id().as_uuid().unwrap();
        for round in 0..100_000u64 {
            match round % 1000 {
                0 => clock.advance_ms(3),
                500 => clock.set(Timestamp(1_699_999_999_000)),
                _ => {}
            }
            let next = source.next_id().as_uuid().unwrap();
            assert!(next > previous, "{next} after {previous}");
            assert_eq!(next.get_version_num(), 7);
            previous = next;
        }
    }

    #[test]
    fn an_exhausted_millisecond_borrows_from_the_next() {
        let clock = ManualClock::at(Timestamp(5));
        let source = source(&clock);
        let before = source.next_id().as_uuid().unwrap();
        source.last.lock().unwrap().tail = TAIL_MASK;
        let after = source.next_id().as_uuid().unwrap();
        assert!(after > before);
        assert_eq!((after.as_u128() >> 80) as u64, 6);
    }

    #[test]
    fn threads_never_share_an_id() {
        let source = IdSource::system();
        let mut all: Vec<_> = std::thread::scope(|scope| {
            let workers: Vec<_> = (0..4)
                .map(|_| {
                    scope.spawn(|| {
                        (0..5000).map(|_| source.next_id().as_uuid().unwrap()).collect::<Vec<_>>()
                    })
                })
                .collect();
            workers.into_iter().flat_map(|worker| worker.join().unwrap()).collect()
        });
        all.sort_unstable();
        all.dedup();
        assert_eq!(all.len(), 20_000);
    }
}
