//! `prombus groups set`.

use std::error::Error;
use std::str::FromStr;

use bytes::Bytes;
use hyper::Method;
use prombus_proto::limits::MAX_ATTEMPTS;
use prombus_proto::{Group, Topic};
use serde_json::json;

use super::show::print_details;
use crate::cli::server_arguments::HttpArguments;

#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  prombus groups set orders.created billing --max-attempts 10
  prombus groups set orders.created billing --max-attempts default

Takes effect immediately, for all members of the group. A consumer that names its own number when it subscribes
changes it again. Prints the group like prombus groups show.")]
pub(super) struct SetArguments {
    topic: Topic,
    group: Group,
    /// Failures before an event is dead-lettered, or default for what the server's configuration says
    #[arg(long, value_name = "COUNT")]
    max_attempts: MaxAttempts,
    /// Print JSON, even on a terminal
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    server: HttpArguments,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum MaxAttempts {
    Count(u32),
    Default,
}

impl FromStr for MaxAttempts {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == "default" {
            return Ok(Self::Default);
        }
        let count = text.parse().ok().filter(|count| (1..=MAX_ATTEMPTS).contains(count));
        count
            .map(Self::Count)
            .ok_or_else(|| format!("expected a number from 1 to {MAX_ATTEMPTS}, or default"))
    }
}

pub(super) async fn run(arguments: SetArguments) -> Result<(), Box<dyn Error>> {
    let SetArguments { topic, group, max_attempts, json, server } = arguments;
    let max_attempts = match max_attempts {
        MaxAttempts::Count(count) => Some(count),
        MaxAttempts::Default => None,
    };
    let mut client = server.client()?;
    let path = format!("/groups/{topic}/{group}");
    let body = Bytes::from(json!({"max_attempts": max_attempts}).to_string());
    let answer = client.send(Method::PUT, &path, "application/json", body).await?;
    print_details(&answer.bytes().await?, json)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn takes_a_count_or_the_default() {
        assert_eq!("10".parse(), Ok(MaxAttempts::Count(10)));
        assert_eq!("default".parse(), Ok(MaxAttempts::Default));
        for text in ["", "0", "1001", "-1", "none"] {
            assert!(text.parse::<MaxAttempts>().is_err(), "{text}");
        }
    }
}
