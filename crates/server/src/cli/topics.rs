//! `prombus topics`.

mod settings;

use std::error::Error;
use std::io::{self, IsTerminal, Write};

use bytes::Bytes;
use hyper::Method;
use prombus_proto::Topic;
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value};

use super::server_arguments::HttpArguments;
use super::table::Table;
use prombus_client::transport::{HttpClient, HttpFailure};
use settings::SettingChange;

#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  prombus topics
  prombus topics orders.created
  prombus topics orders.created --set retention_ms=604800000
  prombus topics orders.created --set limit=5000/1000 --set durability=buffered
  prombus topics orders.created --set limit=

Settings:
  retention_ms=MS                time to retain events
  retention_bytes=BYTES          bytes of events to retain
  durability=fsync|buffered      when a publish is confirmed
  limit=CAPACITY/REFILL_PER_SEC  rate limit, in events and events per second
  KEY=                           resets KEY to the server's configuration

Changes take effect immediately and are stored with the server's data; other settings stay as they are.
When stdout is not a terminal, prints one JSON object per topic and line.")]
pub(crate) struct TopicsArguments {
    /// Show only this topic, with its settings
    topic: Option<Topic>,
    /// Change a setting of the topic; repeatable
    #[arg(long, value_name = "KEY=VALUE", requires = "topic")]
    set: Vec<SettingChange>,
    #[command(flatten)]
    server: HttpArguments,
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
    let TopicsArguments { topic, set, server } = arguments;
    let mut client = server.client()?;
    let Some(topic) = topic else { return list(&mut client).await };
    let path = format!("/topics/{topic}");
    let json = match set.as_slice() {
        [] => client.get(&path).await?.bytes().await?,
        changes => change_settings(&mut client, &path, changes).await?,
    };
    let topic: TopicDetails = parse(&json)?;
    if !io::stdout().is_terminal() {
        return Ok(print(&[&json, b"\n".as_slice()].concat())?);
    }
    let text = table(&[topic.row]) + "\n" + &settings::table(&topic.settings, &topic.own);
    Ok(print(text.as_bytes())?)
}

async fn list(client: &mut HttpClient) -> Result<(), Box<dyn Error>> {
    let json = client.get("/topics").await?.bytes().await?;
    let list: TopicList<'_> = parse(&json)?;
    if !io::stdout().is_terminal() {
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
    let mut table = Table::new(&["TOPIC", "EVENTS", "BYTES", "FIRST SEQ", "LAST SEQ"]);
    let or_none = |seq: Option<u64>| seq.map_or("-".to_owned(), |seq| seq.to_string());
    for topic in topics {
        let (first, last) = (or_none(topic.first_seq), or_none(topic.last_seq));
        let (events, bytes) = (topic.events.to_string(), topic.bytes.to_string());
        table.push(vec![topic.topic.to_string(), events, bytes, first, last]);
    }
    table.render(1)
}

fn print(text: &[u8]) -> io::Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(text)?;
    out.flush()
}
