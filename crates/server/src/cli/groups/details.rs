//! Everything about one group, for people.

use std::fmt::Write;

use prombus_proto::{EventId, Group, Timestamp, Topic};
use serde::Deserialize;

use super::GroupEntry;
use crate::cli::human_count::human_count;
use crate::cli::one_line::one_line;
use crate::cli::table::Table;
use crate::cli::times::{human_duration, human_time};

const MAX_REASON_CHARS: usize = 200;

/// What the server says about a group.
#[derive(Deserialize)]
pub(super) struct GroupDetails {
    topic: Topic,
    group: Group,
    members: Vec<Member>,
    in_flight: u64,
    lag: Lag,
    max_attempts: u32,
    created: Timestamp,
    seq: u64,
    redriving: u64,
    remote: bool,
    oldest: Option<Oldest>,
}

#[derive(Deserialize)]
struct Lag {
    events: u64,
    ms: u64,
}

#[derive(Deserialize)]
struct Member {
    principal: Option<String>,
    in_flight: u64,
    max_in_flight: u64,
    ack_timeout_ms: u64,
    paused: bool,
}

#[derive(Deserialize)]
struct Oldest {
    seq: u64,
    id: Option<EventId>,
    age_ms: u64,
    deliveries: u64,
    failures: u64,
    last_reason: Option<String>,
    why: String,
    deadline_ms: Option<u64>,
    retry_ms: Option<u64>,
}

impl GroupDetails {
    pub(super) fn describe(self) -> String {
        let Self { topic, group, members, in_flight, lag, remote, oldest, .. } = self;
        let entry = GroupEntry {
            group,
            members: members.len() as u64,
            in_flight,
            lag_events: lag.events,
            lag_ms: lag.ms,
        };
        let mut text = super::table(&[(topic, entry)]);
        let mut properties = Table::new(&["PROPERTY", "VALUE"]);
        let mut push = |name: &str, value: String| properties.push(vec![name.to_owned(), value]);
        push("settled up to seq", human_count(self.seq));
        push("max attempts", human_count(self.max_attempts.into()));
        push("created", human_time(self.created));
        if self.redriving > 0 {
            push("dead letters being redriven", human_count(self.redriving));
        }
        if remote {
            push("delivered by", "another gateway, which knows its members".to_owned());
        }
        text = text + "\n" + &properties.render(2);
        if !members.is_empty() {
            text = text + "\n" + &table(&members);
        }
        if let Some(oldest) = oldest {
            text = text + "\n" + &oldest.describe();
        }
        text
    }
}

fn table(members: &[Member]) -> String {
    let mut table = Table::new(&["MEMBER", "STATE", "IN FLIGHT", "MAX IN FLIGHT", "ACK TIMEOUT"]);
    for member in members {
        let state = if member.paused { "paused" } else { "consuming" };
        table.push(vec![
            one_line(member.principal.as_deref().unwrap_or("-"), MAX_REASON_CHARS),
            state.to_owned(),
            human_count(member.in_flight),
            human_count(member.max_in_flight),
            human_duration(member.ack_timeout_ms),
        ]);
    }
    table.render(2)
}

impl Oldest {
    fn describe(&self) -> String {
        let id = self.id.as_ref().map_or("unreadable".to_owned(), |id| format!("id {id}"));
        let (seq, age) = (human_count(self.seq), human_duration(self.age_ms));
        let mut text = format!("oldest unfinished event: seq {seq}, {id}, stored {age} ago\n");
        let (deliveries, failures) = (times(self.deliveries), times(self.failures));
        let mut line = |line: &str| writeln!(text, "  {line}").expect("a String takes any text");
        line(&format!("delivered {deliveries}, failed {failures}"));
        if let Some(reason) = &self.last_reason {
            line(&format!("last reason: {}", one_line(reason, MAX_REASON_CHARS)));
        }
        line(&self.why());
        text
    }

    fn why(&self) -> String {
        let within = |ms: Option<u64>| human_duration(ms.unwrap_or(0));
        match self.why.as_str() {
            "in_flight" => {
                format!("a member has it, for another {}", within(self.deadline_ms))
            }
            "backing_off" => format!("it is delivered again in {}", within(self.retry_ms)),
            "storing" => "its acknowledgement or its dead letter is being stored".to_owned(),
            "no_members" => "the group has no members".to_owned(),
            "paused" => "every member is paused".to_owned(),
            "members_busy" => "every member has as many events in flight as it takes, does not \
                               read, or has no tokens left"
                .to_owned(),
            "waits_to_be_alone" => "connections were lost with it in flight; it waits for a \
                                    member with nothing else in flight"
                .to_owned(),
            "ready" => "it is about to be delivered".to_owned(),
            "at_another_gateway" => "another gateway delivers the group".to_owned(),
            // Of a newer server.
            other => one_line(other, MAX_REASON_CHARS),
        }
    }
}

fn times(count: u64) -> String {
    match count {
        1 => "once".to_owned(),
        count => format!("{} times", human_count(count)),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn says_what_the_oldest_event_waits_for() {
        let described = |why: serde_json::Value| {
            let mut oldest = json!({
                "seq": 1234, "id": "order-7", "age_ms": 9_000_000, "deliveries": 3, "failures": 1,
                "last_reason": "no\nroute",
            });
            let members = oldest.as_object_mut().unwrap();
            members.extend(why.as_object().unwrap().clone());
            let details = json!({
                "topic": "orders", "group": "billing", "in_flight": 1, "max_attempts": 5,
                "lag": {"events": 2345, "ms": 9_000_000}, "created": 0, "seq": 1233,
                "redriving": 2, "remote": false, "oldest": oldest,
                "members": [{
                    "principal": "token billing", "in_flight": 1, "max_in_flight": 100,
                    "ack_timeout_ms": 30_000, "paused": true,
                }],
            });
            serde_json::from_value::<GroupDetails>(details).unwrap().describe()
        };
        let text = described(json!({"why": "backing_off", "retry_ms": 25_000}));
        for line in [
            "TOPIC   GROUP    MEMBERS  IN FLIGHT    LAG     AGE",
            "orders  billing        1          1  2,345  2h 30m",
            "settled up to seq            1,233",
            "dead letters being redriven  2",
            "token billing  paused          1            100          30s",
            "oldest unfinished event: seq 1,234, id order-7, stored 2h 30m ago",
            "  delivered 3 times, failed once",
            "  last reason: no route",
            "  it is delivered again in 25s",
        ] {
            assert!(text.lines().any(|written| written == line), "{line} is not in\n{text}");
        }
        let text = described(json!({"why": "in_flight", "deadline_ms": 61_000}));
        assert!(text.ends_with("  a member has it, for another 1m 1s\n"), "{text}");
        assert!(described(json!({"why": "on_holiday"})).ends_with("  on_holiday\n"));
    }
}
