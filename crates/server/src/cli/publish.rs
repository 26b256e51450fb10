//! `prombus publish`.
//!
//! Sends many events per frame, one frame at a time, and reads ahead while it waits for the answer. One frame
//! at a time preserves the order even if the rate limit rejects a frame.

mod input;

use std::collections::VecDeque;
use std::error::Error;
use std::io::{self, IsTerminal, Write};
use std::time::Duration;

use prombus_proto::frame::{Outcome, Publish, PublishEvents, Published, ServerFrame};
use prombus_proto::limits::MAX_FRAME_EVENTS;
use prombus_proto::{ClientOp, ErrorCode, Topic};

use super::connection::{Connection, ConnectionError, refused};
use super::publish_progress::PublishProgress;
use super::rate_limit_notice::RateLimitNotice;
use super::server_arguments::GatewayArguments;
use input::{EventInput, InputArguments, InputEvent, InvalidInput};

#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  prombus publish orders.created '{\"order\": 1}'
  prombus publish orders.created --key order-1 --header source=shop '{\"order\": 1}' '{\"order\": 2}'
  tail -f orders.ndjson | prombus publish orders.created
  prombus publish orders.created --events < exported.ndjson

With --events, each event is {\"payload\": …} with optional id, ts, key, headers, tags, caused_by and sid;
other fields are ignored.

When stdout is not a terminal, prints one line {\"id\":…,\"seq\":…} per event, with \"duplicate\":true if the
topic already contains that id.

An invalid line ends the command, once the lines before it are stored. When somebody types the lines on a
terminal, it is reported with its number, and the next line is read.

Waits if the server limits the rate: by default, to 200 events per second and connection.")]
pub(crate) struct PublishArguments {
    /// Topic to publish to, such as orders.created
    topic: Topic,
    #[command(flatten)]
    input: InputArguments,
    /// Maximum unconfirmed events: 1 to 1000; fewer if a frame would get too large
    #[arg(long, value_name = "COUNT", default_value_t = 1000,
          value_parser = clap::value_parser!(u16).range(1..=MAX_FRAME_EVENTS as i64))]
    window: u16,
    #[command(flatten)]
    server: GatewayArguments,
}

/// A frame takes no more events past this size, to stay below the server's default limit.
const FRAME_BYTES: usize = 512 << 10;

pub(crate) async fn run(arguments: PublishArguments) -> Result<(), Box<dyn Error>> {
    let PublishArguments { topic, input, window, server } = arguments;
    let input = EventInput::open(input)?;
    let mut publisher = Publisher {
        connection: Connection::open(&server).await?,
        input,
        unconfirmed: VecDeque::new(),
        max_frame_events: window.into(),
        progress: PublishProgress::new(topic.clone()),
        limits: RateLimitNotice::default(),
        skipped: 0,
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
    input: EventInput,
    /// Read from the input and not confirmed yet.
    unconfirmed: VecDeque<InputEvent>,
    max_frame_events: usize,
    topic: Topic,
    progress: PublishProgress,
    limits: RateLimitNotice,
    /// Typed lines that are not stored.
    skipped: u64,
    prints_answers: bool,
}

impl Publisher {
    async fn publish_all(&mut self) -> Result<(), Box<dyn Error>> {
        loop {
            let fill = self.fill().await?;
            if !self.unconfirmed.is_empty() {
                self.publish_frame().await?;
            }
            // Publish everything before an invalid line, then fail.
            if self.unconfirmed.is_empty() {
                match fill {
                    Fill::Invalid(invalid) => return Err(invalid.reason.into()),
                    Fill::End => return self.end(),
                    Fill::Ready => {}
                }
            } else if let Fill::Invalid(invalid) = fill {
                self.input.put_back(invalid);
            }
        }
    }

    /// Waits for an event to publish, then takes what else is available, up to one frame.
    async fn fill(&mut self) -> Result<Fill, ConnectionError> {
        let mut bytes: usize = self.unconfirmed.iter().map(InputEvent::bytes).sum();
        while self.unconfirmed.len() < self.max_frame_events && bytes < FRAME_BYTES {
            let next = if self.unconfirmed.is_empty() {
                tokio::select! {
                    next = self.input.next() => next,
                    // No frame is expected, but this answers pings and notices a closed connection.
                    frame = self.connection.next() => match frame {
                        Ok(_) => continue,
                        Err(error) => return Err(error),
                    },
                }
            } else {
                match self.input.try_next() {
                    Some(next) => next,
                    None => return Ok(Fill::Ready),
                }
            };
            match next {
                Some(Ok(event)) => {
                    bytes += event.bytes();
                    self.unconfirmed.push_back(event);
                }
                Some(Err(invalid)) if invalid.is_skipped => self.skip(&invalid.reason),
                Some(Err(invalid)) => return Ok(Fill::Invalid(invalid)),
                None => return Ok(Fill::End),
            }
        }
        Ok(Fill::Ready)
    }

    /// Publishes one frame of unconfirmed events. Leaves them in place if the rate limit rejects it.
    async fn publish_frame(&mut self) -> Result<(), Box<dyn Error>> {
        let count = self.unconfirmed.len().min(self.max_frame_events);
        let events = self.unconfirmed.iter().take(count).map(|input| input.event.clone()).collect();
        let events = PublishEvents::Many(events);
        self.connection.send(ClientOp::Publish(Publish { topic: self.topic.clone(), events }));
        let answer = self.connection.next().await;
        match answer.map_err(|error| self.located(count, &error, "may or may not be stored"))? {
            ServerFrame::Ok { outcome: Outcome::Results(results), .. }
                if results.len() == count =>
            {
                self.unconfirmed.drain(..count);
                Ok(self.confirmed(&results)?)
            }
            ServerFrame::Err {
                code: ErrorCode::RateLimited,
                retry_after_ms: Some(ms),
                msg,
                ..
            } => {
                if let Some(explanation) = self.limits.explain(&msg) {
                    self.progress.println(&explanation);
                }
                self.progress.waiting(ms);
                tokio::time::sleep(Duration::from_millis(ms)).await;
                Ok(())
            }
            // Without retry_after_ms, the frame exceeds the capacity of the bucket: split it.
            ServerFrame::Err { code: ErrorCode::RateLimited, .. } if count > 1 => {
                self.max_frame_events = count / 2;
                Ok(())
            }
            // Find the line that is refused.
            ServerFrame::Err { code, .. } if self.skips(code) && count > 1 => {
                self.max_frame_events = 1;
                Ok(())
            }
            ServerFrame::Err { code, msg, retry_after_ms, .. } if self.skips(code) => {
                let refusal = refused(code, msg, retry_after_ms);
                let reason = self.located(count, &refusal, "not stored");
                self.unconfirmed.drain(..count);
                self.skip(&reason);
                Ok(())
            }
            ServerFrame::Err { code, msg, retry_after_ms, .. } => {
                let refusal = refused(code, msg, retry_after_ms);
                Err(self.located(count, &refusal, "not stored").into())
            }
            other => Err(format!("unexpected answer to PUBLISH: {other:?}").into()),
        }
    }

    /// Returns `true` if a refusal with this code is about one line that somebody typed.
    fn skips(&self, code: ErrorCode) -> bool {
        let is_of_a_line = matches!(code, ErrorCode::BadFrame | ErrorCode::PayloadTooLarge);
        self.input.is_typed() && is_of_a_line
    }

    fn skip(&mut self, reason: &str) {
        self.skipped += 1;
        self.progress.println(reason);
    }

    fn end(&self) -> Result<(), Box<dyn Error>> {
        match self.skipped {
            0 => Ok(()),
            1 => Err("1 line was not published".into()),
            lines => Err(format!("{lines} lines were not published").into()),
        }
    }

    fn confirmed(&mut self, results: &[Published]) -> io::Result<()> {
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
        self.progress.confirmed(results.len() as u64, duplicates as u64);
        Ok(())
    }

    /// Adds to an error which input it concerns, and whether that is stored.
    fn located(&self, count: usize, error: &ConnectionError, stored: &str) -> String {
        let first = self.unconfirmed.front().map_or(0, |input| input.number);
        let last = self.unconfirmed.get(count - 1).map_or(first, |input| input.number);
        let range = self.input.range_name(first, last);
        format!("{error} ({range}: {stored})")
    }
}

/// How reading events for a frame ended.
enum Fill {
    /// The frame is full, or no more input is available right now.
    Ready,
    /// The input ended.
    End,
    /// The next input is not a valid event.
    Invalid(InvalidInput),
}
