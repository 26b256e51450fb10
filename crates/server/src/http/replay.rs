//! `GET /replay`: a topic's events, page by page.

use std::sync::Arc;

use axum::extract::State;
use axum::http::Uri;
use axum::response::Response;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use prombus_bus::{Bus, DamagedRange, ReadBudget, ReadPage, StartAt, StoredEvent};
use prombus_proto::{EventId, Seq, Topic};

use super::error::HttpError;
use super::query::QueryParams;
use super::request_grant::RequestGrant;
use super::{HttpState, damaged, response, start};
use crate::auth::Action;

const DEFAULT_LIMIT: u64 = 1000;
const MAX_LIMIT: u64 = 10_000;
/// Ends a page before its limit, because it is assembled in memory.
const MAX_PAGE_BYTES: usize = 8 << 20;
/// The characters to encode in a query.
const RESERVED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

pub(super) async fn get(
    State(http): State<Arc<HttpState>>,
    grant: RequestGrant,
    uri: Uri,
) -> Result<Response, HttpError> {
    let [from, ts, after, seq] = start::PARAMETERS;
    let query = QueryParams::parse(&uri, &["topic", from, ts, after, seq, "limit"])?;
    let topic = query.topic()?;
    let start = start::parse(&query, StartAt::Earliest, &["earliest", "ts", "afterId", "seq"])?;
    let limit = query.number("limit", 1..=MAX_LIMIT)?.unwrap_or(DEFAULT_LIMIT);
    grant.require(Action::Read(&topic))?;
    let first = http.bus().locate(&topic, &start).await?;
    let page = ReplayPage::read(http.bus(), &topic, first, limit).await?;
    Ok(response::raw_json(page.into_json(&topic, limit)))
}

struct ReplayPage {
    /// JSON events, separated by commas.
    events: Vec<u8>,
    count: u64,
    /// What the page ends before.
    damaged: Option<DamagedRange>,
    /// Where the next page starts, if the topic has more.
    next: Option<NextPage>,
}

enum NextPage {
    After(EventId),
    /// Behind damaged events, whose ids are unknown.
    At(Seq),
}

impl ReplayPage {
    async fn read(bus: &Bus, topic: &Topic, first: Seq, limit: u64) -> Result<Self, HttpError> {
        let mut page = Self { events: Vec::new(), count: 0, damaged: None, next: None };
        let mut next = first;
        let end = bus.bounds(topic).await?.next;
        while next < end && page.count < limit && page.events.len() < MAX_PAGE_BYTES {
            let left = usize::try_from(limit - page.count).unwrap_or(usize::MAX);
            match bus.read(topic, next..end, ReadBudget::of_events(left)).await? {
                ReadPage::Events(events) => {
                    let Some(last) = events.last() else {
                        // Retention has removed the rest; more may have been published since.
                        (next, page.next) = (end, Some(NextPage::At(end)));
                        break;
                    };
                    next = last.seq.next();
                    page.next = Some(NextPage::After(last.id.clone()));
                    events.iter().for_each(|event| page.push(event));
                }
                ReadPage::Damaged(range) => {
                    next = range.last.next();
                    page.next = Some(NextPage::At(next));
                    page.damaged = Some(range);
                    break;
                }
            }
        }
        if next >= bus.bounds(topic).await?.next {
            page.next = None;
        }
        Ok(page)
    }

    fn push(&mut self, event: &StoredEvent) {
        if self.count > 0 {
            self.events.push(b',');
        }
        self.events.extend_from_slice(&event.json);
        self.count += 1;
    }

    fn into_json(self, topic: &Topic, limit: u64) -> Vec<u8> {
        let mut json = format!(r#"{{"topic":"{topic}","count":{},"events":["#, self.count);
        json.reserve(self.events.len() + 512);
        let mut json = json.into_bytes();
        json.extend_from_slice(&self.events);
        json.push(b']');
        if let Some(range) = self.damaged {
            json.extend_from_slice(br#","damaged":"#);
            damaged::append_json(&mut json, range);
        }
        let start = self.next.map(|next| match next {
            NextPage::After(id) => {
                let id = id.to_string();
                format!("from=afterId&afterId={}", utf8_percent_encode(&id, RESERVED))
            }
            NextPage::At(seq) => format!("from=seq&seq={seq}"),
        });
        let next = start
            .map_or("null".to_owned(), |start| format!("\"topic={topic}&{start}&limit={limit}\""));
        json.extend_from_slice(format!(r#","next":{next}}}"#).as_bytes());
        json
    }
}
