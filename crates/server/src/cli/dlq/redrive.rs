//! `prombus dlq redrive`.

use std::error::Error;
use std::io::{self, IsTerminal};

use prombus_proto::Topic;
use serde::{Deserialize, Serialize};
use serde_json::Map;

use super::selection::Selection;
use crate::cli::human_count::human_count;
use crate::cli::output::print;
use crate::cli::server_arguments::HttpArguments;
use crate::cli::status_line::StatusLine;

#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  prombus dlq redrive orders.created
  prombus dlq redrive orders.created --group billing
  prombus dlq redrive orders.created --id order-7 --id order-9

Delivers each event again to the group that failed and to no other, with the same id and attempts from 1. A letter is
redriven once: letters that were redriven before are skipped, and so are those whose group or event is gone. An
event that fails again becomes a new letter, which this command leaves alone.
When stdout is not a terminal, prints a JSON object.")]
pub(super) struct RedriveArguments {
    topic: Topic,
    #[command(flatten)]
    selection: Selection,
    #[command(flatten)]
    server: HttpArguments,
}

#[derive(Deserialize)]
struct Redriven {
    redriven: u64,
    skipped: u64,
}

#[derive(Serialize)]
struct Total {
    topic: Topic,
    redriven: u64,
    skipped: u64,
}

pub(super) async fn run(arguments: RedriveArguments) -> Result<(), Box<dyn Error>> {
    let RedriveArguments { topic, selection, server } = arguments;
    let mut client = server.client()?;
    let path = format!("/dlq/{topic}/redrive");
    let mut total = Total { topic, redriven: 0, skipped: 0 };
    let mut line = StatusLine::new(false);
    let result = selection
        .send(&mut client, &path, &Map::new(), |page: Redriven| {
            total.redriven += page.redriven;
            total.skipped += page.skipped;
            line.update(|_| total.describe());
        })
        .await;
    line.set("");
    if let Err(failure) = result {
        return Err(match total.redriven {
            0 => failure.into(),
            count => {
                format!("{failure}; {} letters were redriven before", human_count(count)).into()
            }
        });
    }
    if total.redriven + total.skipped == 0 {
        selection.reject_unknown_ids(&total.topic)?;
    }
    let text = match io::stdout().is_terminal() {
        true => total.describe(),
        false => serde_json::to_string(&total)?,
    };
    Ok(print(format!("{text}\n").as_bytes())?)
}

impl Total {
    fn describe(&self) -> String {
        let Self { topic, redriven, skipped } = self;
        let mut text = format!("redrove {} dead letters of {topic}", human_count(*redriven));
        if *skipped > 0 {
            text += &format!(", skipped {}", human_count(*skipped));
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_what_was_skipped() {
        let mut total = Total { topic: Topic::new("t").unwrap(), redriven: 1234, skipped: 0 };
        assert_eq!(total.describe(), "redrove 1,234 dead letters of t");
        total.skipped = 5;
        assert_eq!(total.describe(), "redrove 1,234 dead letters of t, skipped 5");
    }
}
