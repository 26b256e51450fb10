//! `prombus replay`.

use std::error::Error;
use std::io::{self, Write};

use clap::CommandFactory;
use clap::error::ErrorKind;
use prombus_proto::{EventId, Topic};
use serde::Deserialize;
use serde_json::value::RawValue;

use super::Arguments;
use super::server_arguments::HttpArguments;
use prombus_client::transport::{HttpFailure, Query};

/// What `replay` takes.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  prombus replay orders.created
  prombus replay orders.created --limit 10
  prombus replay orders.created --ts 1767225600000 | jq .payload
  prombus replay orders.created --after-id 0198c0de-0000-7000-8000-000000000000

Each event is one line, as it is stored, in the order of the topic. It ends where the topic ends:
`prombus subscribe` follows what is yet to come.")]
pub(crate) struct ReplayArguments {
    /// What to read, such as orders.created
    topic: Topic,
    /// Where to begin; --ts or --after-id alone say enough
    #[arg(long, value_name = "PLACE")]
    from: Option<From>,
    /// Begin with the first event of this time or later, in milliseconds since 1970
    #[arg(long, value_name = "MS", required_if_eq("from", "ts"), conflicts_with = "after_id")]
    ts: Option<u64>,
    /// Begin behind the event with this id
    #[arg(long, value_name = "ID", required_if_eq("from", "afterId"))]
    after_id: Option<EventId>,
    /// End after so many events
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u64).range(1..))]
    limit: Option<u64>,
    #[command(flatten)]
    server: HttpArguments,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum From {
    Earliest,
    Ts,
    #[value(name = "afterId")]
    AfterId,
}

/// How many events are asked for at a time.
const PAGE_EVENTS: u64 = 1000;

#[derive(Deserialize)]
struct Page<'a> {
    #[serde(borrow)]
    events: Vec<&'a RawValue>,
    next: Option<String>,
}

pub(crate) async fn run(arguments: ReplayArguments) -> Result<(), Box<dyn Error>> {
    let ReplayArguments { topic, from, ts, after_id, limit, server } = arguments;
    refuse_contradiction(from, ts, after_id.as_ref());
    let mut client = server.client()?;
    let mut left = limit.unwrap_or(u64::MAX);
    let mut path = Query::of("/replay")
        .with("topic", Some(topic))
        .with("ts", ts)
        .with("afterId", after_id)
        .with("limit", Some(PAGE_EVENTS.min(left)))
        .as_str()
        .to_owned();
    loop {
        let json = client.get(&path).await?.bytes().await?;
        let page: Page<'_> =
            serde_json::from_slice(&json).map_err(|error| HttpFailure::not_understood(&error))?;
        let wanted = page.events.len().min(usize::try_from(left).unwrap_or(usize::MAX));
        match print(&page.events[..wanted]) {
            // Whoever reads has seen enough, as in `prombus replay … | head`.
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => return Ok(()),
            printed => printed?,
        }
        left -= wanted as u64;
        match page.next {
            Some(query) if left > 0 => path = format!("/replay?{query}"),
            _ => return Ok(()),
        }
    }
}

/// As bytes that came, and all at once.
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

/// Ends the process, as for any wrong usage, where the place to begin is said twice.
fn refuse_contradiction(from: Option<From>, ts: Option<u64>, after_id: Option<&EventId>) {
    let flag = match from {
        Some(From::Earliest | From::AfterId) if ts.is_some() => "--ts",
        Some(From::Earliest | From::Ts) if after_id.is_some() => "--after-id",
        _ => return,
    };
    let message = format!("{flag} says another place to begin at than --from does");
    Arguments::command().error(ErrorKind::ArgumentConflict, message).exit();
}
