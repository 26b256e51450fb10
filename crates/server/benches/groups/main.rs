//! What groups without members cost: `make bench-groups`.
//!
//! Starts two servers with one topic each. Ten groups have a member on both; the second has 9,990 groups
//! more, whose members have left. Publishes to the two in turns, and prints how long a publish takes, and
//! how much memory each uses.

#![allow(clippy::print_stdout, reason = "a benchmark prints its results")]

use std::error::Error;
use std::time::{Duration, Instant};

use futures_util::{SinkExt, StreamExt};
use serde_json::{Value, json};
use tokio::net::TcpStream;
use tokio::task::JoinHandle;
use tokio::time::{interval, sleep, timeout};
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::Message;

#[path = "../server_process.rs"]
mod server_process;

use server_process::ServerProcess;

type Failure = Box<dyn Error + Send + Sync>;
type Socket = WebSocketStream<TcpStream>;

const TOPIC: &str = "orders";
const WITH_MEMBERS: usize = 10;
const DEFAULT_GROUPS: usize = 10_000;
/// How often each server has its turn, and for how long.
const TURNS: usize = 10;
const TURN: Duration = Duration::from_secs(1);
/// Between two publishes.
const PACE: Duration = Duration::from_millis(2);
/// Only a server that hangs takes this long.
const HANG: Duration = Duration::from_secs(20);

/// A server with a publisher and ten members.
struct Measured {
    server: ServerProcess,
    publisher: Socket,
    members: Vec<JoinHandle<()>>,
    /// How long each publish took.
    times: Vec<Duration>,
    _data: tempfile::TempDir,
}

fn main() -> Result<(), Failure> {
    // Skips arguments that `cargo bench` adds, such as --bench.
    let groups =
        std::env::args().find_map(|argument| argument.parse().ok()).unwrap_or(DEFAULT_GROUPS);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(compare(groups))
}

async fn compare(groups: usize) -> Result<(), Failure> {
    let mut few = Measured::start().await?;
    let mut many = Measured::start().await?;
    let started = Instant::now();
    many.create_groups(WITH_MEMBERS..groups).await?;
    println!("created {groups} groups in {:.1?}", started.elapsed());
    for _ in 0..TURNS {
        for server in [&mut few, &mut many] {
            server.publish_for(TURN).await?;
        }
    }
    for (name, server) in [(WITH_MEMBERS, &mut few), (groups, &mut many)] {
        server.times.sort_unstable();
        println!(
            "{name:>6} groups: publish p50 {:?}, p99 {:?}, {} MiB resident",
            server.percentile(50),
            server.percentile(99),
            server.server.resident_bytes()? >> 20,
        );
    }
    let ratio = |percent| many.percentile(percent).div_duration_f64(few.percentile(percent));
    println!("ratio: p50 {:.2}, p99 {:.2}", ratio(50), ratio(99));
    few.stop()?;
    many.stop()
}

impl Measured {
    async fn start() -> Result<Self, Failure> {
        let data = tempfile::tempdir()?;
        let folder = data.path().to_str().ok_or("the folder's name is no UTF-8")?;
        let server = ServerProcess::start(&["--data", folder, "--set", "limits.enabled=false"])?;
        let mut members = Vec::new();
        for number in 0..WITH_MEMBERS {
            let mut socket = connect(&server.ws).await?;
            ask(&mut socket, &membership("SUBSCRIBE", number)).await?;
            members.push(tokio::spawn(acknowledge_all(socket)));
        }
        let publisher = connect(&server.ws).await?;
        Ok(Self { server, publisher, members, times: Vec::new(), _data: data })
    }

    /// Creates groups whose members leave at once.
    async fn create_groups(&mut self, numbers: std::ops::Range<usize>) -> Result<(), Failure> {
        let mut socket = connect(&self.server.ws).await?;
        for number in numbers {
            ask(&mut socket, &membership("SUBSCRIBE", number)).await?;
            ask(&mut socket, &membership("UNSUBSCRIBE", number)).await?;
        }
        Ok(())
    }

    async fn publish_for(&mut self, time: Duration) -> Result<(), Failure> {
        // The other server's turn leaves nothing behind on this one.
        sleep(Duration::from_millis(50)).await;
        let mut ticks = interval(PACE);
        let end = Instant::now() + time;
        while Instant::now() < end {
            ticks.tick().await;
            let started = Instant::now();
            let frame = json!({"op": "PUBLISH", "topic": TOPIC, "payload": {"order": 1}});
            ask(&mut self.publisher, &frame).await?;
            self.times.push(started.elapsed());
        }
        Ok(())
    }

    fn percentile(&self, percent: usize) -> Duration {
        self.times[(self.times.len() * percent / 100).min(self.times.len() - 1)]
    }

    fn stop(self) -> Result<(), Failure> {
        self.members.iter().for_each(JoinHandle::abort);
        self.server.stop()
    }
}

async fn connect(address: &str) -> Result<Socket, Failure> {
    let stream = TcpStream::connect(address).await?;
    stream.set_nodelay(true)?;
    Ok(tokio_tungstenite::client_async(format!("ws://{address}/"), stream).await?.0)
}

fn membership(op: &str, number: usize) -> Value {
    json!({"op": op, "topic": TOPIC, "group": format!("group-{number}")})
}

/// Sends a frame, and waits for its OK.
async fn ask(socket: &mut Socket, frame: &Value) -> Result<(), Failure> {
    socket.send(Message::text(frame.to_string())).await?;
    loop {
        match timeout(HANG, socket.next()).await?.ok_or("the connection was lost")?? {
            Message::Text(text) if text.starts_with(r#"{"op":"OK""#) => return Ok(()),
            Message::Text(text) => return Err(format!("not OK: {text}").into()),
            _ => {}
        }
    }
}

async fn acknowledge_all(mut socket: Socket) {
    while let Some(Ok(message)) = socket.next().await {
        let Message::Text(text) = message else { continue };
        let frame: Value = serde_json::from_str(&text).unwrap_or_default();
        if frame["op"] == "EVENT" {
            let (topic, group, id) = (&frame["topic"], &frame["group"], &frame["event"]["id"]);
            let ack = json!({"op": "ACK", "topic": topic, "group": group, "id": id});
            if socket.send(Message::text(ack.to_string())).await.is_err() {
                return;
            }
        }
    }
}
