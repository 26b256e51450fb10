//! `prombus export`.
//!
//! Writes complete lines only and remembers the id of the last one: an export continues there after a lost
//! connection or a crash.
//!
//! - `destination`: the file or stdout
//! - `resumable_file`: the file of an earlier, incomplete export
//! - `progress`: the status line

mod destination;
mod progress;
mod resumable_file;

use std::error::Error;
use std::io;
use std::ops::Range;
use std::path::PathBuf;

use bytes::BytesMut;
use memchr::{memchr, memrchr};
use prombus_proto::limits::MAX_EVENT_BYTES;
use prombus_proto::{EventId, Seq, Timestamp, Topic};
use serde::Deserialize;
use thiserror::Error;

use super::event_line::EventLine;
use super::retries::Retries;
use super::server_arguments::HttpArguments;
use super::stop_signal::StopSignal;
use super::times::time;
use destination::Destination;
use progress::ExportProgress;
use prombus_client::DamagedRange;
use prombus_client::transport::{AddressError, HttpClient, HttpFailure, Query};

#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  prombus export orders.created > orders.ndjson
  prombus export orders.created --output orders.ndjson
  prombus export orders.created --output orders.ndjson --resume
  prombus export orders.created --from-ts 2026-01-01 --to-ts 2026-02-01 | zstd > jan.zst

Writes one event per line, as stored, in topic order; `prombus import` reads them back. Reconnects and
continues if the connection is lost. Exits with 0 only if the export is complete, or complete but for damaged
events with --skip-damaged.

TIME is a duration before now, such as 7d, 90m or 2h30m; a date or time such as 2026-01-02 or
2026-01-02T03:04:05Z, in UTC unless it has an offset; or milliseconds since 1970. A date is its first moment.")]
pub(crate) struct ExportArguments {
    /// Topic to export, such as orders.created
    topic: Topic,
    /// Write to this file, which must not exist; default: stdout
    #[arg(long, short, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Export only events at or after this time, such as 7d (ago) or 2026-01-02
    #[arg(long, value_name = "TIME", value_parser = time)]
    from_ts: Option<Timestamp>,
    /// Export only events at or before this time
    #[arg(long, value_name = "TIME", value_parser = time)]
    to_ts: Option<Timestamp>,
    /// Export only events after the one with this id
    #[arg(long, value_name = "ID")]
    after_id: Option<EventId>,
    /// Resume an incomplete export of this topic after the last complete line of the file
    #[arg(long, requires = "output")]
    resume: bool,
    /// Continue behind events that the server cannot read back, and name them on stderr
    #[arg(long)]
    skip_damaged: bool,
    /// Maximum consecutive reconnect attempts
    #[arg(long, value_name = "COUNT", default_value_t = 8)]
    tries: u32,
    #[command(flatten)]
    server: HttpArguments,
}

/// Bytes to buffer before a write.
const BUFFER_BYTES: usize = 256 << 10;

pub(crate) async fn run(arguments: ExportArguments) -> Result<(), Box<dyn Error>> {
    let ExportArguments {
        topic,
        output,
        from_ts,
        to_ts,
        after_id,
        resume,
        skip_damaged,
        tries,
        server,
    } = arguments;
    let mut stop_signal = StopSignal::new()?;
    let (destination, last) = Destination::prepare(output, resume, &topic)?;
    let mut export = Export {
        client: server.client()?,
        progress: ExportProgress::new(&topic, destination.is_terminal(), to_ts.is_some()),
        destination,
        after: last.map(|last| last.id).or(after_id),
        topic,
        from_ts,
        // By default, the server would leave out events with a timestamp in the future.
        to_ts: to_ts.unwrap_or(Timestamp(u64::MAX)),
        skip_damaged,
        reported_damage: None,
        was_reached: false,
    };
    let result = tokio::select! {
        result = export.run(tries) => result,
        () = stop_signal.recv() => Err(ExportError::Stopped),
    };
    // An empty summary would only distract from an error.
    if result.is_ok() || export.progress.events() > 0 {
        export.progress.finish();
    }
    result.map_err(|error| match error {
        // The reader of a pipe has enough.
        ExportError::Write(error) if error.kind() == io::ErrorKind::BrokenPipe => error.into(),
        error => export.describe_failure(&error).into(),
    })
}

struct Export {
    client: HttpClient,
    topic: Topic,
    from_ts: Option<Timestamp>,
    to_ts: Timestamp,
    /// The last event written, or the one to start after.
    after: Option<EventId>,
    destination: Destination,
    progress: ExportProgress,
    skip_damaged: bool,
    /// The last damage that was named. The server repeats it after a lost connection.
    reported_damage: Option<DamagedRange>,
    /// The server answered at least once.
    was_reached: bool,
}

#[derive(Debug, Error)]
enum ExportError {
    #[error(transparent)]
    Http(#[from] HttpFailure),
    #[error("cannot write: {0}")]
    Write(#[from] io::Error),
    #[error("{0}")]
    Damaged(DamagedRange),
    #[error("{0}")]
    Destination(String),
    #[error("{failure}, {attempts} times in a row")]
    GivenUp { failure: HttpFailure, attempts: u32 },
    #[error("stopped")]
    Stopped,
}

#[derive(Deserialize)]
struct TopicEnd {
    last_seq: Option<Seq>,
}

impl Export {
    /// Exports everything, across lost connections.
    async fn run(&mut self, max_retries: u32) -> Result<(), ExportError> {
        let mut retries = Retries::up_to(max_retries);
        loop {
            let before = self.progress.events();
            let failure = match self.export_stream().await {
                Ok(()) => return Ok(self.destination.finish().await?),
                Err(ExportError::Http(failure)) if self.is_retryable(&failure) => failure,
                Err(error) => return Err(error),
            };
            if self.progress.events() > before {
                retries.reset();
            }
            let Some(delay) = retries.failed() else {
                return Err(ExportError::GivenUp { failure, attempts: retries.count() });
            };
            let delay = failure.retry_after().unwrap_or(delay);
            let (count, seconds) = (retries.count(), delay.as_secs_f32());
            self.progress.println(&format!(
                "{failure}; retrying in {seconds:.1} s (attempt {count} of {max_retries}, {} events so \
                 far)",
                self.progress.events()
            ));
            tokio::time::sleep(delay).await;
        }
    }

    /// A server that was never reachable is an error, not a lost connection.
    fn is_retryable(&self, failure: &HttpFailure) -> bool {
        let was_never_reached = !self.was_reached
            && matches!(failure, HttpFailure::NotReached(AddressError::Unreachable { .. }));
        failure.is_retryable() && !was_never_reached
    }

    /// Exports what one response delivers.
    async fn export_stream(&mut self) -> Result<(), ExportError> {
        if self.progress.needs_end() {
            let topic: TopicEnd = self.client.get_json(&format!("/topics/{}", self.topic)).await?;
            self.progress.set_end(topic.last_seq);
        }
        let path = Query::of("/export")
            .with("topic", Some(&self.topic))
            .with("fromTs", self.from_ts)
            .with("toTs", Some(self.to_ts))
            .with("afterId", self.after.as_ref())
            .with("damaged", Some("skip"));
        let answer = self.client.get(path.as_str()).await;
        self.was_reached |= !matches!(answer, Err(HttpFailure::NotReached(_)));
        let mut answer = answer?;
        self.destination.open().map_err(ExportError::Destination)?;
        let mut received = BytesMut::with_capacity(2 * BUFFER_BYTES);
        loop {
            match answer.next().await {
                Ok(Some(bytes)) => {
                    received.extend_from_slice(&bytes);
                    if received.len() >= BUFFER_BYTES {
                        self.write_lines(&mut received).await?;
                    }
                }
                Ok(None) => {
                    self.write_lines(&mut received).await?;
                    if received.is_empty() {
                        return Ok(());
                    }
                    return Err(
                        HttpFailure::Lost("the response ended within a line".to_owned()).into()
                    );
                }
                Err(failure) => {
                    self.write_lines(&mut received).await?;
                    return Err(failure.into());
                }
            }
        }
    }

    /// Writes the complete lines received so far, and keeps the rest.
    async fn write_lines(&mut self, received: &mut BytesMut) -> Result<(), ExportError> {
        while let Some(newline) = memrchr(b'\n', received) {
            let Some(line) = find_damage(&received[..=newline]) else {
                return self.write_events(received.split_to(newline + 1)).await;
            };
            if line.start > 0 {
                self.write_events(received.split_to(line.start)).await?;
            }
            self.pass_damage(&received.split_to(line.len()))?;
        }
        if received.len() > MAX_EVENT_BYTES + BUFFER_BYTES {
            let reason = "a line exceeds the maximum event size".to_owned();
            return Err(HttpFailure::NotUnderstood(reason).into());
        }
        Ok(())
    }

    /// Writes complete lines, of which there is at least one.
    async fn write_events(&mut self, lines: BytesMut) -> Result<(), ExportError> {
        let end = lines.len() - 1;
        let start = memrchr(b'\n', &lines[..end]).map_or(0, |newline| newline + 1);
        let last = EventLine::parse(&lines[start..end])
            .filter(|last| last.topic == self.topic)
            .ok_or_else(|| HttpFailure::NotUnderstood(format!("not an event of {}", self.topic)))?;
        let lines = lines.freeze();
        self.destination.write(lines.clone()).await?;
        self.after = Some(last.id);
        self.progress.written(&lines, last.seq);
        Ok(())
    }

    fn pass_damage(&mut self, line: &[u8]) -> Result<(), ExportError> {
        let damaged = DamagedRange::from_line(line)
            .ok_or_else(|| HttpFailure::NotUnderstood("not a range of events".to_owned()))?;
        if !self.skip_damaged {
            return Err(ExportError::Damaged(damaged));
        }
        if self.reported_damage.replace(damaged) != Some(damaged) {
            self.progress.println(&format!("skipped: {damaged}"));
        }
        Ok(())
    }

    /// Says what went wrong, what is written, and how to resume.
    fn describe_failure(&self, error: &ExportError) -> String {
        if !self.destination.is_open() {
            return error.to_string();
        }
        let (topic, events) = (&self.topic, self.progress.events());
        let state =
            format!("{error}; the export of {topic} is incomplete, {events} events were written");
        let skip = match error {
            ExportError::Damaged(_) => " --skip-damaged",
            _ => "",
        };
        match (self.destination.path(), &self.after) {
            (Some(_), _) => {
                format!("{state}: run the same command with --resume{skip} to continue")
            }
            (None, Some(id)) => format!("{state}: add --after-id {id}{skip} to continue"),
            (None, None) if !skip.is_empty() => format!("{state}: add{skip} to continue"),
            (None, None) => state,
        }
    }
}

/// Returns the first complete line that names damaged events, with its newline. An event has no newline
/// inside.
fn find_damage(lines: &[u8]) -> Option<Range<usize>> {
    let start = match lines.starts_with(DamagedRange::LINE_START) {
        true => 0,
        false => {
            let mut newlines = memchr::memmem::find_iter(lines, b"\n{\"d");
            newlines.find(|at| lines[at + 1..].starts_with(DamagedRange::LINE_START))? + 1
        }
    };
    Some(start..start + memchr(b'\n', &lines[start..])? + 1)
}
