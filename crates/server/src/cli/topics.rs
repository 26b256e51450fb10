//! `prombus topics`.

mod delete;
mod purge;
mod settings;

use std::error::Error;
use std::io::{self, IsTerminal};

use bytes::Bytes;
use hyper::Method;
use prombus_proto::Topic;
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value};

use super::human_bytes::human_bytes;
use super::human_count::human_count;
use super::output::print;
use super::server_arguments::HttpArguments;
use super::sizes::bytes;
use super::table::Table;
use super::times::milliseconds;
use prombus_client::transport::{HttpClient, HttpFailure};
use settings::SettingChange;

#[derive(clap::Args)]
#[command(
    args_conflicts_with_subcommands = true,
    after_help = "\
Examples:
  prombus topics
  prombus topics orders.created
  prombus topics orders.created --retention 7d --retention-bytes 10GiB
  prombus topics orders.created --set limit=5000/1000 --set durability=buffered
  prombus topics orders.created --set limit=
  prombus topics delete orders.created
  prombus topics purge orders.created --before 7d

Settings:
  retention_ms=TIME              time to retain events, such as 7d, or in milliseconds
  retention_bytes=SIZE           size of events to retain, such as 10GiB, or in bytes
  durability=fsync|buffered      when a publish is confirmed
  limit=CAPACITY/REFILL_PER_SEC  rate limit, in events and events per second
  KEY=                           resets KEY to the server's configuration

Changes take effect immediately and are stored with the server's data; other settings stay as they are.
With --json, or when stdout is not a terminal, prints one JSON object per topic and line, with exact numbers."
)]
pub(crate) struct TopicsArguments {
    #[command(subcommand)]
    action: Option<TopicAction>,
    /// Show only this topic, with its settings
    topic: Option<Topic>,
    /// Change a setting of the topic; repeatable
    #[arg(long, value_name = "KEY=VALUE", requires = "topic")]
    set: Vec<SettingChange>,
    /// Retain events for this time, such as 7d; the setting retention_ms
    #[arg(long, value_name = "TIME", requires = "topic", value_parser = milliseconds)]
    retention: Option<u64>,
    /// Retain this many bytes of events, such as 10GiB; the setting retention_bytes
    #[arg(long, value_name = "SIZE", requires = "topic", value_parser = bytes)]
    retention_bytes: Option<u64>,
    /// Print JSON, even on a terminal
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    server: HttpArguments,
}

#[derive(clap::Subcommand)]
enum TopicAction {
    /// Delete topics, with their events, settings, consumer groups and marks
    Delete(delete::DeleteArguments),
    /// Remove the first events of a topic
    Purge(purge::PurgeArguments),
}

#[derive(Deserialize)]
struct TopicList<'a> {
    #[serde(borrow)]
    topics: Vec<&'a RawValue>,
}

#[derive(Deserialize)]
struct TopicRow {
    topic: Topic,
    first_seq: Option<u64>,
    last_seq: Option<u64>,
    events: u64,
    bytes: u64,
}

#[derive(Deserialize)]
struct TopicDetails {
    #[serde(flatten)]
    row: TopicRow,
    /// The settings in effect.
    settings: Map<String, Value>,
    /// The settings stored for this topic, which override the configuration.
    own: Map<String, Value>,
}

pub(crate) async fn run(arguments: TopicsArguments) -> Result<(), Box<dyn Error>> {
    let TopicsArguments { action, topic, mut set, retention, retention_bytes, json, server } =
        arguments;
    match action {
        Some(TopicAction::Delete(arguments)) => return delete::run(arguments).await,
        Some(TopicAction::Purge(arguments)) => return purge::run(arguments).await,
        None => {}
    }
    set.extend(retention.map(SettingChange::retention_ms));
    set.extend(retention_bytes.map(SettingChange::retention_bytes));
    let prints_json = json || !io::stdout().is_terminal();
    let mut client = server.client()?;
    let Some(topic) = topic else { return list(&mut client, prints_json).await };
    let path = format!("/topics/{topic}");
    let json = match set.as_slice() {
        [] => client.get(&path).await?.bytes().await?,
        changes => change_settings(&mut client, &path, changes).await?,
    };
    let topic: TopicDetails = parse(&json)?;
    if prints_json {
        return Ok(print(&[&json, b"\n".as_slice()].concat())?);
    }
    let text = table(&[topic.row]) + "\n" + &settings::table(&topic.settings, &topic.own);
    Ok(print(text.as_bytes())?)
}

async fn list(client: &mut HttpClient, prints_json: bool) -> Result<(), Box<dyn Error>> {
    let json = client.get("/topics").await?.bytes().await?;
    let list: TopicList<'_> = parse(&json)?;
    if prints_json {
        let lines: String = list.topics.iter().map(|topic| format!("{topic}\n")).collect();
        return Ok(print(lines.as_bytes())?);
    }
    let rows: Result<Vec<TopicRow>, _> =
        list.topics.iter().map(|topic| parse(topic.get().as_bytes())).collect();
    Ok(print(table(&rows?).as_bytes())?)
}

/// Changes settings of the topic. Returns the answer, which describes the topic.
async fn change_settings(
    client: &mut HttpClient,
    path: &str,
    changes: &[SettingChange],
) -> Result<Bytes, HttpFailure> {
    let own = client.get(path).await;
    let mut own = match own {
        Ok(answer) => parse::<TopicDetails>(&answer.bytes().await?)?.own,
        // A topic can have settings before it has events.
        Err(HttpFailure::Refused { code, .. }) if code == "unknown_topic" => Map::new(),
        Err(failure) => return Err(failure),
    };
    changes.iter().for_each(|change| change.apply(&mut own));
    let body = Bytes::from(Value::Object(own).to_string());
    client.send(Method::PUT, path, "application/json", body).await?.bytes().await
}

fn parse<'a, T: Deserialize<'a>>(json: &'a [u8]) -> Result<T, HttpFailure> {
    serde_json::from_slice(json).map_err(|error| HttpFailure::not_understood(&error))
}

fn table(topics: &[TopicRow]) -> String {
    let mut table = Table::new(&["TOPIC", "EVENTS", "SIZE", "FIRST SEQ", "LAST SEQ"]);
    let or_none = |seq: Option<u64>| seq.map_or("-".to_owned(), human_count);
    for topic in topics {
        let (first, last) = (or_none(topic.first_seq), or_none(topic.last_seq));
        let (events, size) = (human_count(topic.events), human_bytes(topic.bytes as f64));
        table.push(vec![topic.topic.to_string(), events, size, first, last]);
    }
    table.render(1)
}
