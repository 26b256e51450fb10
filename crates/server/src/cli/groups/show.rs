//! `prombus groups show`.

use std::error::Error;
use std::io::{self, IsTerminal};

use bytes::Bytes;
use prombus_client::transport::HttpFailure;
use prombus_proto::{Group, Topic};

use super::details::GroupDetails;
use crate::cli::output::print;
use crate::cli::server_arguments::HttpArguments;

#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  prombus groups show orders.created billing
  prombus groups show orders.created billing | jq .oldest

Shows whether the group makes progress and, if not, what its oldest unfinished event waits for.
With --json, or when stdout is not a terminal, prints a JSON object, with exact numbers.")]
pub(super) struct ShowArguments {
    topic: Topic,
    group: Group,
    /// Print JSON, even on a terminal
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    server: HttpArguments,
}

pub(super) async fn run(arguments: ShowArguments) -> Result<(), Box<dyn Error>> {
    let ShowArguments { topic, group, json, server } = arguments;
    let mut client = server.client()?;
    let answer = client.get(&format!("/groups/{topic}/{group}")).await?.bytes().await?;
    print_details(&answer, json)
}

/// Prints what the server says about a group.
pub(super) fn print_details(answer: &Bytes, prints_json: bool) -> Result<(), Box<dyn Error>> {
    if prints_json || !io::stdout().is_terminal() {
        return Ok(print(&[answer, b"\n".as_slice()].concat())?);
    }
    let details: GroupDetails =
        serde_json::from_slice(answer).map_err(|error| HttpFailure::not_understood(&error))?;
    Ok(print(details.describe().as_bytes())?)
}
