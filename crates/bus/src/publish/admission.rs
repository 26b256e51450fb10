//! Admission of events: by their time, and by the rate limits of their connection and their topics.

use std::sync::Arc;
use std::time::Instant;

use prombus_proto::limits::MAX_TS_AHEAD_MS;
use prombus_proto::{ErrorCode, NewEvent, Timestamp};

use crate::bus::{Bus, Connection};
use crate::error::Refusal;
use crate::limits::{ConnectionLimit, Deficit, LimitScope, Limited, SHORTEST_WAIT};
use crate::time::now;
use crate::topics::TopicInUse;

/// A topic, and the number of its events that ask for admission.
pub(super) type TopicCount = (Arc<TopicInUse>, u64);

/// Refuses an event whose time is too far in the future: a mistake in its unit, usually, which would
/// mislead every reader that starts at a time.
pub(crate) fn check_ts(event: &NewEvent, now: Timestamp) -> Result<(), Refusal> {
    match event.ts {
        Some(ts) if ts.0.saturating_sub(now.0) > MAX_TS_AHEAD_MS => {
            let message = format!(
                "ts {ts} is more than a day ahead of the server's clock ({now}); it is in \
                 milliseconds since 1970"
            );
            Err(Refusal::new(ErrorCode::BadFrame, message))
        }
        _ => Ok(()),
    }
}

/// Takes one token of the connection, one of its principal and one of the topic for each event, or none
/// at all: a client that is refused and waits as long as it is told must find the tokens it asked for.
pub(super) fn admit(
    counts: &[TopicCount],
    connection: &ConnectionLimit,
    now: Instant,
) -> Result<(), Limited> {
    let total = counts.iter().map(|(_, count)| count).sum();
    connection.try_take(total, now)?;
    for (index, (topic, count)) in counts.iter().enumerate() {
        if let Err(deficit) = topic.limit.try_consume(*count, now) {
            give_back(&counts[..index], connection);
            connection.give_back(counts[index..].iter().map(|(_, count)| count).sum());
            return Err(LimitScope::Topic.limited(deficit));
        }
    }
    Ok(())
}

/// Returns the tokens of admitted events that are not published after all.
pub(super) fn give_back(counts: &[TopicCount], connection: &ConnectionLimit) {
    for (topic, count) in counts {
        topic.limit.give_back(*count);
        connection.give_back(*count);
    }
}

/// Takes the tokens for `events` as they become available.
///
/// # Errors
///
/// If the bus is shutting down, or a limit never refills.
pub(super) async fn admit_paced(
    bus: &Bus,
    connection: &Connection,
    topic: &Arc<TopicInUse>,
    events: u64,
) -> Result<(), Refusal> {
    let mut missing = events;
    while missing > 0 {
        bus.check_open()?;
        let now = now();
        let of_topic = topic.limit.status(now).map_or(missing, |it| it.available);
        let next = missing.min(connection.limit.available(now)).min(of_topic).max(1);
        match admit(&[(Arc::clone(topic), next)], &connection.limit, now) {
            Ok(()) => missing -= next,
            Err(Limited { deficit: Deficit::Wait(time), .. }) => {
                tokio::time::sleep(time.max(SHORTEST_WAIT)).await;
            }
            Err(limited) => {
                bus.throttled(connection, limited.scope, events, Some(&topic.topic));
                return Err(limited.into());
            }
        }
    }
    bus.check_open()
}

/// Takes `bytes` from the byte limits as soon as they allow it.
///
/// # Errors
///
/// If the bus is shutting down.
pub(super) async fn admit_bytes_paced(
    bus: &Bus,
    connection: &Connection,
    bytes: u64,
) -> Result<(), Refusal> {
    while let Err(limited) = connection.limit.try_take_bytes(bytes, now()) {
        let Deficit::Wait(time) = limited.deficit else { return Err(limited.into()) };
        tokio::time::sleep(time.max(SHORTEST_WAIT)).await;
        bus.check_open()?;
    }
    Ok(())
}
