//! `GET /replay`: a topic's events, page by page.

use std::sync::Arc;

use axum::extract::State;
use axum::http::Uri;
use axum::response::Response;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use prombus_bus::{Bus, ReadBudget, StartAt, StoredEvent};
use prombus_proto::{EventId, Seq, Topic};

use super::error::HttpError;
use super::query::QueryParams;
use super::request_grant::RequestGrant;
use super::{HttpState, response, start};
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
    let [from, ts, after] = start::PARAMETERS;
    let query = QueryParams::parse(&uri, &["topic", from, ts, after, "limit"])?;
    let topic = query.topic()?;
    let start = start::parse(&query, StartAt::Earliest, &["earliest", "ts", "afterId"])?;
    let limit = query.number("limit", 1..=MAX_LIMIT)?.unwrap_or(DEFAULT_LIMIT);
    grant.require(Action::Subscribe(&topic))?;
    let first = http.bus().locate(&topic, &start).await?;
    let page = ReplayPage::read(http.bus(), &topic, first, limit).await?;
    Ok(response::raw_json(page.into_json(&topic, limit)))
}

struct ReplayPage {
    /// JSON events, separated by commas.
    events: Vec<u8>,
    count: u64,
    /// The last event of this page, if the topic has more.
    continue_after: Option<EventId>,
}

impl ReplayPage {
    async fn read(bus: &Bus, topic: &Topic, first: Seq, limit: u64) -> Result<Self, HttpError> {
        let mut page = Self { events: Vec::new(), count: 0, continue_after: None };
        let mut next = first;
        while page.count < limit && page.events.len() < MAX_PAGE_BYTES {
            let left = usize::try_from(limit - page.count).unwrap_or(usize::MAX);
            let events = bus.read(topic, next, ReadBudget::of_events(left)).await?;
            let Some(last) = events.last() else {
                return Ok(Self { continue_after: None, ..page });
            };
            next = last.seq.next();
            page.continue_after = Some(last.id.clone());
            events.iter().for_each(|event| page.push(event));
        }
        if next >= bus.bounds(topic).await?.next {
            page.continue_after = None;
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
        let next = self.continue_after.map(|id| {
            let id = id.to_string();
            let id = utf8_percent_encode(&id, RESERVED);
            format!("topic={topic}&from=afterId&afterId={id}&limit={limit}")
        });
        let next = next.map_or("null".to_owned(), |query| format!("\"{query}\""));
        json.extend_from_slice(format!(r#"],"next":{next}}}"#).as_bytes());
        json
    }
}
