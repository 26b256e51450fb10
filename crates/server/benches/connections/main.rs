//! The memory of an idle connection: `make bench-connections`.
//!
//! Starts the binary, opens connections, half of them with one subscription in its own group, and
//! prints the growth of the server's resident memory. All connections must be alive at the end.

#![allow(clippy::print_stdout)] // a benchmark prints its results

use std::error::Error;
use std::time::{Duration, Instant};

use futures_util::{SinkExt, StreamExt};
use rustix::process::{Resource, getrlimit, setrlimit};
use tokio::net::TcpStream;
use tokio::time::{sleep, timeout};
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::Message;

#[path = "../server_process.rs"]
mod server_process;

use server_process::ServerProcess;

type Failure = Box<dyn Error + Send + Sync>;
type Socket = WebSocketStream<TcpStream>;

const DEFAULT_COUNT: usize = 5000;
/// Connections opened, pinged or closed concurrently.
const CONCURRENCY: usize = 64;
/// Open files other than connections.
const OTHER_FILES: u64 = 100;
/// Only a server that hangs takes this long.
const HANG_TIMEOUT: Duration = Duration::from_secs(20);

fn main() -> Result<(), Failure> {
    // Skips arguments that `cargo bench` adds, such as --bench.
    let count =
        std::env::args().find_map(|argument| argument.parse().ok()).unwrap_or(DEFAULT_COUNT);
    raise_file_limit(count as u64 + OTHER_FILES)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(measure(count))
}

/// Raises the limit on open files, which the server inherits, up to the hard limit.
fn raise_file_limit(wanted: u64) -> Result<(), Failure> {
    let mut limit = getrlimit(Resource::Nofile);
    if limit.current.is_none_or(|current| current >= wanted) {
        return Ok(());
    }
    limit.current = limit.maximum;
    setrlimit(Resource::Nofile, limit)?;
    match limit.maximum {
        Some(hard) if hard < wanted => Err(format!(
            "{wanted} open files are needed and {hard} allowed: raise the hard limit or open fewer"
        )
        .into()),
        _ => Ok(()),
    }
}

async fn measure(count: usize) -> Result<(), Failure> {
    let [total, per_address] = ["max_connections", "max_connections_per_address"]
        .map(|name| format!("gateway.{name}={}", count + 10));
    // The clients read only when they expect a message.
    let never_ping = "gateway.ping_interval_ms=3600000";
    let server = ServerProcess::start(&[
        "--engine",
        "memory",
        "--set",
        &total,
        "--set",
        &per_address,
        "--set",
        never_ping,
    ])?;
    // Connects once first, so that shared structures are not counted.
    let mut sockets = open(&server, 0..2, true).await?;
    let (idle, subscribed) = (count / 2, count - count / 2);
    let empty = settled_memory(&server).await?;
    let start = Instant::now();
    sockets.extend(open(&server, 0..idle, false).await?);
    let with_idle = settled_memory(&server).await?;
    sockets.extend(open(&server, idle..count, true).await?);
    let with_all = settled_memory(&server).await?;
    let elapsed = start.elapsed();
    let mut alive = 0;
    let mut still_open = Vec::new();
    for chunk in chunks(sockets) {
        for socket in futures_util::future::join_all(chunk.into_iter().map(ping)).await {
            still_open.push(socket?);
            alive += 1;
        }
    }
    println!("{count} connections in {:.1} s, all alive ({alive} pongs)", elapsed.as_secs_f64());
    let each = |bytes: u64, many: usize| bytes as f64 / many.max(1) as f64 / 1024.0;
    println!("server before     {:8.1} MiB", empty as f64 / 1_048_576.0);
    println!(
        "idle              {:8.1} KiB per connection",
        each(with_idle.saturating_sub(empty), idle)
    );
    let more = with_all.saturating_sub(with_idle);
    println!("with subscription {:8.1} KiB per connection", each(more, subscribed));
    println!("server with all   {:8.1} MiB", with_all as f64 / 1_048_576.0);
    for chunk in chunks(still_open) {
        for closed in futures_util::future::join_all(chunk.into_iter().map(close)).await {
            closed?;
        }
    }
    println!("after closing all {:8.1} MiB", settled_memory(&server).await? as f64 / 1_048_576.0);
    server.stop()
}

fn chunks(mut sockets: Vec<Socket>) -> impl Iterator<Item = Vec<Socket>> {
    std::iter::from_fn(move || {
        let rest = sockets.len().saturating_sub(CONCURRENCY);
        (!sockets.is_empty()).then(|| sockets.split_off(rest))
    })
}

async fn open(
    server: &ServerProcess,
    numbers: std::ops::Range<usize>,
    subscribe: bool,
) -> Result<Vec<Socket>, Failure> {
    let mut sockets = Vec::with_capacity(numbers.len());
    let mut opening = futures_util::stream::iter(numbers)
        .map(|number| connect(&server.ws, subscribe.then_some(number)))
        .buffer_unordered(CONCURRENCY);
    while let Some(socket) = opening.next().await {
        sockets.push(socket?);
    }
    Ok(sockets)
}

async fn connect(address: &str, subscriber: Option<usize>) -> Result<Socket, Failure> {
    let stream = TcpStream::connect(address).await?;
    let url = format!("ws://{address}/");
    let (mut socket, _) =
        timeout(HANG_TIMEOUT, tokio_tungstenite::client_async(url, stream)).await??;
    if let Some(number) = subscriber {
        let frame = format!(r#"{{"op":"SUBSCRIBE","topic":"bench","group":"g{number}"}}"#);
        socket.send(Message::text(frame)).await?;
        let answer = next(&mut socket).await?;
        if answer.to_text()? != r#"{"op":"OK"}"# {
            return Err(format!("unexpected response to SUBSCRIBE: {answer}").into());
        }
    }
    Ok(socket)
}

async fn ping(mut socket: Socket) -> Result<Socket, Failure> {
    socket.send(Message::Ping("alive?".into())).await?;
    loop {
        match next(&mut socket).await? {
            Message::Pong(answer) if answer == "alive?".as_bytes() => return Ok(socket),
            // The server sends pings as well.
            Message::Ping(_) => {}
            other => return Err(format!("unexpected response to a ping: {other:?}").into()),
        }
    }
}

async fn close(mut socket: Socket) -> Result<(), Failure> {
    socket.close(None).await?;
    while let Some(message) = timeout(HANG_TIMEOUT, socket.next()).await? {
        message?;
    }
    Ok(())
}

/// The server's memory after a pause.
async fn settled_memory(server: &ServerProcess) -> Result<u64, Failure> {
    sleep(Duration::from_secs(1)).await;
    server.resident_bytes()
}

async fn next(socket: &mut Socket) -> Result<Message, Failure> {
    Ok(timeout(HANG_TIMEOUT, socket.next()).await?.ok_or("the connection closed")??)
}
