//! Exports: how fast, how much memory, and whether they can be resumed.

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

/// Reads all there is; how many bytes, how long, and what `watch` said meanwhile.
async fn drain(
    address: &str,
    path: &str,
    mut watch: impl FnMut() -> Result<(), Failure>,
) -> Result<(u64, Duration), Failure> {
    let mut client = Client::connect(address).await?;
    let began = Instant::now();
    let mut body = client.open(path).await?;
    let (mut bytes, mut watched) = (0, 0);
    while let Some(some) = next(&mut body).await? {
        bytes += some.len() as u64;
        if bytes - watched > 16 << 20 {
            watched = bytes;
            watch()?;
        }
    }
    Ok((bytes, began.elapsed()))
}

fn median(times: &mut [Duration]) -> f64 {
    times.sort_unstable();
    times[times.len() / 2].as_secs_f64()
}

pub(crate) async fn speed_and_memory(server: &ServerProcess, plain: &Path) -> Result<(), Failure> {
    let before = server.resident_bytes()?;
    let mut most = before;
    let (bytes, _) = drain(&server.http, PATH, || {
        most = most.max(server.resident_bytes()?);
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
    println!("memory, at most   {:8.1} MiB more", (most - before) as f64 / MIB);
    std::fs::remove_file(plain)?;
    Ok(())
}

async fn save(server: &ServerProcess, path: &Path) -> Result<(), Failure> {
    let mut file = File::create(path)?;
    let mut body = Client::connect(&server.http).await?.open(PATH).await?;
    while let Some(some) = next(&mut body).await? {
        file.write_all(&some)?;
    }
    Ok(file.sync_all()?)
}

/// Counts events as they come, and what their order is.
#[derive(Default)]
struct Checked {
    line: Vec<u8>,
    last_line: Vec<u8>,
    events: u64,
}

impl Checked {
    fn take(&mut self, mut bytes: &[u8]) -> Result<(), Failure> {
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

pub(crate) async fn broken_off_and_resumed(
    server: &ServerProcess,
    count: u64,
) -> Result<(), Failure> {
    let mut checked = Checked::default();
    let mut path = PATH.to_owned();
    let mut breaks = 0;
    loop {
        let mut client = Client::connect(&server.http).await?;
        let mut body = client.open(&path).await?;
        let until = checked.events + count / 3;
        loop {
            match next(&mut body).await? {
                Some(some) => checked.take(&some)?,
                None => break,
            }
            if checked.events > until {
                break;
            }
        }
        if checked.events >= count {
            break;
        }
        // The connection goes with the client, in the middle of a line.
        breaks += 1;
        checked.line.clear();
        let last: Value = serde_json::from_slice(&checked.last_line)?;
        path = format!("{PATH}&afterId={}", last["id"].as_str().ok_or("no id")?);
    }
    if checked.events != count {
        return Err(format!("{} events instead of {count}", checked.events).into());
    }
    println!("broken off {breaks} times and resumed: {count} events, each once, in order");
    Ok(())
}

pub(crate) async fn with_a_reader_that_stops(server: &ServerProcess) -> Result<(), Failure> {
    let before = server.resident_bytes()?;
    let mut clients = Vec::new();
    for _ in 0..10 {
        let mut client = Client::connect(&server.http).await?;
        let body = client.open(PATH).await?;
        clients.push((client, body));
    }
    sleep(Duration::from_secs(3)).await;
    let more = server.resident_bytes()?.saturating_sub(before);
    println!("10 readers that stopped {:.1} MiB more", more as f64 / MIB);
    Ok(())
}
