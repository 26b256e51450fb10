//! `prombus replay`.

use std::error::Error;
use std::io::{self, Write};

use clap::CommandFactory;
use clap::error::ErrorKind;
use prombus_proto::{EventId, Timestamp, Topic};
use serde::Deserialize;
use serde_json::value::RawValue;

use super::Arguments;
use super::server_arguments::HttpArguments;
use super::times::time;
use prombus_client::DamagedRange;
use prombus_client::transport::{HttpFailure, Query};

#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  prombus replay orders.created
  prombus replay orders.created --limit 10
  prombus replay orders.created --ts 2h | jq .payload
  prombus replay orders.created --after-id 0198c0de-0000-7000-8000-000000000000

Prints one event per line, as stored, in topic order, and stops at the end of the topic. To follow new
events, use `prombus subscribe`. Fails at events that the server cannot read back, unless --skip-damaged is
given.

TIME is a duration before now, such as 7d, 90m or 2h30m; a date or time such as 2026-01-02 or
2026-01-02T03:04:05Z, in UTC unless it has an offset; or milliseconds since 1970.")]
pub(crate) struct ReplayArguments {
    /// Topic to read, such as orders.created
    topic: Topic,
    /// Where to start; optional with --ts or --after-id
    #[arg(long, value_name = "START")]
    from: Option<ReplayStart>,
    /// Start at the first event at or after this time, such as 7d (ago) or 2026-01-02
    #[arg(long, value_name = "TIME", value_parser = time, required_if_eq("from", "ts"),
          conflicts_with = "after_id")]
    ts: Option<Timestamp>,
    /// Start after the event with this id
    #[arg(long, value_name = "ID", required_if_eq("from", "afterId"))]
    after_id: Option<EventId>,
    /// Stop after this many events
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u64).range(1..))]
    limit: Option<u64>,
    /// Continue behind events that the server cannot read back, and name them on stderr
    #[arg(long)]
    skip_damaged: bool,
    #[command(flatten)]
    server: HttpArguments,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum ReplayStart {
    Earliest,
    Ts,
    #[value(name = "afterId")]
    AfterId,
}

/// Events per request.
const PAGE_EVENTS: u64 = 1000;

#[derive(Deserialize)]
struct ReplayPage<'a> {
    #[serde(borrow)]
    events: Vec<&'a RawValue>,
    damaged: Option<DamagedRange>,
    next: Option<String>,
}

pub(crate) async fn run(arguments: ReplayArguments) -> Result<(), Box<dyn Error>> {
    let ReplayArguments { topic, from, ts, after_id, limit, skip_damaged, server } = arguments;
    reject_conflicting_start(from, ts, after_id.as_ref());
    let mut client = server.client()?;
    let mut remaining = limit.unwrap_or(u64::MAX);
    let mut path = Query::of("/replay")
        .with("topic", Some(topic))
        .with("ts", ts)
        .with("afterId", after_id)
        .with("limit", Some(PAGE_EVENTS.min(remaining)))
        .as_str()
        .to_owned();
    loop {
        let json = client.get(&path).await?.bytes().await?;
        let page: ReplayPage<'_> =
            serde_json::from_slice(&json).map_err(|error| HttpFailure::not_understood(&error))?;
        let wanted = page.events.len().min(usize::try_from(remaining).unwrap_or(usize::MAX));
        print(&page.events[..wanted])?;
        remaining -= wanted as u64;
        if remaining == 0 {
            return Ok(());
        }
        match page.damaged {
            Some(damaged) if skip_damaged => eprintln!("prombus: skipped: {damaged}"),
            Some(damaged) => {
                return Err(format!("{damaged}; add --skip-damaged to continue behind").into());
            }
            None => {}
        }
        let Some(query) = page.next else { return Ok(()) };
        let next = format!("/replay?{query}");
        if next == path {
            let reason = "the next page is the same page".to_owned();
            return Err(HttpFailure::NotUnderstood(reason).into());
        }
        path = next;
    }
}

/// Prints the events byte for byte, with a single write.
fn print(events: &[&RawValue]) -> io::Result<()> {
    let mut lines = Vec::with_capacity(events.iter().map(|event| event.get().len() + 1).sum());
    for event in events {
        lines.extend_from_slice(event.get().as_bytes());
        lines.push(b'\n');
    }
    let mut out = io::stdout().lock();
    out.write_all(&lines)?;
    out.flush()
}

/// Exits with a usage error if `--from` contradicts another flag.
fn reject_conflicting_start(
    from: Option<ReplayStart>,
    ts: Option<Timestamp>,
    after_id: Option<&EventId>,
) {
    let flag = match from {
        Some(ReplayStart::Earliest | ReplayStart::AfterId) if ts.is_some() => "--ts",
        Some(ReplayStart::Earliest | ReplayStart::Ts) if after_id.is_some() => "--after-id",
        _ => return,
    };
    let message = format!("{flag} conflicts with the start given by --from");
    Arguments::command().error(ErrorKind::ArgumentConflict, message).exit();
}
