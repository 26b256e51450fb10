//! `prombus publish`.
//!
//! Events go out in frames of many, one frame at a time: while its answer is awaited, the next one
//! is read. So their order is kept whatever a rate limit refuses in between.

mod input;

use std::collections::VecDeque;
use std::error::Error;
use std::io::{self, IsTerminal, Write};

use prombus_proto::frame::{Outcome, Publish, PublishEvents, Published, ServerFrame};
use prombus_proto::limits::MAX_FRAME_EVENTS;
use prombus_proto::{ClientOp, ErrorCode, Topic};

use super::connection::{Connection, ConnectionError, refused};
use super::progress::Progress;
use super::server_arguments::GatewayArguments;
use input::{Input, InputArguments, Numbered};

/// What `publish` takes.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  prombus publish orders.created '{\"order\": 1}'
  prombus publish orders.created --key order-1 --header source=shop '{\"order\": 1}' '{\"order\": 2}'
  tail -f orders.ndjson | prombus publish orders.created
  prombus publish orders.created --events < exported.ndjson

Where the output is no terminal, each event is answered by a line {\"id\":…,\"seq\":…}, with
\"duplicate\":true if the topic held that id already.")]
pub(crate) struct PublishArguments {
    /// Where to publish, such as orders.created
    topic: Topic,
    #[command(flatten)]
    input: InputArguments,
    /// How many events may be on their way without an answer: 1 to 1000; fewer where frames get
    /// too large for the server
    #[arg(long, value_name = "COUNT", default_value_t = 1000,
          value_parser = clap::value_parser!(u16).range(1..=MAX_FRAME_EVENTS as i64))]
    window: u16,
    #[command(flatten)]
    server: GatewayArguments,
}

/// A frame is not filled further than this, so that it passes the server's default limit.
const FRAME_BYTES: usize = 512 << 10;

pub(crate) async fn run(arguments: PublishArguments) -> Result<(), Box<dyn Error>> {
    let PublishArguments { topic, input, window, server } = arguments;
    let input = Input::open(input)?;
    let mut publisher = Publisher {
        connection: Connection::open(&server).await?,
        input,
        waiting: VecDeque::new(),
        most: window.into(),
        progress: Progress::new(topic.clone()),
        topic,
        prints_answers: !io::stdout().is_terminal(),
    };
    let result = publisher.publish_all().await;
    publisher.progress.finish(result.is_ok());
    publisher.connection.close().await;
    result
}

struct Publisher {
    connection: Connection,
    input: Input,
    /// Read, and not answered yet.
    waiting: VecDeque<Numbered>,
    /// How many events go into one frame.
    most: usize,
    topic: Topic,
    progress: Progress,
    prints_answers: bool,
}

impl Publisher {
    async fn publish_all(&mut self) -> Result<(), Box<dyn Error>> {
        loop {
            let gathered = self.gather().await?;
            if !self.waiting.is_empty() {
                self.publish_some().await?;
            }
            // A bad line ends it, but not before all lines above are published.
            if self.waiting.is_empty() {
                match gathered {
                    Gathered::Bad(bad) => return Err(bad.into()),
                    Gathered::All => return Ok(()),
                    Gathered::Some => {}
                }
            } else if let Gathered::Bad(bad) = gathered {
                self.input.put_back(bad);
            }
        }
    }

    /// Waits for something to publish, and takes what else is there.
    async fn gather(&mut self) -> Result<Gathered, ConnectionError> {
        let mut bytes: usize = self.waiting.iter().map(Numbered::bytes).sum();
        while self.waiting.len() < self.most && bytes < FRAME_BYTES {
            let next = if self.waiting.is_empty() {
                tokio::select! {
                    next = self.input.next() => next,
                    // Nothing is to come, but pings are answered, and an end is noticed at once.
                    frame = self.connection.next() => match frame {
                        Ok(_) => continue,
                        Err(error) => return Err(error),
                    },
                }
            } else {
                match self.input.next_now() {
                    Some(next) => next,
                    None => return Ok(Gathered::Some),
                }
            };
            match next {
                Some(Ok(event)) => {
                    bytes += event.bytes();
                    self.waiting.push_back(event);
                }
                Some(Err(bad)) => return Ok(Gathered::Bad(bad)),
                None => return Ok(Gathered::All),
            }
        }
        Ok(Gathered::Some)
    }

    /// Publishes what waits, as far as one frame takes it.
    async fn publish_some(&mut self) -> Result<(), Box<dyn Error>> {
        let count = self.waiting.len().min(self.most);
        let events = self.waiting.iter().take(count).map(|waiting| waiting.event.clone()).collect();
        let events = PublishEvents::Many(events);
        self.connection.send(ClientOp::Publish(Publish { topic: self.topic.clone(), events }));
        let answer = self.connection.next().await;
        match answer.map_err(|error| self.about(count, &error, "whether stored is not known"))? {
            ServerFrame::Ok { outcome: Outcome::Results(results), .. }
                if results.len() == count =>
            {
                self.waiting.drain(..count);
                Ok(self.answered(&results)?)
            }
            ServerFrame::Err { code: ErrorCode::RateLimited, retry_after_ms: Some(ms), .. } => {
                self.progress.wait_out_the_limit(ms).await;
                Ok(())
            }
            // More at once than the limit ever allows.
            ServerFrame::Err { code: ErrorCode::RateLimited, .. } if count > 1 => {
                self.most = count / 2;
                Ok(())
            }
            ServerFrame::Err { code, msg, retry_after_ms, .. } => {
                let refusal = refused(code, msg, retry_after_ms);
                Err(self.about(count, &refusal, "not stored").into())
            }
            other => Err(format!("the server answered a PUBLISH with {other:?}").into()),
        }
    }

    fn answered(&mut self, results: &[Published]) -> io::Result<()> {
        if self.prints_answers {
            let mut out = io::stdout().lock();
            for Published { id, seq, duplicate } in results {
                let id = serde_json::to_string(id)?;
                let duplicate = if *duplicate { ",\"duplicate\":true" } else { "" };
                writeln!(out, "{{\"id\":{id},\"seq\":{seq}{duplicate}}}")?;
            }
            out.flush()?;
        }
        let duplicates = results.iter().filter(|result| result.duplicate).count();
        self.progress.answered(results.len() as u64, duplicates as u64);
        Ok(())
    }

    /// An error, with which input it is about.
    fn about(&self, count: usize, error: &ConnectionError, stored: &str) -> String {
        let first = self.waiting.front().map_or(0, |waiting| waiting.number);
        let last = self.waiting.get(count - 1).map_or(first, |waiting| waiting.number);
        let which = self.input.name_of(first, last);
        format!("{error} ({which}: {stored})")
    }
}

/// How much there was to gather.
enum Gathered {
    /// There may be more.
    Some,
    /// There is no more.
    All,
    /// What comes next is no event: a sentence.
    Bad(String),
}
