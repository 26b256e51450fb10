//! Handles received events: prints them, or runs a command for each.

use std::collections::VecDeque;
use std::io::{self, Write};
use std::process::{Command, Stdio};

use bytes::Bytes;
use prombus_proto::EventId;
use tokio::task::{JoinHandle, spawn_blocking};

/// The outcome of handling events.
pub(super) enum Handled {
    /// Printed and flushed, or the command succeeded.
    Done(Vec<EventId>),
    /// The command failed.
    Failed { id: EventId, reason: String },
}

pub(super) enum Handler {
    Print,
    Exec(String),
}

impl Handler {
    pub(super) fn new(exec: Option<String>) -> Self {
        exec.map_or(Handler::Print, Handler::Exec)
    }

    /// Starts to handle the oldest of `events`: all of them when printing, one when running a command.
    pub(super) fn start(
        &self,
        events: &mut VecDeque<(EventId, Bytes)>,
    ) -> JoinHandle<Result<Handled, String>> {
        match self {
            Handler::Print => {
                let events: Vec<_> = events.drain(..).collect();
                spawn_blocking(move || print(events))
            }
            Handler::Exec(command) => {
                let (command, event) = (command.clone(), events.pop_front());
                spawn_blocking(move || match event {
                    Some((id, event)) => run(&command, id, &event),
                    None => Ok(Handled::Done(vec![])),
                })
            }
        }
    }
}

fn print(events: Vec<(EventId, Bytes)>) -> Result<Handled, String> {
    let mut lines = Vec::new();
    for (_, event) in &events {
        lines.extend_from_slice(event);
        lines.push(b'\n');
    }
    let mut out = io::stdout().lock();
    out.write_all(&lines)
        .and_then(|()| out.flush())
        .map_err(|error| format!("cannot write events: {error}"))?;
    Ok(Handled::Done(events.into_iter().map(|(id, _)| id).collect()))
}

fn run(command: &str, id: EventId, event: &[u8]) -> Result<Handled, String> {
    let failed = |error: io::Error| format!("cannot run the command: {error}");
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
    Ok(Handled::Failed { id, reason: format!("the command failed: {status}") })
}
