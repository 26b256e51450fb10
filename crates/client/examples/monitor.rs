//! Prints heartbeats, and reports gaps between them.
//!
//! ```sh
//! cargo run --example monitor
//! ```
//!
//! Environment: `PROMBUS_URL`, `PROMBUS_TOKEN` and `BEATS` (how many heartbeats to wait for;
//! endless by default). It prints `node beat` lines on stdout, and the state of the connection on stderr.

#![allow(clippy::print_stdout, reason = "stdout is its output")]

use std::collections::HashMap;
use std::env;
use std::error::Error;
use std::sync::{Arc, Mutex};

use prombus_client::{Client, Received, Start};
use serde::Deserialize;
use tokio::sync::Semaphore;

#[derive(Deserialize)]
struct Heartbeat {
    node: String,
    beat: u64,
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let url = env::var("PROMBUS_URL").unwrap_or_else(|_| "ws://127.0.0.1:8090".to_owned());
    let beats = env::var("BEATS").ok().map(|beats| beats.parse()).transpose()?;
    let mut builder = Client::builder(&url);
    if let Ok(token) = env::var("PROMBUS_TOKEN") {
        builder = builder.token(token);
    }
    let client = builder.connect().await?;

    let mut state = client.state();
    tokio::spawn(async move {
        while state.changed().await.is_ok() {
            eprintln!("connection: {:?}", *state.borrow_and_update());
        }
    });

    let last: Arc<Mutex<HashMap<String, u64>>> = Arc::default();
    let seen = Arc::new(Semaphore::new(0));
    let count = Arc::clone(&seen);
    let subscription = client
        .subscribe("heartbeat.received", "monitor")
        .from(Start::Earliest)
        .handle(move |event: Received<Heartbeat>| {
            let Heartbeat { node, beat } = &event.payload;
            println!("{node} {beat}");
            let before = last.lock().expect("no panic while locked").insert(node.clone(), *beat);
            if let Some(before) = before.filter(|before| before + 1 < *beat) {
                eprintln!("{node}: missing beats between {before} and {beat}");
            }
            count.add_permits(1);
            async { Ok(()) }
        })
        .await?;

    match beats {
        Some(beats) => drop(seen.acquire_many(beats).await?),
        None => subscription.ended().await?,
    }
    client.close().await;
    Ok(())
}
