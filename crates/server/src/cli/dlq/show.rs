//! `prombus dlq show`.

use std::error::Error;
use std::io::{self, IsTerminal};

use prombus_proto::{EventId, Group, Topic};

use super::letter::{Letter, LetterPage, LetterQuery, parse};
use crate::cli::output::print;
use crate::cli::server_arguments::HttpArguments;

const PAGE_LETTERS: u64 = 100;

#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  prombus dlq show orders.created 0198c0de-0000-7000-8000-000000000000
  prombus dlq show orders.created order-7 | jq .original.payload

Shows several letters if the event failed in several groups, or failed again after it was redriven.
With --json, or when stdout is not a terminal, prints one JSON object per letter and line.")]
pub(super) struct ShowArguments {
    topic: Topic,
    /// Id of the event, or of its dead letter
    id: EventId,
    /// Show only the letters of this group
    #[arg(long, value_name = "GROUP")]
    group: Option<Group>,
    /// Print JSON, even on a terminal
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    server: HttpArguments,
}

pub(super) async fn run(arguments: ShowArguments) -> Result<(), Box<dyn Error>> {
    let ShowArguments { topic, id, group, json, server } = arguments;
    let prints_json = json || !io::stdout().is_terminal();
    let mut client = server.client()?;
    let id = Some(id);
    let mut query = LetterQuery { topic, group, id, after: None, limit: PAGE_LETTERS };
    let mut found = 0;
    loop {
        let page = query.ask(&mut client).await?;
        let LetterPage { letters, next } = parse(&page)?;
        for letter in letters {
            let text = if prints_json {
                format!("{letter}\n")
            } else {
                let separator = if found > 0 { "\n" } else { "" };
                let letter: Letter<'_> = parse(letter.get().as_bytes())?;
                format!("{separator}{}", letter.describe())
            };
            print(text.as_bytes())?;
            found += 1;
        }
        if !query.advance(next)? {
            break;
        }
    }
    match (found, &query.id) {
        (0, Some(id)) => {
            Err(format!("{} has no dead letter of the event {id}", query.topic).into())
        }
        _ => Ok(()),
    }
}
