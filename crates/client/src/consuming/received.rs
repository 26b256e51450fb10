//! An event as a handler gets it.

use std::ops::Deref;
use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use serde::de::DeserializeOwned;

use crate::consuming::lease_status::LeaseStatus;
use crate::{Event, Result};

/// An event delivered to a handler: the [`Event`] and the state of its delivery.
#[derive(Clone, Debug)]
pub struct Received<T> {
    event: Event<T>,
    attempt: u32,
    deadline: Instant,
    lease: Arc<LeaseStatus>,
}

/// A delivered event before it is decoded.
#[derive(Clone, Debug)]
pub(crate) struct Delivery {
    pub(crate) json: Bytes,
    pub(crate) attempt: u32,
    pub(crate) deadline: Instant,
    pub(crate) lease: Arc<LeaseStatus>,
}

impl Delivery {
    pub(crate) fn decode<T: DeserializeOwned>(self) -> Result<Received<T>> {
        let event = Event::decode(&self.json)?;
        Ok(Received { event, attempt: self.attempt, deadline: self.deadline, lease: self.lease })
    }
}

impl<T> Received<T> {
    /// Returns the number of this delivery of the event to the group, starting at 1.
    #[must_use]
    pub const fn attempt(&self) -> u32 {
        self.attempt
    }

    /// Returns when the lease ends as it was granted on delivery. The client extends the lease for
    /// as long as the handler runs.
    #[must_use]
    pub const fn deadline(&self) -> Instant {
        self.deadline
    }

    /// Returns `true` if the lease is lost, for example with the connection. The event is then
    /// redelivered, and this handler's result may be discarded.
    #[must_use]
    pub fn is_lease_lost(&self) -> bool {
        self.lease.is_lost()
    }

    /// Waits until the lease is lost, for handlers that should stop then.
    pub async fn lease_lost(&self) {
        self.lease.lost().await;
    }

    /// Returns the event without the delivery.
    #[must_use]
    pub fn into_event(self) -> Event<T> {
        self.event
    }
}

impl<T> Deref for Received<T> {
    type Target = Event<T>;

    fn deref(&self) -> &Event<T> {
        &self.event
    }
}
