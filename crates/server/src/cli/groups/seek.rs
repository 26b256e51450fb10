//! `prombus groups seek`.

use std::error::Error;
use std::io::{self, IsTerminal};

use bytes::Bytes;
use hyper::Method;
use prombus_client::transport::HttpFailure;
use prombus_proto::frame::StartFrom;
use prombus_proto::{EventId, Group, Topic};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::cli::human_count::human_count;
use crate::cli::output::print;
use crate::cli::server_arguments::HttpArguments;
use crate::cli::start_from::start_from;

#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  prombus groups seek orders.created billing --to earliest --dry-run
  prombus groups seek orders.created billing --to 2h
  prombus groups seek orders.created billing --to 2026-01-02T03:04:05Z
  prombus groups seek orders.created billing --seq 1000
  prombus groups seek orders.created billing --after-id 0198c0de-0000-7000-8000-000000000000

Works while consumers are connected: they lose the events they have in flight, and go on at the new position.
Backwards, the group gets events again that it has finished. Its marks, by which exactly-once consumers recognize
those, are removed unless --honour-marks is given. Forwards, the events in between are skipped.

TIME is a duration before now, such as 7d, 90m or 2h30m; a date or time such as 2026-01-02 or
2026-01-02T03:04:05Z, in UTC unless it has an offset; or, after ts:, milliseconds since 1970.
When stdout is not a terminal, prints a JSON object.")]
pub(super) struct SeekArguments {
    topic: Topic,
    group: Group,
    #[command(flatten)]
    target: Target,
    /// Change nothing: say where the group would go on, and with how many events
    #[arg(long)]
    dry_run: bool,
    /// Keep the group's marks, so that exactly-once consumers skip the events they have handled
    #[arg(long)]
    honour_marks: bool,
    #[command(flatten)]
    server: HttpArguments,
}

#[derive(clap::Args)]
#[group(required = true, multiple = false)]
struct Target {
    /// Where to: earliest, latest, a TIME such as 2h (ago) or ts:TIME, or after:ID
    #[arg(long, value_name = "START", value_parser = start_from)]
    to: Option<StartFrom>,
    /// Go on with the event at this position
    #[arg(long, value_name = "SEQ", value_parser = clap::value_parser!(u64).range(1..))]
    seq: Option<u64>,
    /// Go on after the event with this id
    #[arg(long, value_name = "ID")]
    after_id: Option<EventId>,
}

#[derive(Deserialize)]
struct Sought {
    next_seq: u64,
    events: u64,
    marks_removed: u64,
    dry_run: bool,
}

pub(super) async fn run(arguments: SeekArguments) -> Result<(), Box<dyn Error>> {
    let SeekArguments { topic, group, target, dry_run, honour_marks, server } = arguments;
    let mut body = target.into_json();
    body["dry_run"] = dry_run.into();
    body["honour_marks"] = honour_marks.into();
    let mut client = server.client()?;
    let path = format!("/groups/{topic}/{group}/seek");
    let body = Bytes::from(body.to_string());
    let answer = client.send(Method::POST, &path, "application/json", body).await?;
    let json = answer.bytes().await?;
    if !io::stdout().is_terminal() {
        return Ok(print(&[&json, b"\n".as_slice()].concat())?);
    }
    let sought: Sought =
        serde_json::from_slice(&json).map_err(|error| HttpFailure::not_understood(&error))?;
    Ok(print(sought.describe(&topic, &group).as_bytes())?)
}

impl Target {
    fn into_json(self) -> Value {
        match self {
            Self { seq: Some(seq), .. } => json!({"to": "seq", "seq": seq}),
            Self { after_id: Some(id), .. } | Self { to: Some(StartFrom::AfterId(id)), .. } => {
                json!({"to": "afterId", "afterId": id})
            }
            Self { to: Some(StartFrom::Ts(ts)), .. } => json!({"to": "ts", "ts": ts}),
            Self { to: Some(StartFrom::Earliest), .. } => json!({"to": "earliest"}),
            Self { to: Some(StartFrom::Latest) | None, .. } => json!({"to": "latest"}),
        }
    }
}

impl Sought {
    fn describe(&self, topic: &Topic, group: &Group) -> String {
        let (next, events) = (human_count(self.next_seq), human_count(self.events));
        let verb = if self.dry_run { "would go on" } else { "goes on" };
        let mut text = format!("{group} {verb} at seq {next} of {topic}, with {events} events");
        if self.marks_removed > 0 {
            text += &format!("; {} marks removed", human_count(self.marks_removed));
        }
        text + "\n"
    }
}

#[cfg(test)]
mod tests {
    use prombus_proto::Timestamp;

    use super::*;

    #[test]
    fn each_target_has_its_member() {
        let of = |to| Target { to: Some(to), seq: None, after_id: None }.into_json();
        let id = EventId::new("a").unwrap();
        assert_eq!(of(StartFrom::Earliest), json!({"to": "earliest"}));
        assert_eq!(of(StartFrom::Latest), json!({"to": "latest"}));
        assert_eq!(of(StartFrom::Ts(Timestamp(7))), json!({"to": "ts", "ts": 7}));
        let after = json!({"to": "afterId", "afterId": "a"});
        assert_eq!(of(StartFrom::AfterId(id.clone())), after);
        assert_eq!(Target { to: None, seq: None, after_id: Some(id) }.into_json(), after);
        let at = Target { to: None, seq: Some(9), after_id: None };
        assert_eq!(at.into_json(), json!({"to": "seq", "seq": 9}));
    }

    #[test]
    fn says_where_the_group_goes_on() {
        let (topic, group) = (Topic::new("orders").unwrap(), Group::new("billing").unwrap());
        let sought = |marks_removed, dry_run| {
            Sought { next_seq: 1001, events: 2345, marks_removed, dry_run }.describe(&topic, &group)
        };
        let at = "at seq 1,001 of orders, with 2,345 events";
        assert_eq!(sought(0, true), format!("billing would go on {at}\n"));
        assert_eq!(sought(7, false), format!("billing goes on {at}; 7 marks removed\n"));
    }
}
