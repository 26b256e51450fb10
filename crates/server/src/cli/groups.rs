//! `prombus groups`.

mod delete;
mod details;
mod seek;
mod set;
mod show;

use std::error::Error;
use std::io::{self, IsTerminal};

use prombus_proto::{Group, Topic};
use serde::{Deserialize, Serialize};

use super::human_count::human_count;
use super::output::print;
use super::server_arguments::HttpArguments;
use super::table::Table;
use super::times::human_duration;
use prombus_client::transport::{HttpClient, HttpFailure, Query};

#[derive(clap::Args)]
#[command(
    args_conflicts_with_subcommands = true,
    after_help = "\
Examples:
  prombus groups
  prombus groups orders.created
  prombus groups | jq 'select(.lag_events > 1000)'
  prombus groups show orders.created billing
  prombus groups seek orders.created billing --to 2h
  prombus groups set orders.created billing --max-attempts 10
  prombus groups delete orders.created billing

LAG is the number of events the group has not processed; AGE is the time since the server stored the first of
them. With --json, or when stdout is not a terminal, prints one JSON object per group and line, with exact numbers."
)]
pub(crate) struct GroupsArguments {
    #[command(subcommand)]
    action: Option<GroupAction>,
    /// List only the groups of this topic
    topic: Option<Topic>,
    /// Print JSON, even on a terminal
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    server: HttpArguments,
}

#[derive(clap::Subcommand)]
enum GroupAction {
    /// Show the members of a group, its progress, and what its oldest event waits for
    Show(show::ShowArguments),
    /// Move a group to another position of its topic
    Seek(seek::SeekArguments),
    /// Change a setting of a group
    Set(set::SetArguments),
    /// Delete groups, with their progress and marks
    Delete(delete::DeleteArguments),
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
    let GroupsArguments { action, topic, json, server } = arguments;
    match action {
        Some(GroupAction::Show(arguments)) => return show::run(arguments).await,
        Some(GroupAction::Seek(arguments)) => return seek::run(arguments).await,
        Some(GroupAction::Set(arguments)) => return set::run(arguments).await,
        Some(GroupAction::Delete(arguments)) => return delete::run(arguments).await,
        None => {}
    }
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
    let prints_json = json || !io::stdout().is_terminal();
    let text = if prints_json { lines(&groups)? } else { table(&groups) };
    Ok(print(text.as_bytes())?)
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
    let mut table = Table::new(&["TOPIC", "GROUP", "MEMBERS", "IN FLIGHT", "LAG", "AGE"]);
    for (topic, group) in groups {
        let names = [topic.to_string(), group.group.to_string()];
        let counts = [group.members, group.in_flight, group.lag_events].map(human_count);
        let age = if group.lag_events == 0 { "-".to_owned() } else { human_duration(group.lag_ms) };
        table.push(names.into_iter().chain(counts).chain([age]).collect());
    }
    table.render(2)
}
