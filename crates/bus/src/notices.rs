//! Log lines for operators about dead letters and throttled clients.

use prombus_proto::{Group, Topic};

use crate::limits::{LimitScope, Principal};
use crate::paced_log::{PacedLine, PacedLog};

/// Lines per second about topics, and about clients.
const MAX_TOPICS: usize = 100;
const MAX_CLIENTS: usize = 100;
/// Consumers may give reasons of any length.
const MAX_ERROR_CHARS: usize = 300;

/// Writes the lines, each at most once a second, with a count.
#[derive(Debug)]
pub(crate) struct Notices {
    dead_letters: PacedLog<Topic, DeadLetterCause>,
    throttled: PacedLog<(Option<Principal>, LimitScope), Option<Topic>>,
}

/// The first of the dead letters that a line is about.
struct DeadLetterCause {
    group: Group,
    error: String,
}

impl Default for Notices {
    fn default() -> Self {
        Self {
            dead_letters: PacedLog::new(MAX_TOPICS, write_dead_letters),
            throttled: PacedLog::new(MAX_CLIENTS, write_throttled),
        }
    }
}

impl Notices {
    /// Records that `group` gave up on `letters` events of `topic`, one of them because of `error`.
    pub(crate) fn dead_lettered(&self, topic: &Topic, group: &Group, letters: u64, error: &str) {
        let error = || error.chars().take(MAX_ERROR_CHARS).collect();
        let cause = || DeadLetterCause { group: group.clone(), error: error() };
        self.dead_letters.record(topic.clone(), letters, cause);
    }

    /// Records that a rate limit refused `events` of a client, the first of them of `topic`.
    pub(crate) fn throttled(
        &self,
        client: Option<Principal>,
        limit: LimitScope,
        events: u64,
        topic: Option<&Topic>,
    ) {
        self.throttled.record((client, limit), events, || topic.cloned());
    }
}

fn write_dead_letters(line: PacedLine<Topic, DeadLetterCause>) {
    match line {
        PacedLine::Repeated { key: topic, details: DeadLetterCause { group, error }, count } => {
            tracing::warn!(
                %topic,
                %group,
                count,
                error,
                "events became dead letters: the group gave up on them, and they wait in dlq.{topic}; \
                 find out why its consumers fail, then redrive or drop them (prombus dlq)"
            );
        }
        PacedLine::Others { count } => tracing::warn!(
            count,
            "events of many other topics became dead letters; \
             prombus_events_dead_lettered_total counts them by topic and group"
        ),
    }
}

fn write_throttled(line: PacedLine<(Option<Principal>, LimitScope), Option<Topic>>) {
    match line {
        PacedLine::Repeated { key: (client, limit), details: topic, count } => {
            let client = client.map_or_else(|| "a client".to_owned(), |client| client.to_string());
            tracing::warn!(
                client,
                limit = limit.name(),
                topic = topic.as_ref().map(Topic::as_str),
                count,
                "events were refused by a rate limit: the client publishes faster than allowed and is told to \
                 try again; slow it down, or raise {}",
                limit.setting()
            );
        }
        PacedLine::Others { count } => tracing::warn!(
            count,
            "events of many other clients were refused by rate limits; \
             prombus_events_rate_limited_total counts them by limit"
        ),
    }
}
