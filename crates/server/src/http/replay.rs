//! `GET /replay`: a topic's events, page by page.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::State;
use axum::http::Uri;
use axum::response::Response;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use prombus_bus::{Bus, DamagedRange, ReadBudget, ReadPage, Refusal, StartAt, StoredEvent};
use prombus_proto::{ErrorCode, EventId, Seq, Topic};

use super::error::HttpError;
use super::query::QueryParams;
use super::request_grant::RequestGrant;
use super::{HttpState, damaged, response, start};
use crate::auth::Action;

const DEFAULT_LIMIT: u64 = 1000;
const MAX_LIMIT: u64 = 10_000;
/// Ends a page before its limit, because it is assembled in memory.
const MAX_PAGE_BYTES: usize = 1 << 20;
/// When to retry if other responses have the memory that a page of one event needs.
const RETRY_AFTER: Duration = Duration::from_secs(1);
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
    let mut room = http.bus().memory().responses.share();
    room.grow_up_to(MAX_PAGE_BYTES);
    let page = ReplayPage::read(http.bus(), &topic, first, limit, room.bytes()).await?;
    // Nobody has to wait for memory that nobody else has.
    let is_alone = room.budget().in_use() == room.bytes();
    let needed = page.events.len();
    if needed > room.bytes() && !is_alone && !room.try_grow_to(needed) {
        let message = "too many responses wait for their clients to read them";
        let refusal = Refusal::new(ErrorCode::RateLimited, message);
        return Err(Refusal { retry_after: Some(RETRY_AFTER), ..refusal }.into());
    }
    let json = response::counted(page.into_json(&topic, limit), room);
    Ok(response::raw_json(json))
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
    /// Reads a page of at most `limit` events and `max_bytes`, or of one event that is larger than that.
    async fn read(
        bus: &Bus,
        topic: &Topic,
        first: Seq,
        limit: u64,
        max_bytes: usize,
    ) -> Result<Self, HttpError> {
        let mut page = Self { events: Vec::new(), count: 0, damaged: None, next: None };
        let mut next = first;
        let end = bus.bounds(topic).await?.next;
        while next < end && page.count < limit {
            let events = usize::try_from(limit - page.count).unwrap_or(usize::MAX);
            let bytes = max_bytes.saturating_sub(page.events.len());
            match bus.read(topic, next..end, ReadBudget { events, bytes }).await? {
                ReadPage::Events(events) => {
                    if events.is_empty() {
                        // Retention has removed the rest; more may have been published since.
                        (next, page.next) = (end, Some(NextPage::At(end)));
                        break;
                    }
                    let fitting = events.iter().take_while(|event| page.push(event, max_bytes));
                    let Some(last) = fitting.last() else { break };
                    next = last.seq.next();
                    page.next = Some(NextPage::After(last.id.clone()));
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

    /// Adds `event`, unless the page then has more than `max_bytes`.
    fn push(&mut self, event: &StoredEvent, max_bytes: usize) -> bool {
        if self.count > 0 {
            if self.events.len() + 1 + event.json.len() > max_bytes {
                return false;
            }
            self.events.push(b',');
        }
        self.events.extend_from_slice(&event.json);
        self.count += 1;
        true
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
