//! Tells the user that a topic has no events yet, which a mistyped name looks like too.

use std::time::Duration;

use prombus_client::transport::HttpFailure;
use prombus_proto::Topic;
use serde::Deserialize;
use tokio::task::JoinHandle;
use tokio::time::timeout;

use crate::cli::server_arguments::Endpoint;

const TIME_LIMIT: Duration = Duration::from_secs(5);

#[derive(Deserialize)]
struct Topics {
    events: u64,
    last_seq: Option<u64>,
}

/// Asks over HTTP in the background. Says nothing if that is not possible: the token may not allow it.
pub(super) fn notice_empty_topic(endpoint: &Endpoint, topic: Topic) -> Option<JoinHandle<()>> {
    let mut client = endpoint.http().ok()?;
    Some(tokio::spawn(async move {
        let path = format!("/topics/{topic}");
        let Ok(answer) = timeout(TIME_LIMIT, client.get_json::<Topics>(&path)).await else {
            return;
        };
        match answer {
            Ok(Topics { events: 0, last_seq: Some(_) }) => {
                eprintln!("prombus: all events of {topic} were removed; waiting for the next");
            }
            Ok(Topics { events: 0, last_seq: None }) => say_empty(&topic),
            Err(HttpFailure::Refused { code, .. }) if code == "unknown_topic" => say_empty(&topic),
            _ => {}
        }
    }))
}

fn say_empty(topic: &Topic) {
    eprintln!("prombus: topic {topic} has no events yet; waiting for the first");
}
