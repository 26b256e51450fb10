//! Reads a range of a topic page by page, one page ahead of its consumer.

use std::pin::Pin;
use std::sync::Arc;

use futures_util::FutureExt;
use futures_util::future::{BoxFuture, MaybeDone, maybe_done};
use prombus_bus::{ReadBudget, ReadPage, Refusal, Share, StoredEvent};
use prombus_proto::{Seq, Topic};

use crate::http::HttpState;

/// The size of a page, if the budget of responses allows it. Each read wakes several threads in turn: with
/// pages of 256 KiB an export took 50 % longer.
const PAGE_BYTES: usize = 1 << 20;

pub(super) struct ReadAhead {
    http: Arc<HttpState>,
    topic: Topic,
    next: Seq,
    end: Seq,
    ahead: Option<Pin<Box<MaybeDone<Reading>>>>,
}

type Reading = BoxFuture<'static, Result<CountedPage, Refusal>>;

/// A page, and the memory of its events.
type CountedPage = (ReadPage<StoredEvent>, Share);

impl ReadAhead {
    /// Reads from `next` up to, but excluding, `end`.
    pub(super) const fn new(http: Arc<HttpState>, topic: Topic, next: Seq, end: Seq) -> Self {
        Self { http, topic, next, end, ahead: None }
    }

    /// Returns the next page, which is empty only at the end.
    pub(super) async fn next(&mut self) -> Result<CountedPage, Refusal> {
        if self.next >= self.end {
            return Ok((ReadPage::Events(Vec::new()), self.room()));
        }
        let mut reading = self.ahead.take().unwrap_or_else(|| self.start_reading());
        reading.as_mut().await;
        let (page, room) = reading.as_mut().take_output().expect("done, and taken once")?;
        self.next = match &page {
            // An empty page means that retention removed the rest of the range.
            ReadPage::Events(events) => events.last().map_or(self.end, |last| last.seq.next()),
            ReadPage::Damaged(range) => range.last.next(),
        };
        if self.next < self.end {
            self.ahead = Some(self.start_reading());
        }
        Ok((page, room))
    }

    fn room(&self) -> Share {
        self.http.bus().memory().responses.share()
    }

    fn start_reading(&self) -> Pin<Box<MaybeDone<Reading>>> {
        let (http, topic) = (Arc::clone(&self.http), self.topic.clone());
        let range = self.next..self.end;
        let mut room = self.room();
        room.grow_up_to(PAGE_BYTES);
        let reading = async move {
            let page = http.bus().read(&topic, range, ReadBudget::of_bytes(room.bytes())).await?;
            if let ReadPage::Events(events) = &page {
                let json: usize = events.iter().map(|event| event.json.len()).sum();
                room.set(json + size_of_val(events.as_slice()));
            }
            Ok::<CountedPage, Refusal>((page, room))
        };
        let reading = reading.boxed();
        let mut reading = Box::pin(maybe_done(reading));
        // The first poll makes the store start on its own thread. A spawned task would be queued
        // behind this one until the current page has been sent.
        let _ = reading.as_mut().now_or_never();
        reading
    }
}
