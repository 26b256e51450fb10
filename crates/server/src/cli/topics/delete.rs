//! `prombus topics delete`.

use std::error::Error;
use std::io::{self, IsTerminal};

use bytes::Bytes;
use hyper::Method;
use prombus_proto::Topic;

use crate::cli::server_arguments::HttpArguments;

#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  prombus topics delete orders.created
  prombus topics delete tmp.one tmp.two

Removes everything that is stored for the topics and cannot be undone. Subscriptions to them end. Dead letters of a
topic are a topic of their own, dlq.TOPIC, and stay. Publishing to a deleted topic creates it again.
When stdout is not a terminal, prints one JSON object per topic and line.")]
pub(super) struct DeleteArguments {
    #[arg(required = true, value_name = "TOPIC")]
    topics: Vec<Topic>,
    #[command(flatten)]
    server: HttpArguments,
}

pub(super) async fn run(arguments: DeleteArguments) -> Result<(), Box<dyn Error>> {
    let DeleteArguments { topics, server } = arguments;
    let mut client = server.client()?;
    for topic in topics {
        let path = format!("/topics/{topic}");
        let answer = client.send(Method::DELETE, &path, "application/json", Bytes::new()).await;
        // Those before it are deleted, and said to be.
        let json = answer.map_err(|failure| format!("{topic}: {failure}"))?.bytes().await?;
        if io::stdout().is_terminal() {
            super::print(format!("deleted {topic}\n").as_bytes())?;
        } else {
            super::print(&[&json, b"\n".as_slice()].concat())?;
        }
    }
    Ok(())
}
