//! Stores of marks outside the bus.

use std::collections::HashMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use prombus_proto::{Clock, EventId, Group, SystemClock, Timestamp, Topic};

use crate::consuming::handler::HandlerError;

/// The future returned by the methods of [`Dedupe`].
pub type DedupeFuture<'a, T> = Pin<Box<dyn Future<Output = Result<T, HandlerError>> + Send + 'a>>;

/// A store of marks outside the bus, for
/// [`subscribe_exactly_once`](crate::Client::subscribe_exactly_once): for example a table in the
/// database that the handler writes to.
pub trait Dedupe: Send + Sync + 'static {
    /// Returns `true` if `group` has handled the event.
    fn seen<'a>(
        &'a self,
        topic: &'a Topic,
        group: &'a Group,
        id: &'a EventId,
    ) -> DedupeFuture<'a, bool>;

    /// Stores for `ttl` that `group` has handled the event.
    fn mark<'a>(
        &'a self,
        topic: &'a Topic,
        group: &'a Group,
        id: &'a EventId,
        ttl: Duration,
    ) -> DedupeFuture<'a, ()>;
}

/// Marks with the time at which they expire.
type Marks = HashMap<(Topic, Group, EventId), Timestamp>;

/// Marks in the memory of this process, for tests. Clones share the marks.
#[derive(Clone)]
pub struct MemoryDedupe {
    marks: Arc<Mutex<Marks>>,
    clock: Arc<dyn Clock>,
}

impl Default for MemoryDedupe {
    fn default() -> Self {
        Self::with_clock(SystemClock)
    }
}

impl MemoryDedupe {
    /// Creates an empty store that uses the system clock.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Creates an empty store that uses `clock`.
    #[must_use]
    pub fn with_clock(clock: impl Clock) -> Self {
        Self { marks: Arc::default(), clock: Arc::new(clock) }
    }

    /// Returns the number of marks that have not expired, and drops the others.
    #[must_use]
    pub fn len(&self) -> usize {
        let now = self.clock.now();
        let mut marks = self.marks.lock();
        marks.retain(|_, until| *until > now);
        marks.len()
    }

    /// Returns `true` if every mark has expired.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl Dedupe for MemoryDedupe {
    fn seen<'a>(
        &'a self,
        topic: &'a Topic,
        group: &'a Group,
        id: &'a EventId,
    ) -> DedupeFuture<'a, bool> {
        let key = (topic.clone(), group.clone(), id.clone());
        let now = self.clock.now();
        let marks = self.marks.lock();
        let seen = marks.get(&key).is_some_and(|until| *until > now);
        Box::pin(async move { Ok(seen) })
    }

    fn mark<'a>(
        &'a self,
        topic: &'a Topic,
        group: &'a Group,
        id: &'a EventId,
        ttl: Duration,
    ) -> DedupeFuture<'a, ()> {
        let key = (topic.clone(), group.clone(), id.clone());
        let until = self.clock.now().plus_ms(crate::session::frames::millis(ttl));
        self.marks.lock().insert(key, until);
        Box::pin(async { Ok(()) })
    }
}

#[cfg(test)]
mod tests {
    use prombus_proto::ManualClock;

    use super::*;

    #[tokio::test]
    async fn a_mark_expires_after_its_ttl() {
        let clock = ManualClock::at(Timestamp(1000));
        let marks = MemoryDedupe::with_clock(clock.clone());
        let (topic, group) = (Topic::new("t").unwrap(), Group::new("g").unwrap());
        let (a, b) = (EventId::new("a").unwrap(), EventId::new("b").unwrap());
        marks.mark(&topic, &group, &a, Duration::from_secs(1)).await.unwrap();
        assert!(marks.seen(&topic, &group, &a).await.unwrap());
        assert!(!marks.seen(&topic, &group, &b).await.unwrap());
        assert!(!marks.seen(&topic, &Group::new("h").unwrap(), &a).await.unwrap());
        clock.advance_ms(999);
        assert_eq!(marks.len(), 1);
        clock.advance_ms(1);
        assert!(!marks.seen(&topic, &group, &a).await.unwrap() && marks.is_empty());
    }
}
