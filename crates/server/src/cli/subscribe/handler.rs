//! Handles received events: prints them, or runs a command for each.

use std::io::{self, Write};
use std::process::{Command, Stdio};

use bytes::Bytes;
use prombus_proto::EventId;
use prombus_proto::frame::AfterNack;
use tokio::task::{JoinHandle, spawn_blocking};

/// The outcome of handling events.
pub(super) enum Handled {
    /// Printed and flushed, or the command succeeded.
    Done(Vec<EventId>),
    /// The command failed.
    Failed { id: EventId, reason: String, next: AfterNack },
}

/// The exit status with which a command rejects its event: `EX_DATAERR` of sysexits.h, "the input data was incorrect".
const REJECTED: i32 = 65;

pub(super) enum Handler {
    Print,
    Exec(String),
}

impl Handler {
    pub(super) fn new(exec: Option<String>) -> Self {
        exec.map_or(Handler::Print, Handler::Exec)
    }

    /// How many events it takes at a time.
    pub(super) const fn events_at_once(&self) -> usize {
        match self {
            Handler::Print => usize::MAX,
            Handler::Exec(_) => 1,
        }
    }

    /// Starts to handle `events`, at most as many as it takes at a time.
    pub(super) fn start(&self, events: Vec<(EventId, Bytes)>) -> JoinHandle<io::Result<Handled>> {
        match self {
            Handler::Print => spawn_blocking(move || print(events)),
            Handler::Exec(command) => {
                let (command, event) = (command.clone(), events.into_iter().next());
                spawn_blocking(move || match event {
                    Some((id, event)) => run(&command, id, &event),
                    None => Ok(Handled::Done(vec![])),
                })
            }
        }
    }
}

fn print(events: Vec<(EventId, Bytes)>) -> io::Result<Handled> {
    let mut lines = Vec::new();
    for (_, event) in &events {
        lines.extend_from_slice(event);
        lines.push(b'\n');
    }
    let mut out = io::stdout().lock();
    out.write_all(&lines)
        .and_then(|()| out.flush())
        .map_err(|error| io::Error::new(error.kind(), format!("cannot write events: {error}")))?;
    Ok(Handled::Done(events.into_iter().map(|(id, _)| id).collect()))
}

fn run(command: &str, id: EventId, event: &[u8]) -> io::Result<Handled> {
    let failed = |error: io::Error| {
        // Not the kind: a broken pipe to the command is not one of ours.
        io::Error::other(format!("cannot run the command: {error}"))
    };
    let mut child =
        Command::new("sh").args(["-c", command]).stdin(Stdio::piped()).spawn().map_err(failed)?;
    if let Some(mut stdin) = child.stdin.take() {
        // A command may exit without reading its input; only its exit status counts.
        let _ = stdin.write_all(event).and_then(|()| stdin.write_all(b"\n"));
    }
    let status = child.wait().map_err(failed)?;
    if status.success() {
        return Ok(Handled::Done(vec![id]));
    }
    Ok(match status.code() {
        Some(REJECTED) => {
            let reason = format!("the command rejected the event: {status}");
            Handled::Failed { id, reason, next: AfterNack::Dead }
        }
        _ => {
            let reason = format!("the command failed: {status}");
            Handled::Failed { id, reason, next: AfterNack::BackOff }
        }
    })
}
