//! `prombus groups`.

use std::error::Error;
use std::io::{self, IsTerminal, Write};

use prombus_proto::{Group, Topic};
use serde::{Deserialize, Serialize};

use super::server_arguments::HttpArguments;
use super::table::Table;
use prombus_client::transport::{HttpClient, HttpFailure, Query};

#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  prombus groups
  prombus groups orders.created
  prombus groups | jq 'select(.lag_events > 1000)'

LAG is the number of events the group has not processed; LAG MS is the age of the oldest of them, in
milliseconds. When stdout is not a terminal, prints one JSON object per group and line.")]
pub(crate) struct GroupsArguments {
    /// List only the groups of this topic
    topic: Option<Topic>,
    #[command(flatten)]
    server: HttpArguments,
}

#[derive(Deserialize)]
struct TopicNames {
    topics: Vec<TopicName>,
}

#[derive(Deserialize)]
struct TopicName {
    topic: Topic,
}

#[derive(Deserialize)]
struct GroupList {
    groups: Vec<GroupEntry>,
}

#[derive(Serialize, Deserialize)]
struct GroupEntry {
    group: Group,
    members: u64,
    in_flight: u64,
    lag_events: u64,
    lag_ms: u64,
}

#[derive(Serialize)]
struct Line<'a> {
    topic: &'a Topic,
    #[serde(flatten)]
    group: &'a GroupEntry,
}

pub(crate) async fn run(arguments: GroupsArguments) -> Result<(), Box<dyn Error>> {
    let GroupsArguments { topic, server } = arguments;
    let mut client = server.client()?;
    let is_single = topic.is_some();
    let topics = match topic {
        Some(topic) => vec![topic],
        None => {
            let list: TopicNames = client.get_json("/topics").await?;
            list.topics.into_iter().map(|entry| entry.topic).collect()
        }
    };
    let mut groups = Vec::new();
    for topic in topics {
        match groups_of(&mut client, &topic).await {
            Ok(of_topic) => groups.extend(of_topic.into_iter().map(|group| (topic.clone(), group))),
            // A token that may only publish to a topic sees the topic, but not its groups.
            Err(HttpFailure::Refused { code, .. }) if !is_single && code == "forbidden" => {}
            Err(failure) => return Err(failure.into()),
        }
    }
    let text = if io::stdout().is_terminal() { table(&groups) } else { lines(&groups)? };
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes())?;
    Ok(out.flush()?)
}

async fn groups_of(client: &mut HttpClient, topic: &Topic) -> Result<Vec<GroupEntry>, HttpFailure> {
    let path = Query::of("/groups").with("topic", Some(topic));
    let list: GroupList = client.get_json(path.as_str()).await?;
    Ok(list.groups)
}

fn lines(groups: &[(Topic, GroupEntry)]) -> Result<String, serde_json::Error> {
    let mut lines = String::new();
    for (topic, group) in groups {
        lines += &serde_json::to_string(&Line { topic, group })?;
        lines.push('\n');
    }
    Ok(lines)
}

fn table(groups: &[(Topic, GroupEntry)]) -> String {
    let mut table = Table::new(&["TOPIC", "GROUP", "MEMBERS", "IN FLIGHT", "LAG", "LAG MS"]);
    for (topic, group) in groups {
        let numbers = [group.members, group.in_flight, group.lag_events, group.lag_ms];
        let names = [topic.to_string(), group.group.to_string()];
        table.push(names.into_iter().chain(numbers.map(|number| number.to_string())).collect());
    }
    table.render(2)
}
