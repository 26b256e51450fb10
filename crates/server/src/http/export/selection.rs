//! Which events an export holds, and in what form.

use axum::http::Uri;
use prombus_bus::{Bus, Refusal, StartAt, StoredEvent};
use prombus_proto::{EventId, Seq, Timestamp, Topic};

use crate::http::error::HttpError;
use crate::http::query::{Query, bad};

/// What somebody asks for.
pub(super) struct Asked {
    pub(super) topic: Topic,
    from_ts: Timestamp,
    to_ts: Timestamp,
    after: Option<EventId>,
    form: Form,
}

/// Where that is.
pub(super) struct Selection {
    pub(super) topic: Topic,
    pub(super) first: Seq,
    /// What is published from now on is not in it.
    pub(super) end: Seq,
    from_ts: Timestamp,
    to_ts: Timestamp,
    pub(super) form: Form,
}

/// How events follow each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    /// One a line.
    Lines,
    /// One JSON array.
    Array,
}

impl Asked {
    pub(super) fn read(uri: &Uri, now: Timestamp) -> Result<Self, HttpError> {
        let query = Query::read(uri, &["topic", "fromTs", "toTs", "afterId", "ndjson"])?;
        let time = |name, usual: Timestamp| {
            Ok::<_, HttpError>(query.number(name, 0..=u64::MAX)?.map_or(usual, Timestamp))
        };
        Ok(Self {
            topic: query.topic()?,
            from_ts: time("fromTs", Timestamp(0))?,
            to_ts: time("toTs", now)?,
            after: query.parsed("afterId", EventId::new)?,
            form: match query.text("ndjson") {
                None | Some("1") => Form::Lines,
                Some("0") => Form::Array,
                Some(_) => return Err(bad("ndjson", "must be 1 (lines) or 0 (one JSON array)")),
            },
        })
    }

    /// Finds the places in the topic.
    pub(super) async fn locate(self, bus: &Bus) -> Result<Selection, Refusal> {
        let Self { topic, from_ts, to_ts, after, form } = self;
        // Before the start is looked up: it cannot be behind the end then.
        let mut first = bus.bounds(&topic).await?.first;
        if let Some(id) = after {
            first = bus.locate(&topic, &StartAt::AfterId(id)).await?;
        }
        if from_ts > Timestamp(0) {
            first = first.max(bus.locate(&topic, &StartAt::Time(from_ts)).await?);
        }
        let end = bus.bounds(&topic).await?.next;
        Ok(Selection { topic, first, end, from_ts, to_ts, form })
    }
}

impl Selection {
    /// Times need not rise with `seq`: each event is looked at.
    pub(super) fn wants(&self, event: &StoredEvent) -> bool {
        self.from_ts <= event.ts && event.ts <= self.to_ts
    }
}

impl Form {
    /// The most bytes that are added to an event.
    pub(super) const MAX_BETWEEN: usize = 2;

    pub(super) const fn content_type(self) -> &'static str {
        match self {
            Form::Lines => "application/x-ndjson",
            Form::Array => "application/json",
        }
    }

    pub(super) const fn opening(self) -> &'static [u8] {
        match self {
            Form::Lines => b"",
            Form::Array => b"[",
        }
    }

    pub(super) const fn closing(self) -> &'static [u8] {
        match self {
            Form::Lines => b"",
            Form::Array => b"]\n",
        }
    }

    /// Appends `event`, which `follows` another one or is the first.
    pub(super) fn append(self, text: &mut Vec<u8>, event: &StoredEvent, follows: bool) {
        if self == Form::Array && follows {
            text.extend_from_slice(b",\n");
        }
        text.extend_from_slice(&event.json);
        if self == Form::Lines {
            text.push(b'\n');
        }
    }
}
