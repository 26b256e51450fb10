//! `prombus import`.
//!
//! Lines go out in requests of many, one request at a time: while its answer is awaited, the next
//! lines are read. A request is stored as a whole or not at all, so their order is kept whatever
//! goes wrong in between.
//!
//! | idea | file |
//! |---|---|
//! | lines as they are read | `input` |
//! | the lines of one request | `batch` |

mod batch;
mod input;

use std::error::Error;
use std::io::{self, Write};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use hyper::Method;
use prombus_proto::Topic;
use serde::{Deserialize, Serialize};

use super::progress::Progress;
use super::server_arguments::HttpArguments;
use super::stopping::Stopping;
use super::tries::Tries;
use batch::{Batch, MAX_LINES};
use input::{Chunk, Input};
use prombus_client::transport::{HttpClient, HttpFailure};

/// What `import` takes.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  prombus import orders.created orders.ndjson
  zstdcat orders.zst | prombus import orders.created
  prombus export orders.created | prombus import orders.created --url https://bus.example.com

Each line is an event as export writes it: {\"payload\": …} with id, ts, key, headers, tags, caused_by
and sid where wanted; anything else in it is left out. An event whose id the topic holds is counted as
a duplicate and not stored again, so importing a file again does no harm; so is one that was stored
already when the connection was lost and it was sent again. At the end it prints
{\"count\":…,\"duplicates\":…,\"first_seq\":…,\"last_seq\":…}.")]
pub(crate) struct ImportArguments {
    /// Where to publish, such as orders.created
    topic: Topic,
    /// The file; without it, or for -, standard input
    file: Option<PathBuf>,
    /// How often in a row a lost connection is tried again
    #[arg(long, value_name = "COUNT", default_value_t = 8)]
    tries: u32,
    #[command(flatten)]
    server: HttpArguments,
}

/// How many lines the first request has at most. Later ones have as many as are answered in a
/// time that is good to watch, and good to wait for when one is asked to stop.
const FIRST_LINES: usize = 1000;
const QUICK: Duration = Duration::from_millis(500);
const SLOW: Duration = Duration::from_secs(2);

pub(crate) async fn run(arguments: ImportArguments) -> Result<(), Box<dyn Error>> {
    let ImportArguments { topic, file, tries, server } = arguments;
    let mut importer = Importer {
        client: server.client()?,
        path: format!("/publish/{topic}"),
        input: Input::open(file)?,
        ahead: None,
        lines: 0,
        most: FIRST_LINES,
        total: Stored::default(),
        stopping: Stopping::new()?,
        is_stopping: false,
        was_reached: false,
        tries,
        progress: Progress::new(topic),
    };
    let result = importer.import_all().await;
    importer.progress.finish(result.is_ok());
    result?;
    let total = serde_json::to_string(&importer.total)?;
    let mut out = io::stdout().lock();
    writeln!(out, "{total}")?;
    Ok(out.flush()?)
}

/// What became of events.
#[derive(Debug, Default, Serialize, Deserialize)]
struct Stored {
    count: u64,
    duplicates: u64,
    first_seq: Option<u64>,
    last_seq: Option<u64>,
}

struct Importer {
    client: HttpClient,
    path: String,
    input: Input,
    /// Read, and too much for the last request.
    ahead: Option<Chunk>,
    /// How many lines are done.
    lines: u64,
    /// How many lines go into one request.
    most: usize,
    total: Stored,
    stopping: Stopping,
    /// Asked to stop: what is on its way is the last.
    is_stopping: bool,
    /// Whether the server ever answered.
    was_reached: bool,
    tries: u32,
    progress: Progress,
}

impl Importer {
    async fn import_all(&mut self) -> Result<(), String> {
        loop {
            let (batch, end) = self.gather().await;
            if !batch.is_empty() {
                self.import(batch).await?;
            }
            match end {
                _ if self.is_stopping => return Err(self.stopped()),
                End::NotYet => {}
                End::Reached => return Ok(()),
                End::Bad(reason) => return Err(self.bad_line(self.lines + 1, &reason)),
            }
        }
    }

    /// Waits for something to send, and takes what else is there.
    async fn gather(&mut self) -> (Batch, End) {
        let mut batch = Batch::new(self.lines + 1);
        loop {
            let next = match self.ahead.take() {
                Some(chunk) => Some(Ok(chunk)),
                None if batch.is_empty() => tokio::select! {
                    next = self.input.next() => next,
                    () = self.stopping.asked() => {
                        self.is_stopping = true;
                        return (batch, End::NotYet);
                    }
                },
                None => match self.input.next_now() {
                    Some(next) => next,
                    None => return (batch, End::NotYet),
                },
            };
            match next {
                Some(Ok(chunk)) if batch.takes(&chunk, self.most) => batch.push(&chunk),
                Some(Ok(chunk)) => {
                    self.ahead = Some(chunk);
                    return (batch, End::NotYet);
                }
                Some(Err(reason)) => return (batch, End::Bad(reason)),
                None => return (batch, End::Reached),
            }
        }
    }

    /// Sends a batch until it is stored. Where a line of it is bad, those above it are.
    async fn import(&mut self, mut batch: Batch) -> Result<(), String> {
        let mut tries = Tries::at_most(self.tries);
        let mut bad = None;
        while !batch.is_empty() {
            let began = Instant::now();
            let failure = match self.send(&batch).await {
                Some(Ok(stored)) => {
                    self.stored(&batch, &stored, began.elapsed());
                    break;
                }
                Some(Err(failure)) => failure,
                None => return Err(format!("stopped; {}", self.in_doubt(&batch))),
            };
            if let Some((line, reason)) = failure.rejected_line() {
                bad = Some((batch.first() + line as u64 - 1, reason.to_owned()));
                batch.keep_lines(line - 1);
                continue;
            }
            let wait = match failure.retry_after() {
                Some(wait) => wait,
                None => {
                    self.may_be_sent_again(&batch, &failure)?;
                    tries.failed().ok_or_else(|| {
                        let (count, in_doubt) = (tries.count(), self.in_doubt(&batch));
                        format!("{failure}, {count} times in a row; {in_doubt}")
                    })?
                }
            };
            let seconds = wait.as_secs_f32();
            self.progress.say(&format!("{failure}; {} go again in {seconds:.1} s", batch.name()));
            tokio::select! {
                () = tokio::time::sleep(wait) => {}
                () = self.stopping.asked() => {
                    return Err(format!("stopped; {}", self.in_doubt(&batch)));
                }
            }
        }
        bad.map_or(Ok(()), |(line, reason)| Err(self.bad_line(line, &reason)))
    }

    /// What a request is answered; nothing when it is not waited for, as somebody asked twice to
    /// stop.
    async fn send(&mut self, batch: &Batch) -> Option<Result<Stored, HttpFailure>> {
        let (client, path) = (&mut self.client, &self.path);
        let answered = async {
            let content_type = "application/x-ndjson";
            client.send(Method::POST, path, content_type, batch.body()).await?.json().await
        };
        let mut answered = std::pin::pin!(answered);
        let answer = loop {
            tokio::select! {
                answer = &mut answered => break answer,
                () = self.stopping.asked() => {
                    if self.is_stopping {
                        return None;
                    }
                    self.is_stopping = true;
                    self.progress.say(&format!("stopping when {} are answered", batch.name()));
                }
            }
        };
        self.was_reached |= !matches!(answer, Err(HttpFailure::NotReached(_)));
        Some(answer)
    }

    fn stored(&mut self, batch: &Batch, stored: &Stored, time: Duration) {
        let first_seqs = self.total.first_seq.into_iter().chain(stored.first_seq);
        self.total.first_seq = first_seqs.min();
        self.total.last_seq = self.total.last_seq.max(stored.last_seq);
        self.total.count += stored.count;
        self.total.duplicates += stored.duplicates;
        self.lines = batch.last();
        self.progress.answered(stored.count, stored.duplicates);
        if time > SLOW {
            self.most = (self.most / 2).max(1);
        } else if time < QUICK {
            self.most = (self.most * 2).min(MAX_LINES);
        }
    }

    /// Refuses to send again what could be stored twice then, and what cannot get better.
    fn may_be_sent_again(&self, batch: &Batch, failure: &HttpFailure) -> Result<(), String> {
        let was_never_there = !self.was_reached && matches!(failure, HttpFailure::NotReached(_));
        let can_get_better = failure.is_retryable() && !was_never_there;
        if can_get_better && (failure.had_no_effect() || batch.has_ids()) {
            return Ok(());
        }
        if failure.had_no_effect() {
            let (name, done) = (batch.name(), self.done_until_now());
            return Err(format!("{failure} ({name}: not stored){done}"));
        }
        Err(format!("{failure}; {}", self.in_doubt(batch)))
    }

    /// What is not known about lines that were sent.
    fn in_doubt(&self, batch: &Batch) -> String {
        let again = if batch.has_ids() {
            "sending them again stores nothing twice"
        } else {
            "not every one of them has an id, so sending them again could store them twice"
        };
        let (name, done) = (batch.name(), self.done_until_now());
        format!("whether {name} are stored is not known, and {again}{done}")
    }

    fn bad_line(&self, line: u64, reason: &str) -> String {
        format!("line {line}: {reason}{}", self.done_until_now())
    }

    fn stopped(&self) -> String {
        let next = self.lines + 1;
        format!("stopped{}; `tail -n +{next}` gives the rest of the input", self.done_until_now())
    }

    fn done_until_now(&self) -> String {
        match self.lines {
            0 => "; nothing is stored".to_owned(),
            lines => {
                let Stored { count, duplicates, .. } = self.total;
                let known = match duplicates {
                    0 => String::new(),
                    some => format!(" ({some} of them were there already)"),
                };
                format!("; the {count} events up to line {lines} are stored{known}")
            }
        }
    }
}

/// Why no more is gathered.
enum End {
    /// There may be more.
    NotYet,
    /// There is no more.
    Reached,
    /// What comes next cannot be read: a sentence.
    Bad(String),
}
