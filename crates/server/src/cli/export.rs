//! `prombus export`.
//!
//! Only whole lines are written, and the id of the last one is known: that is where it goes on
//! after a lost connection, and after a lost process.
//!
//! | idea | file |
//! |---|---|
//! | where the lines go | `destination` |
//! | a file that an earlier export left | `begun_file` |
//! | how far it is | `progress` |

mod begun_file;
mod destination;
mod progress;

use std::error::Error;
use std::io;
use std::path::PathBuf;

use bytes::BytesMut;
use memchr::memrchr;
use prombus_proto::limits::MAX_EVENT_BYTES;
use prombus_proto::{EventId, Topic};
use serde::Deserialize;
use thiserror::Error;

use super::server_arguments::HttpArguments;
use super::stopping::Stopping;
use super::stored_line::StoredLine;
use super::tries::Tries;
use destination::Destination;
use progress::Progress;
use prombus_client::transport::{AddressError, HttpClient, HttpFailure, Query};

/// What `export` takes.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  prombus export orders.created > orders.ndjson
  prombus export orders.created --output orders.ndjson
  prombus export orders.created --output orders.ndjson --resume
  prombus export orders.created --from-ts 1767225600000 --to-ts 1769903999999 | zstd > jan.zst

Each event is one line, as it is stored, in the order of the topic; `prombus import` takes them back.
A lost connection is opened again and the export goes on. It succeeds only when it is complete.")]
pub(crate) struct ExportArguments {
    /// What to export, such as orders.created
    topic: Topic,
    /// Write to this file, which must not exist yet; without it, to standard output
    #[arg(long, short, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Only events of this time or later, in milliseconds since 1970
    #[arg(long, value_name = "MS")]
    from_ts: Option<u64>,
    /// Only events of this time or earlier
    #[arg(long, value_name = "MS")]
    to_ts: Option<u64>,
    /// Only events behind the one with this id
    #[arg(long, value_name = "ID")]
    after_id: Option<EventId>,
    /// Go on with a file that an earlier export of this topic left, behind its last whole line
    #[arg(long, requires = "output")]
    resume: bool,
    /// How often in a row a lost connection is tried again
    #[arg(long, value_name = "COUNT", default_value_t = 8)]
    tries: u32,
    #[command(flatten)]
    server: HttpArguments,
}

/// How much is written at a time.
const BUFFER_BYTES: usize = 256 << 10;

pub(crate) async fn run(arguments: ExportArguments) -> Result<(), Box<dyn Error>> {
    let ExportArguments { topic, output, from_ts, to_ts, after_id, resume, tries, server } =
        arguments;
    let mut stopping = Stopping::new()?;
    let (destination, last) = Destination::prepare(output, resume, &topic)?;
    let mut export = Export {
        client: server.client()?,
        progress: Progress::new(&topic, destination.is_a_terminal()),
        destination,
        after: last.map(|last| last.id).or(after_id),
        topic,
        from_ts,
        // The server would leave out what has a time to come.
        to_ts: to_ts.unwrap_or(u64::MAX),
        was_reached: false,
    };
    let result = tokio::select! {
        result = export.all(tries) => result,
        () = stopping.asked() => Err(Failure::Stopped),
    };
    // It would only stand in the way of an error.
    if result.is_ok() || export.progress.events() > 0 {
        export.progress.finish();
    }
    result.map_err(|failure| export.not_complete(&failure).into())
}

struct Export {
    client: HttpClient,
    topic: Topic,
    from_ts: Option<u64>,
    to_ts: u64,
    /// The last event that is written, or behind which it begins.
    after: Option<EventId>,
    destination: Destination,
    progress: Progress,
    /// Whether the server ever answered.
    was_reached: bool,
}

#[derive(Debug, Error)]
enum Failure {
    #[error(transparent)]
    Http(#[from] HttpFailure),
    #[error("cannot write: {0}")]
    Writing(#[from] io::Error),
    #[error("{0}")]
    Destination(String),
    #[error("{failure}, {tries} times in a row")]
    GivenUp { failure: HttpFailure, tries: u32 },
    #[error("stopped")]
    Stopped,
}

/// Where a topic begins and ends.
#[derive(Deserialize)]
struct Extent {
    first_seq: Option<u64>,
    last_seq: Option<u64>,
}

impl Export {
    /// All of it, however often the connection is lost.
    async fn all(&mut self, most: u32) -> Result<(), Failure> {
        let mut tries = Tries::at_most(most);
        loop {
            let before = self.progress.events();
            let failure = match self.some().await {
                Ok(()) => return Ok(self.destination.finish().await?),
                Err(Failure::Http(failure)) if self.is_retried(&failure) => failure,
                Err(failure) => return Err(failure),
            };
            if self.progress.events() > before {
                tries.went_well();
            }
            let Some(wait) = tries.failed() else {
                return Err(Failure::GivenUp { failure, tries: tries.count() });
            };
            let wait = failure.retry_after().unwrap_or(wait);
            let (count, seconds) = (tries.count(), wait.as_secs_f32());
            self.progress.say(&format!(
                "{failure}; it goes on in {seconds:.1} s (try {count} of {most}, {} events until \
                 now)",
                self.progress.events()
            ));
            tokio::time::sleep(wait).await;
        }
    }

    /// A server that was never there is no lost connection.
    fn is_retried(&self, failure: &HttpFailure) -> bool {
        let was_never_there = !self.was_reached
            && matches!(failure, HttpFailure::NotReached(AddressError::Unreachable { .. }));
        failure.is_retryable() && !was_never_there
    }

    /// As much as one answer gives.
    async fn some(&mut self) -> Result<(), Failure> {
        if self.progress.wants_extent() {
            let extent: Extent = self.client.get_json(&format!("/topics/{}", self.topic)).await?;
            self.progress.set_extent(extent.first_seq, extent.last_seq);
        }
        let path = Query::of("/export")
            .with("topic", Some(&self.topic))
            .with("fromTs", self.from_ts)
            .with("toTs", Some(self.to_ts))
            .with("afterId", self.after.as_ref());
        let answer = self.client.get(path.as_str()).await;
        self.was_reached |= !matches!(answer, Err(HttpFailure::NotReached(_)));
        let mut answer = answer?;
        self.destination.open().map_err(Failure::Destination)?;
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
                    return Err(HttpFailure::Lost("it ended within a line".to_owned()).into());
                }
                Err(failure) => {
                    self.write_lines(&mut received).await?;
                    return Err(failure.into());
                }
            }
        }
    }

    /// Writes the whole lines of what was received, and leaves the rest.
    async fn write_lines(&mut self, received: &mut BytesMut) -> Result<(), Failure> {
        let Some(end) = memrchr(b'\n', received) else {
            if received.len() > MAX_EVENT_BYTES + BUFFER_BYTES {
                return Err(HttpFailure::NotUnderstood("a line without end".to_owned()).into());
            }
            return Ok(());
        };
        let begin = memrchr(b'\n', &received[..end]).map_or(0, |newline| newline + 1);
        let last = StoredLine::parse(&received[begin..end])
            .filter(|last| last.topic == self.topic)
            .ok_or_else(|| HttpFailure::NotUnderstood(format!("no event of {}", self.topic)))?;
        let lines = received.split_to(end + 1).freeze();
        self.destination.write(lines.clone()).await?;
        self.after = Some(last.id);
        self.progress.written(&lines, last.seq);
        Ok(())
    }

    /// What went wrong, what is there, and how to go on.
    fn not_complete(&self, failure: &Failure) -> String {
        let nothing_was_done = !self.destination.is_open();
        if nothing_was_done {
            return failure.to_string();
        }
        let (topic, events) = (&self.topic, self.progress.events());
        let state = format!(
            "{failure}; the export of {topic} is NOT complete, {events} events are written"
        );
        match (self.destination.path(), &self.after) {
            (Some(_), _) => format!("{state}: the same command with --resume goes on"),
            (None, Some(id)) => format!("{state}: --after-id {id} goes on behind them"),
            (None, None) => state,
        }
    }
}
