//! Publishes a heartbeat at a fixed interval.
//!
//! ```sh
//! cargo run --example heartbeat_publisher -- node-1
//! ```
//!
//! Environment: `PROMBUS_URL`, `PROMBUS_TOKEN`, `BEATS` (how many heartbeats; endless by default)
//! and `BEAT_MS` (the interval).

use std::env;
use std::error::Error;
use std::str::FromStr;
use std::time::Duration;

use prombus_client::{Client, Outgoing};
use serde::Serialize;

#[derive(Serialize)]
struct Heartbeat<'a> {
    node: &'a str,
    beat: u64,
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let node = env::args().nth(1).unwrap_or_else(|| "node-1".to_owned());
    let url = setting("PROMBUS_URL", "ws://127.0.0.1:8090".to_owned())?;
    let mut builder = Client::builder(&url);
    if let Ok(token) = env::var("PROMBUS_TOKEN") {
        builder = builder.token(token);
    }
    let client = builder.connect().await?;
    let mut beats = tokio::time::interval(Duration::from_millis(setting("BEAT_MS", 1000)?));
    for beat in 0..setting("BEATS", u64::MAX)? {
        beats.tick().await;
        let heartbeat = Outgoing::new(&Heartbeat { node: &node, beat })?.key(&node);
        let published = client.publish("heartbeat.received", heartbeat).await?;
        eprintln!("{node}: beat {beat} stored at offset {}", published.seq);
    }
    client.close().await;
    Ok(())
}

fn setting<T: FromStr<Err: Error + 'static>>(name: &str, default: T) -> Result<T, Box<dyn Error>> {
    Ok(env::var(name).ok().map(|value| value.parse()).transpose()?.unwrap_or(default))
}
