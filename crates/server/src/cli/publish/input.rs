//! The events to publish, from arguments or from the lines of stdin.

use std::io::{self, BufRead, IsTerminal};

use bytes::Bytes;
use prombus_proto::{EventId, Headers, Key, NewEvent, Payload, Timestamp};
use serde::Deserialize;
use serde_json::value::RawValue;
use tokio::sync::mpsc::{self, Receiver};

use crate::cli::times::time;

/// Lines to read ahead.
const LINES_AHEAD: usize = 2000;

#[derive(clap::Args)]
pub(super) struct InputArguments {
    /// JSON payloads, one event per argument; if none are given, one event per line of stdin
    #[arg(value_name = "PAYLOAD", allow_negative_numbers = true)]
    payloads: Vec<String>,
    /// Read complete events, as written by export, instead of payloads
    #[arg(long, conflicts_with_all = ["key", "id", "ts", "header", "tag"])]
    events: bool,
    /// Key of the events
    #[arg(long, value_name = "KEY", value_parser = |text: &str| Key::new(text))]
    key: Option<Key>,
    /// Id of the event, for a single payload; publishing the same id again stores nothing
    #[arg(long, value_name = "ID")]
    id: Option<EventId>,
    /// Timestamp of the events, such as 2026-01-02T03:04:05Z, 2h (ago) or milliseconds since 1970; default: now
    #[arg(long, value_name = "TIME", value_parser = time)]
    ts: Option<Timestamp>,
    /// Header of the events; repeatable
    #[arg(long, value_name = "NAME=VALUE", value_parser = name_and_value)]
    header: Vec<(String, String)>,
    /// Tag of the events; repeatable
    #[arg(long, value_name = "TAG")]
    tag: Vec<String>,
}

/// A stream of events, read ahead by a thread.
pub(super) struct EventInput {
    kind: InputKind,
    /// Somebody types the lines: one that is invalid does not end the input.
    is_typed: bool,
    events: Receiver<InputResult>,
    /// An error that `next` returns again.
    put_back: Option<InvalidInput>,
}

/// An event, or which input is invalid and why.
type InputResult = Result<InputEvent, InvalidInput>;

/// An input that is not an event.
pub(super) struct InvalidInput {
    pub(super) reason: String,
    /// Reading goes on behind it.
    pub(super) is_skipped: bool,
}

/// An event and its position in the input, from 1.
pub(super) struct InputEvent {
    pub(super) number: u64,
    pub(super) event: NewEvent,
}

impl InputEvent {
    /// The approximate size in a frame.
    pub(super) fn bytes(&self) -> usize {
        let event = &self.event;
        let headers = event.headers.iter().map(|(name, value)| name.len() + value.len() + 6);
        let tags = event.tags.iter().map(|tag| tag.len() + 3);
        let ids = event.caused_by.len() * 40;
        event.payload.as_bytes().len() + headers.sum::<usize>() + tags.sum::<usize>() + ids + 128
    }
}

#[derive(Clone, Copy)]
enum InputKind {
    Arguments,
    Lines,
}

impl InputKind {
    const fn unit(self) -> &'static str {
        match self {
            InputKind::Arguments => "payload",
            InputKind::Lines => "line",
        }
    }
}

impl EventInput {
    /// Starts reading.
    pub(super) fn open(arguments: InputArguments) -> Result<Self, String> {
        let InputArguments { payloads, events, key, id, ts, header, tag } = arguments;
        if id.is_some() && payloads.len() != 1 {
            return Err(
                "--id applies to a single event: pass exactly one payload argument".to_owned()
            );
        }
        let headers =
            Headers::new(header).ok_or("--header: an event can have at most 64 headers")?;
        let parse = move |text: Bytes| -> Result<NewEvent, String> {
            if events {
                return parse_event(&text);
            }
            let payload = Payload::parse(text).map_err(|error| error.to_string())?;
            let (id, key, headers, tags) = (id.clone(), key.clone(), headers.clone(), tag.clone());
            Ok(NewEvent { id, ts, key, headers, tags, ..NewEvent::of(payload) })
        };
        let (sender, receiver) = mpsc::channel(LINES_AHEAD);
        let kind = if payloads.is_empty() { InputKind::Lines } else { InputKind::Arguments };
        let is_typed = matches!(kind, InputKind::Lines) && io::stdin().is_terminal();
        if is_typed {
            eprintln!("prombus: type JSON payloads, one event per line; ctrl-d to finish");
        }
        let numbered = move |number: u64, text: Bytes| match parse(text) {
            Ok(event) => Ok(InputEvent { number, event }),
            Err(reason) => {
                let reason = format!("{} {number}: {reason}", kind.unit());
                Err(InvalidInput { reason, is_skipped: is_typed })
            }
        };
        // Reading stdin blocks, so it needs a thread, which ends with the process.
        std::thread::spawn(move || match kind {
            InputKind::Arguments => {
                for (number, payload) in (1..).zip(payloads) {
                    if sender.blocking_send(numbered(number, payload.into())).is_err() {
                        return;
                    }
                }
            }
            InputKind::Lines => {
                for (number, line) in (1..).zip(io::stdin().lock().split(b'\n')) {
                    let event = match line {
                        Ok(line) if line.trim_ascii().is_empty() => continue,
                        Ok(line) => numbered(number, line.into()),
                        Err(error) => {
                            let reason = format!("line {number}: cannot read: {error}");
                            Err(InvalidInput { reason, is_skipped: false })
                        }
                    };
                    let is_end = event.as_ref().is_err_and(|invalid| !invalid.is_skipped);
                    if sender.blocking_send(event).is_err() || is_end {
                        return;
                    }
                }
            }
        });
        Ok(Self { kind, is_typed, events: receiver, put_back: None })
    }

    pub(super) const fn is_typed(&self) -> bool {
        self.is_typed
    }

    /// Waits for the next event. Returns `None` at the end of the input. Cancel-safe.
    pub(super) async fn next(&mut self) -> Option<InputResult> {
        match self.put_back.take() {
            Some(invalid) => Some(Err(invalid)),
            None => self.events.recv().await,
        }
    }

    /// Returns the next event without waiting: the outer `None` means that none is available yet.
    pub(super) fn try_next(&mut self) -> Option<Option<InputResult>> {
        if let Some(invalid) = self.put_back.take() {
            return Some(Some(Err(invalid)));
        }
        match self.events.try_recv() {
            Ok(result) => Some(Some(result)),
            Err(mpsc::error::TryRecvError::Empty) => None,
            Err(mpsc::error::TryRecvError::Disconnected) => Some(None),
        }
    }

    /// Makes the next read return this error again.
    pub(super) fn put_back(&mut self, invalid: InvalidInput) {
        self.put_back = Some(invalid);
    }

    /// Names a range of the input for an error, such as `lines 3 to 7`.
    pub(super) fn range_name(&self, first: u64, last: u64) -> String {
        let unit = self.kind.unit();
        if first == last { format!("{unit} {first}") } else { format!("{unit}s {first} to {last}") }
    }
}

fn name_and_value(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((name, value)) if !name.is_empty() => Ok((name.to_owned(), value.to_owned())),
        _ => Err("expected NAME=VALUE, such as source=shop".to_owned()),
    }
}

fn parse_event(json: &[u8]) -> Result<NewEvent, String> {
    #[derive(Deserialize)]
    struct Wire<'a> {
        #[serde(borrow)]
        payload: &'a RawValue,
        id: Option<EventId>,
        ts: Option<Timestamp>,
        key: Option<Key>,
        headers: Option<Headers>,
        tags: Option<Vec<String>>,
        caused_by: Option<Vec<EventId>>,
        sid: Option<String>,
    }
    let wire: Wire<'_> =
        serde_json::from_slice(json).map_err(|error| format!("not an event: {error}"))?;
    Ok(NewEvent {
        payload: Payload::from_raw(wire.payload),
        id: wire.id,
        ts: wire.ts,
        key: wire.key,
        headers: wire.headers.unwrap_or_default(),
        caused_by: wire.caused_by.unwrap_or_default(),
        tags: wire.tags.unwrap_or_default(),
        sid: wire.sid,
    })
}
