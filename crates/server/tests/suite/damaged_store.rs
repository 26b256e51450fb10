//! A store on disk with damaged events.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on ends")]

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use std::{fs, io};

use memchr::memmem;
use prombus_engine::{DiskEngine, DiskOptions, Engine};
use serde_json::json;
use tempfile::TempDir;

use crate::gateway::running::started_over;
use crate::http::client::HttpClient;

/// The events of the topic `t`.
pub(crate) const EVENTS: u64 = 60;

/// Returns a store whose topic `t` has damage at the event `seq`, and perhaps at the next few. The event
/// `n` has the id `event-n`, the key `even` or `odd`, and about 1000 bytes.
pub(crate) async fn damaged_at(seq: u64) -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    // Small files, so that the events get into segments.
    let options = DiskOptions { wal_file_bytes: 8 << 10, ..DiskOptions::at(folder.path()) };
    let engine: Arc<dyn Engine> = Arc::new(DiskEngine::open(&options).unwrap());
    let running = started_over(engine, &[]).await;
    let mut client = HttpClient::connect(&running).await;
    for number in 1..=EVENTS {
        let key = if number % 2 == 0 { "even" } else { "odd" };
        let path = format!("/publish/t?id=event-{number}&ts={number}&key={key}");
        client.post(&path, json!([marker(number), "x".repeat(1000)]).to_string()).await.ok();
    }
    let (file, offset) = find_in_segments(folder.path(), &marker(seq)).await;
    running.server.stop().await.unwrap();
    let mut bytes = fs::read(&file).unwrap();
    bytes[offset] ^= 1;
    fs::write(&file, bytes).unwrap();
    folder
}

fn marker(seq: u64) -> String {
    format!("<{seq}>")
}

/// Waits until a checkpoint has moved the event into a segment.
async fn find_in_segments(folder: &Path, marker: &str) -> (PathBuf, usize) {
    for _ in 0..500 {
        for file in segments(&folder.join("topics/t")).unwrap_or_default() {
            let bytes = fs::read(&file).unwrap();
            if let Some(offset) = memmem::find(&bytes, marker.as_bytes()) {
                return (file, offset);
            }
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    panic!("no segment contains {marker}");
}

fn segments(topic: &Path) -> io::Result<Vec<PathBuf>> {
    let files = fs::read_dir(topic)?.map(|entry| Ok(entry?.path()));
    let is_segment = |file: &io::Result<PathBuf>| {
        file.as_ref().is_ok_and(|file| file.extension() == Some("seg".as_ref()))
    };
    files.filter(is_segment).collect()
}
