//! `prombus import`.
//!
//! Sends many lines per request, one request at a time, and reads ahead while it waits for the answer. The server
//! stores a request completely or not at all, which preserves the order across failures.
//!
//! - `line_reader`: reads lines ahead
//! - `batch`: the lines of one request

mod batch;
mod line_reader;

use std::error::Error;
use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use hyper::Method;
use prombus_proto::Topic;
use serde::{Deserialize, Serialize};

use super::publish_progress::PublishProgress;
use super::rate_limit_notice::RateLimitNotice;
use super::retries::Retries;
use super::server_arguments::HttpArguments;
use super::stop_signal::StopSignal;
use batch::{LineBatch, MAX_LINES};
use line_reader::{Chunk, LineReader};
use prombus_client::transport::{HttpClient, HttpFailure};

#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  prombus import orders.created orders.ndjson
  zstdcat orders.zst | prombus import orders.created
  prombus export orders.created | prombus import orders.created --url https://bus.example.com

Each line is an event as written by export: {\"payload\": …} with optional id, ts, key, headers, tags,
caused_by and sid; other fields are ignored. An event whose id the topic already contains counts as a
duplicate and is not stored again, so it is safe to import a file twice, and to resend after a lost
connection. Waits if the server limits the rate: by default, to 200 events per second and connection. Prints
{\"count\":…,\"duplicates\":…,\"first_seq\":…,\"last_seq\":…} when done.")]
pub(crate) struct ImportArguments {
    /// Topic to publish to, such as orders.created
    topic: Topic,
    /// File to import, or - for stdin; default: stdin
    file: Option<PathBuf>,
    /// Maximum consecutive attempts to resend after a lost connection
    #[arg(long, value_name = "COUNT", default_value_t = 8)]
    tries: u32,
    #[command(flatten)]
    server: HttpArguments,
}

/// Maximum lines of the first request. Later requests grow while they are answered quickly and shrink when they
/// are slow, so that progress is steady and stopping does not take long.
const FIRST_LINES: usize = 1000;
const QUICK: Duration = Duration::from_millis(500);
const SLOW: Duration = Duration::from_secs(2);

pub(crate) async fn run(arguments: ImportArguments) -> Result<(), Box<dyn Error>> {
    let ImportArguments { topic, file, tries, server } = arguments;
    let mut importer = Importer {
        client: server.client()?,
        path: format!("/publish/{topic}"),
        progress: PublishProgress::new(topic).with_total(size_of(file.as_deref())),
        input: LineReader::open(file)?,
        ahead: None,
        lines: 0,
        max_lines: FIRST_LINES,
        total: ImportSummary::default(),
        stop_signal: StopSignal::new()?,
        is_stopping: false,
        was_reached: false,
        max_retries: tries,
        limits: RateLimitNotice::default(),
    };
    let result = importer.import_all().await;
    importer.progress.finish(result.is_ok());
    result?;
    let total = serde_json::to_string(&importer.total)?;
    let mut out = io::stdout().lock();
    writeln!(out, "{total}")?;
    Ok(out.flush()?)
}

/// Returns the size of a regular file; of a pipe it is unknown.
fn size_of(file: Option<&Path>) -> Option<u64> {
    let file = fs::metadata(file?).ok()?;
    file.is_file().then_some(file.len())
}

/// The server's answer to a request, and the sum of all answers.
#[derive(Debug, Default, Serialize, Deserialize)]
struct ImportSummary {
    count: u64,
    duplicates: u64,
    first_seq: Option<u64>,
    last_seq: Option<u64>,
}

struct Importer {
    client: HttpClient,
    path: String,
    input: LineReader,
    /// Read, but did not fit into the last request.
    ahead: Option<Chunk>,
    /// Lines stored so far.
    lines: u64,
    /// Maximum lines of the next request.
    max_lines: usize,
    total: ImportSummary,
    stop_signal: StopSignal,
    /// A stop signal arrived: the current request is the last.
    is_stopping: bool,
    /// The server answered at least once.
    was_reached: bool,
    max_retries: u32,
    progress: PublishProgress,
    limits: RateLimitNotice,
}

impl Importer {
    async fn import_all(&mut self) -> Result<(), String> {
        loop {
            let (batch, fill) = self.fill().await;
            if !batch.is_empty() {
                self.import(batch).await?;
            }
            match fill {
                _ if self.is_stopping => return Err(self.stopped()),
                Fill::Ready => {}
                Fill::End => return Ok(()),
                Fill::Invalid(reason) => return Err(self.invalid_line(self.lines + 1, &reason)),
            }
        }
    }

    /// Waits for lines to send, then takes what else is available, up to one request.
    async fn fill(&mut self) -> (LineBatch, Fill) {
        let mut batch = LineBatch::new(self.lines + 1);
        loop {
            let next = match self.ahead.take() {
                Some(chunk) => Some(Ok(chunk)),
                None if batch.is_empty() => tokio::select! {
                    next = self.input.next() => next,
                    () = self.stop_signal.recv() => {
                        self.is_stopping = true;
                        return (batch, Fill::Ready);
                    }
                },
                None => match self.input.try_next() {
                    Some(next) => next,
                    None => return (batch, Fill::Ready),
                },
            };
            match next {
                Some(Ok(chunk)) if batch.fits(&chunk, self.max_lines) => batch.push(&chunk),
                Some(Ok(chunk)) => {
                    self.ahead = Some(chunk);
                    return (batch, Fill::Ready);
                }
                Some(Err(reason)) => return (batch, Fill::Invalid(reason)),
                None => return (batch, Fill::End),
            }
        }
    }

    /// Sends a batch until it is stored. If a line is invalid, stores the lines before it and fails.
    async fn import(&mut self, mut batch: LineBatch) -> Result<(), String> {
        let mut retries = Retries::up_to(self.max_retries);
        let mut invalid = None;
        while !batch.is_empty() {
            let started = Instant::now();
            let failure = match self.send(&batch).await {
                Some(Ok(answer)) => {
                    self.stored(&batch, &answer, started.elapsed());
                    break;
                }
                Some(Err(failure)) => failure,
                None => return Err(format!("stopped; {}", self.outcome_unknown(&batch))),
            };
            if let Some((line, reason)) = failure.rejected_line() {
                invalid = Some((batch.first() + line as u64 - 1, reason.to_owned()));
                batch.truncate(line - 1);
                continue;
            }
            let delay = match failure.retry_after() {
                Some(delay) => delay,
                None => {
                    self.check_resendable(&batch, &failure)?;
                    retries.failed().ok_or_else(|| {
                        let (count, outcome) = (retries.count(), self.outcome_unknown(&batch));
                        format!("{failure}, {count} times in a row; {outcome}")
                    })?
                }
            };
            let explanation = failure.rate_limit().and_then(|message| self.limits.explain(message));
            if let Some(explanation) = explanation {
                self.progress.println(&explanation);
            }
            let (lines, seconds) = (batch.name(), delay.as_secs_f32());
            self.progress.println(&format!("{failure}; resending {lines} in {seconds:.1} s"));
            tokio::select! {
                () = tokio::time::sleep(delay) => {}
                () = self.stop_signal.recv() => {
                    return Err(format!("stopped; {}", self.outcome_unknown(&batch)));
                }
            }
        }
        invalid.map_or(Ok(()), |(line, reason)| Err(self.invalid_line(line, &reason)))
    }

    /// Sends a request and waits for the answer. Returns `None` if a second stop signal ends the wait.
    async fn send(&mut self, batch: &LineBatch) -> Option<Result<ImportSummary, HttpFailure>> {
        let (client, path) = (&mut self.client, &self.path);
        let request = async {
            let content_type = "application/x-ndjson";
            client.send(Method::POST, path, content_type, batch.body()).await?.json().await
        };
        let mut request = std::pin::pin!(request);
        let answer = loop {
            tokio::select! {
                answer = &mut request => break answer,
                () = self.stop_signal.recv() => {
                    if self.is_stopping {
                        return None;
                    }
                    self.is_stopping = true;
                    self.progress.println(&format!("stopping once {} are stored", batch.name()));
                }
            }
        };
        self.was_reached |= !matches!(answer, Err(HttpFailure::NotReached(_)));
        Some(answer)
    }

    fn stored(&mut self, batch: &LineBatch, answer: &ImportSummary, time: Duration) {
        let first_seqs = self.total.first_seq.into_iter().chain(answer.first_seq);
        self.total.first_seq = first_seqs.min();
        self.total.last_seq = self.total.last_seq.max(answer.last_seq);
        self.total.count += answer.count;
        self.total.duplicates += answer.duplicates;
        self.lines = batch.last();
        self.progress.consumed(batch.bytes() as u64);
        self.progress.confirmed(answer.count, answer.duplicates);
        if time > SLOW {
            self.max_lines = (self.max_lines / 2).max(1);
        } else if time < QUICK {
            self.max_lines = (self.max_lines * 2).min(MAX_LINES);
        }
    }

    /// Fails if resending could store events twice, or cannot succeed.
    fn check_resendable(&self, batch: &LineBatch, failure: &HttpFailure) -> Result<(), String> {
        let was_never_reached = !self.was_reached && matches!(failure, HttpFailure::NotReached(_));
        let may_succeed = failure.is_retryable() && !was_never_reached;
        if may_succeed && (failure.had_no_effect() || batch.has_ids()) {
            return Ok(());
        }
        if failure.had_no_effect() {
            let (name, done) = (batch.name(), self.stored_so_far());
            return Err(format!("{failure} ({name}: not stored){done}"));
        }
        Err(format!("{failure}; {}", self.outcome_unknown(batch)))
    }

    /// Describes a batch that was sent but not confirmed.
    fn outcome_unknown(&self, batch: &LineBatch) -> String {
        let resend = if batch.has_ids() {
            "importing them again stores nothing twice"
        } else {
            "some have no id, so importing them again could store them twice"
        };
        let (name, done) = (batch.name(), self.stored_so_far());
        format!("{name} may or may not be stored; {resend}{done}")
    }

    fn invalid_line(&self, line: u64, reason: &str) -> String {
        format!("line {line}: {reason}{}", self.stored_so_far())
    }

    fn stopped(&self) -> String {
        let next = self.lines + 1;
        format!(
            "stopped{}; import the rest of the input with `tail -n +{next}`",
            self.stored_so_far()
        )
    }

    fn stored_so_far(&self) -> String {
        match self.lines {
            0 => "; nothing was stored".to_owned(),
            lines => {
                let ImportSummary { count, duplicates, .. } = self.total;
                let duplicates = match duplicates {
                    0 => String::new(),
                    some => format!(" ({some} duplicates)"),
                };
                format!("; {count} events up to line {lines} are stored{duplicates}")
            }
        }
    }
}

/// How reading lines for a request ended.
enum Fill {
    /// The request is full, or no more input is available right now.
    Ready,
    /// The input ended.
    End,
    /// The next line is invalid or not readable, for this reason.
    Invalid(String),
}
