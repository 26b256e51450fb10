//! What is done with received events: written to standard output, or given to a command.

use std::collections::VecDeque;
use std::io::{self, Write};
use std::process::{Command, Stdio};

use bytes::Bytes;
use prombus_proto::EventId;
use tokio::task::{JoinHandle, spawn_blocking};

/// What became of events.
pub(super) enum Handled {
    /// Written, or their command succeeded.
    Done(Vec<EventId>),
    /// The command failed.
    Failed { id: EventId, reason: String },
}

/// How events are handled.
pub(super) enum Handler {
    Print,
    Exec(String),
}

impl Handler {
    pub(super) fn new(exec: Option<String>) -> Self {
        exec.map_or(Handler::Print, Handler::Exec)
    }

    /// Begins with the oldest of `events`: all of them where they are written, one for a command.
    pub(super) fn begin(
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
        .map_err(|error| format!("events cannot be written: {error}"))?;
    Ok(Handled::Done(events.into_iter().map(|(id, _)| id).collect()))
}

fn run(command: &str, id: EventId, event: &[u8]) -> Result<Handled, String> {
    let cannot = |error: io::Error| format!("the command cannot be run: {error}");
    let mut child =
        Command::new("sh").args(["-c", command]).stdin(Stdio::piped()).spawn().map_err(cannot)?;
    if let Some(mut stdin) = child.stdin.take() {
        // A command need not read what it is given: its exit status counts.
        let _ = stdin.write_all(event).and_then(|()| stdin.write_all(b"\n"));
    }
    let status = child.wait().map_err(cannot)?;
    if status.success() {
        return Ok(Handled::Done(vec![id]));
    }
    Ok(Handled::Failed { id, reason: format!("the command ended with {status}") })
}
