//! `prombus dlq drop`.

use std::error::Error;
use std::io::{self, IsTerminal};

use clap::CommandFactory;
use clap::error::ErrorKind;
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
  prombus dlq drop orders.created --id order-7
  prombus dlq drop orders.created --group billing
  prombus dlq drop orders.created --all

Cannot be undone: dropped letters are no longer listed and cannot be redriven. Letters that come meanwhile stay. With
--all, dlq.TOPIC is emptied, except for copies that redriven events need; otherwise it keeps its events until its
retention removes them.
When stdout is not a terminal, prints a JSON object.")]
pub(super) struct DropArguments {
    topic: Topic,
    #[command(flatten)]
    selection: Selection,
    /// Drop all letters of the topic
    #[arg(long, conflicts_with_all = ["group", "ids"])]
    all: bool,
    #[command(flatten)]
    server: HttpArguments,
}

#[derive(Deserialize)]
struct Dropped {
    dropped: u64,
}

#[derive(Serialize)]
struct Total {
    topic: Topic,
    dropped: u64,
}

pub(super) async fn run(arguments: DropArguments) -> Result<(), Box<dyn Error>> {
    let DropArguments { topic, selection, all, server } = arguments;
    if !all && selection.is_everything() {
        let message = "say which letters to drop: --id, --group, or --all for every one";
        crate::cli::Arguments::command().error(ErrorKind::MissingRequiredArgument, message).exit();
    }
    let mut client = server.client()?;
    let path = format!("/dlq/{topic}/drop");
    let everywhere = all.then(|| ("all".to_owned(), true.into()));
    let everywhere: Map<_, _> = everywhere.into_iter().collect();
    let mut total = Total { topic, dropped: 0 };
    let mut line = StatusLine::new(false);
    let result = selection
        .send(&mut client, &path, &everywhere, |page: Dropped| {
            total.dropped += page.dropped;
            line.update(|_| total.describe());
        })
        .await;
    line.set("");
    if let Err(failure) = result {
        return Err(match total.dropped {
            0 => failure.into(),
            count => {
                format!("{failure}; {} letters were dropped before", human_count(count)).into()
            }
        });
    }
    if total.dropped == 0 {
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
        format!("dropped {} dead letters of {}", human_count(self.dropped), self.topic)
    }
}
