//! `prombus dlq list`.

use std::error::Error;
use std::io::{self, IsTerminal};

use prombus_proto::{Clock, Group, SystemClock, Topic};

use super::letter::{Letter, LetterPage, LetterQuery, parse, table};
use crate::cli::output::print;
use crate::cli::server_arguments::HttpArguments;

/// Letters per request.
const PAGE_LETTERS: u64 = 1000;

#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  prombus dlq list orders.created
  prombus dlq list orders.created --group billing --limit 10
  prombus dlq list orders.created | jq -r 'select(.redriven | not) | .err' | sort | uniq -c

Lists the oldest letters first, without those that were dropped. ID is the id of the event, AGE the time since it
became a dead letter. With --json, or when stdout is not a terminal, prints one JSON object per letter and
line, with the event in full.")]
pub(super) struct ListArguments {
    topic: Topic,
    /// List only the letters of this group
    #[arg(long, value_name = "GROUP")]
    group: Option<Group>,
    /// Stop after this many letters
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u64).range(1..))]
    limit: Option<u64>,
    /// Print JSON, even on a terminal
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    server: HttpArguments,
}

pub(super) async fn run(arguments: ListArguments) -> Result<(), Box<dyn Error>> {
    let ListArguments { topic, group, limit, json, server } = arguments;
    let prints_json = json || !io::stdout().is_terminal();
    let mut client = server.client()?;
    let mut remaining = limit.unwrap_or(u64::MAX);
    let mut query = LetterQuery { topic, group, id: None, after: None, limit: PAGE_LETTERS };
    let mut table = table();
    loop {
        query.limit = PAGE_LETTERS.min(remaining);
        let page = query.ask(&mut client).await?;
        let LetterPage { letters, next } = parse(&page)?;
        if prints_json {
            let lines: String = letters.iter().map(|letter| format!("{letter}\n")).collect();
            print(lines.as_bytes())?;
        } else {
            let now = SystemClock.now();
            for letter in &letters {
                let letter: Letter<'_> = parse(letter.get().as_bytes())?;
                table.push(letter.row(now));
            }
        }
        remaining = remaining.saturating_sub(letters.len() as u64);
        if remaining == 0 || !query.advance(next)? {
            break;
        }
    }
    if !prints_json {
        print(table.render(6).as_bytes())?;
    }
    Ok(())
}
