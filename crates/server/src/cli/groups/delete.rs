//! `prombus groups delete`.

use std::error::Error;
use std::io::{self, IsTerminal};

use bytes::Bytes;
use hyper::Method;
use prombus_proto::{Group, Topic};

use crate::cli::output::print;
use crate::cli::server_arguments::HttpArguments;

#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  prombus groups delete orders.created billing
  prombus groups delete orders.created test-1 test-2

Removes the progress and the marks of the groups and cannot be undone. Their subscriptions end. Their dead letters stay,
but can no longer be redriven. Subscribing to a deleted group creates it again.
When stdout is not a terminal, prints one JSON object per group and line.")]
pub(super) struct DeleteArguments {
    topic: Topic,
    #[arg(required = true, value_name = "GROUP")]
    groups: Vec<Group>,
    #[command(flatten)]
    server: HttpArguments,
}

pub(super) async fn run(arguments: DeleteArguments) -> Result<(), Box<dyn Error>> {
    let DeleteArguments { topic, groups, server } = arguments;
    let mut client = server.client()?;
    for group in groups {
        let path = format!("/groups/{topic}/{group}");
        let answer = client.send(Method::DELETE, &path, "application/json", Bytes::new()).await;
        // Those before it are deleted, and said to be.
        let json = answer
            .map_err(|failure| {
                format!("{group}: {failure}; groups named after it are not deleted")
            })?
            .bytes()
            .await?;
        if io::stdout().is_terminal() {
            print(format!("deleted {group} of {topic}\n").as_bytes())?;
        } else {
            print(&[&json, b"\n".as_slice()].concat())?;
        }
    }
    Ok(())
}
