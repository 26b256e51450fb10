//! An event on its way to a handler.

use std::ops::Deref;
use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use serde::de::DeserializeOwned;

use crate::consuming::lease_status::Lease;
use crate::{Event, Result};

/// An event that was delivered to a handler: the [`Event`], and how it came.
#[derive(Clone, Debug)]
pub struct Received<T> {
    event: Event<T>,
    attempt: u32,
    deadline: Instant,
    lease: Arc<Lease>,
}

/// The same before it is read.
#[derive(Clone, Debug)]
pub(crate) struct Delivery {
    pub(crate) json: Bytes,
    pub(crate) attempt: u32,
    pub(crate) deadline: Instant,
    pub(crate) lease: Arc<Lease>,
}

impl Delivery {
    pub(crate) fn read<T: DeserializeOwned>(self) -> Result<Received<T>> {
        let event = Event::decode(&self.json)?;
        Ok(Received { event, attempt: self.attempt, deadline: self.deadline, lease: self.lease })
    }
}

impl<T> Received<T> {
    /// Which delivery of the event to this group it is, from 1.
    #[must_use]
    pub const fn attempt(&self) -> u32 {
        self.attempt
    }

    /// When the lease would have ended as it was when the event came. The client moves that on for
    /// as long as the handler runs, so there is no need to hurry.
    #[must_use]
    pub const fn deadline(&self) -> Instant {
        self.deadline
    }

    /// Whether the lease is lost, as when the connection broke: the event goes to whoever is
    /// there, and what this handler answers may not count.
    #[must_use]
    pub fn is_lease_lost(&self) -> bool {
        self.lease.is_lost()
    }

    /// Waits until the lease is lost, for handlers that had better stop then.
    pub async fn lease_lost(&self) {
        self.lease.lost().await;
    }

    /// The event alone.
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
