//! `prombus topics purge`.

use std::error::Error;
use std::io::{self, IsTerminal};

use bytes::Bytes;
use hyper::Method;
use prombus_proto::{Clock, SystemClock, Topic};
use serde::Deserialize;
use serde_json::json;

use crate::cli::server_arguments::HttpArguments;

#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  prombus topics purge orders.created --before-seq 1000
  prombus topics purge orders.created --before 7d
  prombus topics purge orders.created --all

Removes events from the front of the topic, whether or not consumer groups have finished them. The topic keeps its
settings and groups, and its numbering goes on. --before removes the events before the first one that is not older.
When stdout is not a terminal, prints a JSON object.")]
pub(super) struct PurgeArguments {
    topic: Topic,
    #[command(flatten)]
    criterion: Criterion,
    #[command(flatten)]
    server: HttpArguments,
}

#[derive(clap::Args)]
#[group(required = true, multiple = false)]
struct Criterion {
    /// Remove the events before this position
    #[arg(long, value_name = "SEQ")]
    before_seq: Option<u64>,
    /// Remove the events before this time: milliseconds since 1970, or an age such as 90s, 30m, 12h or 7d
    #[arg(long, value_name = "TIME", value_parser = moment)]
    before: Option<Moment>,
    /// Remove all events
    #[arg(long)]
    all: bool,
}

/// A time, or how long ago it was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Moment {
    At(u64),
    Ago(u64),
}

#[derive(Deserialize)]
struct Purged {
    removed: u64,
    first_seq: u64,
}

pub(super) async fn run(arguments: PurgeArguments) -> Result<(), Box<dyn Error>> {
    let PurgeArguments { topic, criterion, server } = arguments;
    let body = match criterion {
        Criterion { before_seq: Some(seq), .. } => json!({"before_seq": seq}),
        Criterion { before: Some(before), .. } => {
            json!({"before_ts": before.timestamp(SystemClock.now().0)})
        }
        Criterion { .. } => json!({"all": true}),
    };
    let mut client = server.client()?;
    let path = format!("/topics/{topic}/purge");
    let body = Bytes::from(body.to_string());
    let answer = client.send(Method::POST, &path, "application/json", body).await?;
    let json = answer.bytes().await?;
    if !io::stdout().is_terminal() {
        return Ok(super::print(&[&json, b"\n".as_slice()].concat())?);
    }
    let Purged { removed, first_seq } = super::parse(&json)?;
    let text = format!("removed {removed} events of {topic}, which now begins at {first_seq}\n");
    Ok(super::print(text.as_bytes())?)
}

impl Moment {
    const fn timestamp(self, now: u64) -> u64 {
        match self {
            Moment::At(ts) => ts,
            Moment::Ago(ms) => now.saturating_sub(ms),
        }
    }
}

fn moment(text: &str) -> Result<Moment, String> {
    let expected =
        || "expected milliseconds since 1970, or an age such as 90s, 30m, 12h or 7d".to_owned();
    let digits = text.len() - text.trim_start_matches(|digit: char| digit.is_ascii_digit()).len();
    let (number, unit) = text.split_at(digits);
    let number: u64 = number.parse().map_err(|_| expected())?;
    let ms_per_unit = match unit {
        "" => return Ok(Moment::At(number)),
        "s" => 1000,
        "m" => 60 * 1000,
        "h" => 60 * 60 * 1000,
        "d" => 24 * 60 * 60 * 1000,
        _ => return Err(expected()),
    };
    number.checked_mul(ms_per_unit).map(Moment::Ago).ok_or_else(expected)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parses_times_and_ages() {
        for (text, expected) in [
            ("1700000000000", Moment::At(1_700_000_000_000)),
            ("90s", Moment::Ago(90_000)),
            ("30m", Moment::Ago(1_800_000)),
            ("12h", Moment::Ago(43_200_000)),
            ("7d", Moment::Ago(604_800_000)),
        ] {
            assert_eq!(moment(text), Ok(expected), "{text}");
        }
        for text in
            ["", "d", "7w", "-1", "1.5h", "7 d", "99999999999999999999", "9999999999999999d"]
        {
            assert!(moment(text).is_err(), "{text}");
        }
        assert_eq!(Moment::Ago(5).timestamp(3), 0);
    }
}
