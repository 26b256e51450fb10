//! Watches heartbeats, and says which nodes are there.
//!
//! ```sh
//! cargo run --example monitor
//! ```
//!
//! `PROMBUS_URL` and `PROMBUS_TOKEN` say where and as whom; after `BEATS` heartbeats it ends. Each
//! line is `node beat`, and the connection is told of on standard error.

#![allow(clippy::print_stdout, reason = "that is its output")]

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
            eprintln!("the connection: {:?}", *state.borrow_and_update());
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
            let before = last.lock().expect("nobody panics with it").insert(node.clone(), *beat);
            if let Some(before) = before.filter(|before| before + 1 < *beat) {
                eprintln!("{node}: no beat between {before} and {beat}");
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
