//! Exports: throughput, memory and resumption.

use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::time::{Duration, Instant};

use serde_json::Value;
use tokio::time::sleep;

use crate::Failure;
use crate::client::{Client, next};
use crate::plain_file::PlainFile;
use crate::server_process::ServerProcess;

const PATH: &str = "/export?topic=large";
const ROUNDS: usize = 5;
const MIB: f64 = 1_048_576.0;

/// Reads a whole response, calling `watch` every 16 MiB. Returns its size and duration.
async fn drain(
    address: &str,
    path: &str,
    mut watch: impl FnMut() -> Result<(), Failure>,
) -> Result<(u64, Duration), Failure> {
    let mut client = Client::connect(address).await?;
    let start = Instant::now();
    let mut body = client.open(path).await?;
    let (mut bytes, mut watched) = (0, 0);
    while let Some(chunk) = next(&mut body).await? {
        bytes += chunk.len() as u64;
        if bytes - watched > 16 << 20 {
            watched = bytes;
            watch()?;
        }
    }
    Ok((bytes, start.elapsed()))
}

fn median(times: &mut [Duration]) -> f64 {
    times.sort_unstable();
    times[times.len() / 2].as_secs_f64()
}

pub(crate) async fn speed_and_memory(server: &ServerProcess, plain: &Path) -> Result<(), Failure> {
    let before = server.resident_bytes()?;
    let mut peak = before;
    let (bytes, _) = drain(&server.http, PATH, || {
        peak = peak.max(server.resident_bytes()?);
        Ok(())
    })
    .await?;
    save(server, plain).await?;
    let file = PlainFile::start(plain)?;
    let (mut exports, mut files) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        let (exported, time) = drain(&server.http, PATH, || Ok(())).await?;
        exports.push(time);
        let (sent, time) = drain(&file.address, "/", || Ok(())).await?;
        files.push(time);
        if exported != bytes || sent != bytes {
            return Err(format!("{exported} and {sent} bytes instead of {bytes}").into());
        }
    }
    let (export, file) = (median(&mut exports), median(&mut files));
    let rate = |seconds: f64| bytes as f64 / MIB / seconds;
    println!(
        "export            {:8.0} MiB/s, {:.0} MiB in {export:.2} s",
        rate(export),
        bytes as f64 / MIB
    );
    println!("plain file        {:8.0} MiB/s", rate(file));
    println!("ratio             {:8.2}", file / export);
    println!("memory before     {:8.1} MiB", before as f64 / MIB);
    println!("memory, peak      {:8.1} MiB more", (peak - before) as f64 / MIB);
    std::fs::remove_file(plain)?;
    Ok(())
}

async fn save(server: &ServerProcess, path: &Path) -> Result<(), Failure> {
    let mut file = File::create(path)?;
    let mut body = Client::connect(&server.http).await?.open(PATH).await?;
    while let Some(chunk) = next(&mut body).await? {
        file.write_all(&chunk)?;
    }
    Ok(file.sync_all()?)
}

/// Counts the events of an export and checks that they are in order.
#[derive(Default)]
struct OrderCheck {
    line: Vec<u8>,
    last_line: Vec<u8>,
    events: u64,
}

impl OrderCheck {
    fn push(&mut self, mut bytes: &[u8]) -> Result<(), Failure> {
        while let Some(end) = memchr::memchr(b'\n', bytes) {
            self.line.extend_from_slice(&bytes[..end]);
            bytes = &bytes[end + 1..];
            self.events += 1;
            let start = format!("{{\"seq\":{},", self.events);
            if !self.line.starts_with(start.as_bytes()) {
                let line = String::from_utf8_lossy(&self.line).into_owned();
                return Err(format!("event {} is {line}", self.events).into());
            }
            std::mem::swap(&mut self.line, &mut self.last_line);
            self.line.clear();
        }
        self.line.extend_from_slice(bytes);
        Ok(())
    }
}

pub(crate) async fn interrupted_and_resumed(
    server: &ServerProcess,
    count: u64,
) -> Result<(), Failure> {
    let mut checked = OrderCheck::default();
    let mut path = PATH.to_owned();
    let mut interruptions = 0;
    loop {
        let mut client = Client::connect(&server.http).await?;
        let mut body = client.open(&path).await?;
        let until = checked.events + count / 3;
        loop {
            match next(&mut body).await? {
                Some(chunk) => checked.push(&chunk)?,
                None => break,
            }
            if checked.events > until {
                break;
            }
        }
        if checked.events >= count {
            break;
        }
        // Dropping the client closes the connection in the middle of a line.
        interruptions += 1;
        checked.line.clear();
        let last: Value = serde_json::from_slice(&checked.last_line)?;
        path = format!("{PATH}&afterId={}", last["id"].as_str().ok_or("no id")?);
    }
    if checked.events != count {
        return Err(format!("{} events instead of {count}", checked.events).into());
    }
    println!("resumed {interruptions} times: {count} events, each once, in order");
    Ok(())
}

pub(crate) async fn with_stopped_readers(server: &ServerProcess) -> Result<(), Failure> {
    let before = server.resident_bytes()?;
    let mut clients = Vec::new();
    for _ in 0..10 {
        let mut client = Client::connect(&server.http).await?;
        let body = client.open(PATH).await?;
        clients.push((client, body));
    }
    sleep(Duration::from_secs(3)).await;
    let more = server.resident_bytes()?.saturating_sub(before);
    println!("10 stopped readers {:.1} MiB more", more as f64 / MIB);
    Ok(())
}
