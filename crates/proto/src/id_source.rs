//! The generator of event ids.

use std::sync::Arc;

use parking_lot::Mutex;
use uuid::Uuid;

use crate::{Clock, EventId, RandomSource, SystemClock, SystemRandom, Timestamp};

/// Generates UUIDs of version 7, each greater than all earlier ones of this source, whatever the
/// clock does.
///
/// A process needs one source. Within a millisecond, and while the clock stands still or steps back,
/// the 74 random bits are incremented by a random step (RFC 9562, section 6.2, method 2).
pub struct IdSource {
    clock: Arc<dyn Clock>,
    random: Arc<dyn RandomSource>,
    last: Mutex<LastId>,
}

#[derive(Clone, Copy)]
struct LastId {
    millis: u64,
    /// The 74 random bits after the time.
    tail: u128,
}

const TAIL_BITS: u32 = 74;
const TAIL_MASK: u128 = (1 << TAIL_BITS) - 1;
const MILLIS_MASK: u64 = (1 << 48) - 1;

impl IdSource {
    /// Creates a source that reads `clock` and `random`.
    #[must_use]
    pub fn new(clock: Arc<dyn Clock>, random: Arc<dyn RandomSource>) -> Self {
        Self { clock, random, last: Mutex::new(LastId { millis: 0, tail: 0 }) }
    }

    /// Creates a source on the system clock and the system random source.
    #[must_use]
    pub fn system() -> Self {
        Self::new(Arc::new(SystemClock), Arc::new(SystemRandom))
    }

    /// Returns the next id, with the clock's current time.
    #[must_use]
    pub fn next_id(&self) -> EventId {
        self.next_id_at(self.clock.now())
    }

    /// Returns the next id for a caller that has already read the clock.
    #[must_use]
    pub fn next_id_at(&self, now: Timestamp) -> EventId {
        let now = now.0 & MILLIS_MASK;
        let random = self.random.next_u64();
        let mut last = self.last.lock();
        if now > last.millis {
            // The top bit stays clear to leave room for increments within this millisecond.
            let high = u128::from(self.random.next_u64()) << 64;
            *last = LastId { millis: now, tail: (high | u128::from(random)) & (TAIL_MASK >> 1) };
        } else {
            let step = u128::from(random & 0xFFFF_FFFF) + 1;
            last.tail += step;
            if last.tail > TAIL_MASK {
                *last = LastId { millis: last.millis + 1, tail: step };
            }
        }
        EventId::from_uuid(assemble(*last))
    }
}

fn assemble(last: LastId) -> Uuid {
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
    fn generates_version_7_with_the_current_time() {
        let clock = ManualClock::at(Timestamp(1_700_000_000_123));
        let uuid = source(&clock).next_id().as_uuid().unwrap();
        assert_eq!(uuid.get_version_num(), 7);
        assert_eq!(uuid.get_variant(), uuid::Variant::RFC4122);
        assert_eq!((uuid.as_u128() >> 80) as u64, 1_700_000_000_123);
    }

    #[test]
    fn ids_grow_while_the_clock_stands_still_or_steps_back() {
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
    fn an_exhausted_millisecond_uses_the_next_one() {
        let clock = ManualClock::at(Timestamp(5));
        let source = source(&clock);
        let before = source.next_id().as_uuid().unwrap();
        source.last.lock().tail = TAIL_MASK;
        let after = source.next_id().as_uuid().unwrap();
        assert!(after > before);
        assert_eq!((after.as_u128() >> 80) as u64, 6);
    }

    #[test]
    fn threads_never_get_the_same_id() {
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
