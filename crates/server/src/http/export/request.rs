//! Which events an export contains, and in what format.

use axum::http::Uri;
use prombus_bus::{Bus, DamagedRange, Refusal, StartAt, StoredEvent};
use prombus_proto::{EventId, Seq, Timestamp, Topic};

use crate::http::damaged;
use crate::http::error::HttpError;
use crate::http::query::{QueryParams, invalid};

/// The parameters of an export.
pub(super) struct ExportRequest {
    pub(super) topic: Topic,
    from_ts: Timestamp,
    to_ts: Timestamp,
    after: Option<EventId>,
    format: ExportFormat,
    at_damage: AtDamage,
}

/// The events to read, and the times that select among them.
pub(super) struct ExportRange {
    pub(super) topic: Topic,
    pub(super) first: Seq,
    /// The end of the topic when the export started, exclusive.
    pub(super) end: Seq,
    from_ts: Timestamp,
    to_ts: Timestamp,
    pub(super) format: ExportFormat,
    pub(super) at_damage: AtDamage,
}

/// What to do at events that cannot be read back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AtDamage {
    /// Break off, so that the export cannot be taken for complete.
    Stop,
    /// Name them and continue behind them.
    Skip,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ExportFormat {
    /// One event per line.
    Ndjson,
    JsonArray,
}

impl ExportRequest {
    pub(super) fn parse(uri: &Uri, now: Timestamp) -> Result<Self, HttpError> {
        let declared = ["topic", "fromTs", "toTs", "afterId", "ndjson", "damaged"];
        let query = QueryParams::parse(uri, &declared)?;
        let time = |name, default: Timestamp| {
            Ok::<_, HttpError>(query.number(name, 0..=u64::MAX)?.map_or(default, Timestamp))
        };
        Ok(Self {
            topic: query.topic()?,
            from_ts: time("fromTs", Timestamp(0))?,
            to_ts: time("toTs", now)?,
            after: query.parsed("afterId", EventId::new)?,
            format: match query.text("ndjson") {
                None | Some("1") => ExportFormat::Ndjson,
                Some("0") => ExportFormat::JsonArray,
                Some(_) => {
                    return Err(invalid(
                        "ndjson",
                        "must be 1 (one event per line) or 0 (an array)",
                    ));
                }
            },
            at_damage: match query.text("damaged") {
                None | Some("stop") => AtDamage::Stop,
                Some("skip") => AtDamage::Skip,
                Some(_) => return Err(invalid("damaged", "must be stop or skip")),
            },
        })
    }

    /// Resolves the request to a range of `seq`.
    pub(super) async fn locate(self, bus: &Bus) -> Result<ExportRange, Refusal> {
        let Self { topic, from_ts, to_ts, after, format, at_damage } = self;
        let mut first = bus.bounds(&topic).await?.first;
        if let Some(id) = after {
            first = bus.locate(&topic, &StartAt::AfterId(id)).await?;
        }
        if from_ts > Timestamp(0) {
            first = first.max(bus.locate(&topic, &StartAt::Time(from_ts)).await?);
        }
        // Read last, so that the start cannot lie beyond the end.
        let end = bus.bounds(&topic).await?.next;
        Ok(ExportRange { topic, first, end, from_ts, to_ts, format, at_damage })
    }
}

impl ExportRange {
    /// Checks the time of one event: times need not ascend with `seq`.
    pub(super) fn includes(&self, event: &StoredEvent) -> bool {
        self.from_ts <= event.ts && event.ts <= self.to_ts
    }
}

impl ExportFormat {
    /// The most bytes that the format adds to an event.
    pub(super) const OVERHEAD: usize = 2;

    pub(super) const fn content_type(self) -> &'static str {
        match self {
            Self::Ndjson => "application/x-ndjson",
            Self::JsonArray => "application/json",
        }
    }

    pub(super) const fn opening(self) -> &'static [u8] {
        match self {
            Self::Ndjson => b"",
            Self::JsonArray => b"[",
        }
    }

    pub(super) const fn closing(self) -> &'static [u8] {
        match self {
            Self::Ndjson => b"",
            Self::JsonArray => b"]\n",
        }
    }

    /// Appends `event`. `follows` says that it is not the first item.
    pub(super) fn append(self, text: &mut Vec<u8>, event: &StoredEvent, follows: bool) {
        self.append_item(text, follows, |text| text.extend_from_slice(&event.json));
    }

    /// Appends `{"damaged": {…}}` in the place of the events.
    pub(super) fn append_damaged(self, text: &mut Vec<u8>, range: DamagedRange, follows: bool) {
        self.append_item(text, follows, |text| {
            text.extend_from_slice(b"{\"damaged\":");
            damaged::append_json(text, range);
            text.push(b'}');
        });
    }

    fn append_item(self, text: &mut Vec<u8>, follows: bool, append: impl FnOnce(&mut Vec<u8>)) {
        if self == Self::JsonArray && follows {
            text.extend_from_slice(b",\n");
        }
        append(text);
        if self == Self::Ndjson {
            text.push(b'\n');
        }
    }
}
