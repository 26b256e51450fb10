//! The events of a part of a topic, page by page; the next page is read while one is used.

use std::pin::Pin;
use std::sync::Arc;

use futures_util::FutureExt;
use futures_util::future::{BoxFuture, MaybeDone, maybe_done};
use prombus_bus::{ReadBudget, Refusal, StoredEvent};
use prombus_proto::{Seq, Topic};

use crate::http::Http;

/// How much is read at a time. Every reading wakes several threads one after the other: of pages of
/// 256 KiB an export took a half longer.
const PAGE: ReadBudget = ReadBudget::of_bytes(1 << 20);

pub(super) struct Pages {
    http: Arc<Http>,
    topic: Topic,
    next: Seq,
    end: Seq,
    ahead: Option<Pin<Box<MaybeDone<Reading>>>>,
}

type Reading = BoxFuture<'static, Result<Vec<StoredEvent>, Refusal>>;

impl Pages {
    /// From `next` to before `end`.
    pub(super) const fn new(http: Arc<Http>, topic: Topic, next: Seq, end: Seq) -> Self {
        Self { http, topic, next, end, ahead: None }
    }

    /// Events in a row; none at the end.
    pub(super) async fn next(&mut self) -> Result<Vec<StoredEvent>, Refusal> {
        if self.next >= self.end {
            return Ok(Vec::new());
        }
        let mut reading = self.ahead.take().unwrap_or_else(|| self.begin_reading());
        reading.as_mut().await;
        let mut events = reading.as_mut().take_output().expect("it is done, and taken once")?;
        events.truncate(events.partition_point(|event| event.seq < self.end));
        // What is gone by now was forgotten meanwhile.
        self.next = events.last().map_or(self.end, |last| last.seq.next());
        if self.next < self.end {
            self.ahead = Some(self.begin_reading());
        }
        Ok(events)
    }

    fn begin_reading(&self) -> Pin<Box<MaybeDone<Reading>>> {
        let (http, topic, next) = (Arc::clone(&self.http), self.topic.clone(), self.next);
        let reading = async move { http.bus().read(&topic, next, PAGE).await }.boxed();
        let mut reading = Box::pin(maybe_done(reading));
        // Asked once, the store begins on a thread of its own. A task would not: it would wait here
        // until what is there already was sent.
        let _ = reading.as_mut().now_or_never();
        reading
    }
}
