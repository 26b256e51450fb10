//! What is to be published: arguments, or lines of standard input.

use std::io::{self, BufRead, IsTerminal};

use bytes::Bytes;
use prombus_proto::{EventId, Headers, Key, NewEvent, Payload, Timestamp};
use serde::Deserialize;
use serde_json::value::RawValue;
use tokio::sync::mpsc::{self, Receiver};

/// How many lines are read ahead.
const LINES_AHEAD: usize = 2000;

#[derive(clap::Args)]
pub(super) struct InputArguments {
    /// What to publish: JSON, one event an argument; without any, each line of standard input
    #[arg(value_name = "PAYLOAD", allow_negative_numbers = true)]
    payloads: Vec<String>,
    /// The input is whole events as export writes them: {"payload": …} with id, ts, key, headers,
    /// tags, caused_by and sid where wanted; anything else in them is left out
    #[arg(long, conflicts_with_all = ["key", "id", "ts", "header", "tag"])]
    events: bool,
    /// What the events are about
    #[arg(long, value_name = "KEY", value_parser = |text: &str| Key::new(text))]
    key: Option<Key>,
    /// The id of the event, of which there can be one then; publishing it again stores nothing
    #[arg(long, value_name = "ID")]
    id: Option<EventId>,
    /// When it happened, in milliseconds since 1970; now, if nobody says
    #[arg(long, value_name = "MS")]
    ts: Option<u64>,
    /// A header; may be repeated
    #[arg(long, value_name = "NAME=VALUE", value_parser = name_and_value)]
    header: Vec<(String, String)>,
    /// A tag; may be repeated
    #[arg(long, value_name = "TAG")]
    tag: Vec<String>,
}

/// Where events come from, one after the other.
pub(super) struct Input {
    kind: Kind,
    events: Receiver<Read>,
    put_back: Option<String>,
}

/// An event, or a sentence that says which input is none and why.
type Read = Result<Numbered, String>;

/// An event, and which of the input it was, from 1.
pub(super) struct Numbered {
    pub(super) number: u64,
    pub(super) event: NewEvent,
}

impl Numbered {
    /// About how long it is in a frame.
    pub(super) fn bytes(&self) -> usize {
        let event = &self.event;
        let headers = event.headers.iter().map(|(name, value)| name.len() + value.len() + 6);
        let tags = event.tags.iter().map(|tag| tag.len() + 3);
        let ids = event.caused_by.len() * 40;
        event.payload.as_bytes().len() + headers.sum::<usize>() + tags.sum::<usize>() + ids + 128
    }
}

#[derive(Clone, Copy)]
enum Kind {
    Arguments,
    Lines,
}

impl Kind {
    const fn one(self) -> &'static str {
        match self {
            Kind::Arguments => "payload",
            Kind::Lines => "line",
        }
    }
}

impl Input {
    /// Begins to read.
    pub(super) fn open(arguments: InputArguments) -> Result<Self, String> {
        let InputArguments { payloads, events, key, id, ts, header, tag } = arguments;
        if id.is_some() && payloads.len() != 1 {
            return Err("--id is for one event: give one payload as argument".to_owned());
        }
        let headers = Headers::new(header).ok_or("--header: an event has at most 64 headers")?;
        let ts = ts.map(Timestamp);
        let read = move |text: Bytes| -> Result<NewEvent, String> {
            if events {
                return whole_event(&text);
            }
            let payload = Payload::parse(text).map_err(|error| error.to_string())?;
            let (id, key, headers, tags) = (id.clone(), key.clone(), headers.clone(), tag.clone());
            Ok(NewEvent { id, ts, key, headers, tags, ..NewEvent::of(payload) })
        };
        let (sender, receiver) = mpsc::channel(LINES_AHEAD);
        let kind = if payloads.is_empty() { Kind::Lines } else { Kind::Arguments };
        if matches!(kind, Kind::Lines) && io::stdin().is_terminal() {
            eprintln!("prombus: type JSON, one event a line; ctrl-d ends");
        }
        let numbered = move |number: u64, text: Bytes| match read(text) {
            Ok(event) => Ok(Numbered { number, event }),
            Err(reason) => Err(format!("{} {number}: {reason}", kind.one())),
        };
        // Reading blocks, so a thread does it. It ends with the process.
        std::thread::spawn(move || match kind {
            Kind::Arguments => {
                for (number, payload) in (1..).zip(payloads) {
                    if sender.blocking_send(numbered(number, payload.into())).is_err() {
                        return;
                    }
                }
            }
            Kind::Lines => {
                for (number, line) in (1..).zip(io::stdin().lock().split(b'\n')) {
                    let event = match line {
                        Ok(line) if line.trim_ascii().is_empty() => continue,
                        Ok(line) => numbered(number, line.into()),
                        Err(error) => Err(format!("line {number} cannot be read: {error}")),
                    };
                    let is_bad = event.is_err();
                    if sender.blocking_send(event).is_err() || is_bad {
                        return;
                    }
                }
            }
        });
        Ok(Self { kind, events: receiver, put_back: None })
    }

    /// The next event, when it comes. Nothing is lost when it is not waited for to the end.
    pub(super) async fn next(&mut self) -> Option<Read> {
        match self.put_back.take() {
            Some(bad) => Some(Err(bad)),
            None => self.events.recv().await,
        }
    }

    /// The next event if it is there already; the outer nothing says that it is not.
    pub(super) fn next_now(&mut self) -> Option<Option<Read>> {
        if let Some(bad) = self.put_back.take() {
            return Some(Some(Err(bad)));
        }
        match self.events.try_recv() {
            Ok(read) => Some(Some(read)),
            Err(mpsc::error::TryRecvError::Empty) => None,
            Err(mpsc::error::TryRecvError::Disconnected) => Some(None),
        }
    }

    /// What was no event is read again next time.
    pub(super) fn put_back(&mut self, bad: String) {
        self.put_back = Some(bad);
    }

    /// A piece of the input, as a person would call it.
    pub(super) fn name_of(&self, first: u64, last: u64) -> String {
        let one = self.kind.one();
        if first == last { format!("{one} {first}") } else { format!("{one}s {first} to {last}") }
    }
}

fn name_and_value(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((name, value)) if !name.is_empty() => Ok((name.to_owned(), value.to_owned())),
        _ => Err("a header is NAME=VALUE, such as source=shop".to_owned()),
    }
}

fn whole_event(json: &[u8]) -> Result<NewEvent, String> {
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
