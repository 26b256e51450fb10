//! A worker: finds pending documents, claims them, publishes them, and records what became of them.
//!
//! - `publish`: sends a claimed batch to the bus.
//! - `topic_queue`: the frames of one topic.
//! - `settle`: records the outcomes.

mod publish;
mod settle;
mod topic_queue;

use std::collections::HashSet;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use mongodb::bson::{Bson, Document};
use prombus_client::transport::{BackOff, full_jitter};
use prombus_client::{Client, ConnectionState};
use prombus_engine_mongo::{ChangeDetection, MongoError};
use prombus_proto::{IdSource, SystemRandom};
use tokio::sync::{Notify, watch};
use tokio::task::JoinHandle;
use tokio::time::{Instant, MissedTickBehavior, interval_at, sleep};

use crate::collection::{Claim, Outbox, change_stream};
use crate::document::outcome::DocumentOutcome;
use crate::error::is_transient;
use crate::notice::{Notice, Summary};
use crate::order::selection::{BatchLimit, Candidate, Position, select};
use crate::order::{Holder, OrderingKey, sendable};
use crate::{OutboxError, Until, WorkerOptions};
use publish::{PublishedBatch, Publisher, SendPermit, is_final};

/// How many bytes of documents are in memory at a time, unless one alone is larger.
const MAX_BATCH_BYTES: usize = 8 << 20;
/// The page size while the documents at the front are blocked.
const LONG_PAGE: usize = 1000;
/// How soon to look again at documents that only wait for another worker.
const OTHER_WORKER_PAUSE: Duration = Duration::from_millis(50);
const MIN_BACK_OFF: Duration = Duration::from_millis(100);
const MAX_BACK_OFF: Duration = Duration::from_secs(5);

type OnNotice = Box<dyn FnMut(&Notice) + Send>;

/// One worker on one outbox.
pub struct Worker {
    outbox: Outbox,
    publisher: Publisher,
    options: WorkerOptions,
    stop: watch::Receiver<bool>,
    on_notice: OnNotice,
    summary: Summary,
    ids: IdSource,
    back_off: BackOff,
    scan: Scan,
    wake: Arc<Notify>,
    /// The task that follows the change stream.
    change_follower: Option<JoinHandle<()>>,
}

/// The progress of one pass over the pending documents.
#[derive(Debug, Default)]
struct Scan {
    /// The next page starts after this position; `None` means at the front.
    after: Option<Position>,
    /// The last page had nothing to send.
    uses_long_pages: bool,
    /// Something was claimed since the front.
    has_claimed: bool,
    /// A document only waits for another worker.
    waits_for_others: bool,
}

struct ClaimedBatch {
    documents: Vec<Document>,
    claim: Claim,
    /// By the worker's monotonic clock.
    lease_ends: Instant,
}

/// The result of looking at one page.
enum Found {
    Batch(ClaimedBatch),
    /// Nothing on this page; there is more to look at.
    NextPage,
    /// Nothing anywhere, for now.
    Idle {
        /// A document only waits for another worker.
        waits_for_others: bool,
    },
}

impl Worker {
    /// Creates a worker on `outbox` that publishes through `client` and stops soon after `stop`
    /// becomes `true`.
    ///
    /// The client's [timeout](prombus_client::Builder::timeout) should not be longer than the
    /// lease.
    pub fn new(
        outbox: Outbox,
        client: Client,
        options: WorkerOptions,
        stop: watch::Receiver<bool>,
        on_notice: impl FnMut(&Notice) + Send + 'static,
    ) -> Self {
        Self {
            outbox,
            publisher: Publisher::new(client),
            options,
            stop,
            on_notice: Box::new(on_notice),
            summary: Summary::default(),
            ids: IdSource::system(),
            back_off: BackOff::new(MIN_BACK_OFF, MAX_BACK_OFF),
            scan: Scan::default(),
            wake: Arc::default(),
            change_follower: None,
        }
    }

    /// Creates missing indexes, and then works until it is stopped, or until nothing is left.
    ///
    /// Dropping the future loses nothing: the claims expire.
    ///
    /// # Errors
    ///
    /// Fails if the database or the bus cannot be used and retrying does not help.
    pub async fn run(mut self, until: Until) -> Result<Summary, OutboxError> {
        self.outbox.prepare(&self.options).await?;
        let follows_changes = self.options.change_detection == ChangeDetection::ChangeStream;
        if until == Until::Stopped && follows_changes {
            self.follow_changes().await;
        }
        let result = self.work(until).await;
        self.stop_following();
        result.map(|()| self.summary)
    }

    async fn work(&mut self, until: Until) -> Result<(), OutboxError> {
        while !self.is_stopped() && self.wait_for_bus().await? {
            match self.find().await {
                Ok(Found::Batch(batch)) => {
                    self.recovered();
                    self.publish(batch).await?;
                }
                Ok(Found::NextPage) => self.recovered(),
                Ok(Found::Idle { waits_for_others }) => {
                    self.recovered();
                    let is_drained = until == Until::Drained && !waits_for_others;
                    if is_drained && !self.has_claims().await? {
                        return Ok(());
                    }
                    self.wait(waits_for_others).await;
                }
                Err(error) => self.back_off_or_fail(error).await?,
            }
        }
        Ok(())
    }

    /// Reads the next page of pending documents and claims what may be sent.
    async fn find(&mut self) -> Result<Found, OutboxError> {
        let batch = self.options.batch.max(1);
        let limit = if self.scan.uses_long_pages { batch.max(LONG_PAGE) } else { batch };
        let page = self.outbox.page(self.scan.after.as_ref(), limit).await?;
        let is_last = page.len() < limit;
        let Some(end) = page.last().map(|last| last.position.clone()) else {
            return Ok(self.finish_scan());
        };
        let ordering_keys: HashSet<OrderingKey> =
            page.iter().filter_map(|candidate| candidate.ordering_key.clone()).collect();
        let ids: HashSet<&Bson> = page.iter().map(|candidate| &candidate.position.id).collect();
        let holder = |document: &Document| match document.get("_id") {
            Some(id) if ids.contains(id) => Holder::ThisWorker,
            _ => Holder::OtherWorker,
        };
        let sendable = sendable(self.outbox.unsent(&ordering_keys, &end, holder).await?);
        let limit = BatchLimit { count: batch, bytes: MAX_BATCH_BYTES };
        let selection = select(page, &sendable.ids, limit);
        self.scan.waits_for_others |= sendable.waits_for_others;
        self.scan.uses_long_pages = selection.candidates.is_empty();
        self.scan.after = selection.scanned_to;
        if let Some(batch) = self.claim(&selection.candidates).await? {
            self.scan.has_claimed = true;
            return Ok(Found::Batch(batch));
        }
        match is_last && selection.scanned_all {
            true => Ok(self.finish_scan()),
            false => Ok(Found::NextPage),
        }
    }

    fn finish_scan(&mut self) -> Found {
        let Scan { has_claimed, waits_for_others, .. } = std::mem::take(&mut self.scan);
        // What was sent may have unblocked documents nearer to the front.
        match has_claimed {
            true => Found::NextPage,
            false => Found::Idle { waits_for_others },
        }
    }

    /// Claims documents. Releases those that turn out to be preceded by documents of other workers.
    async fn claim(
        &mut self,
        candidates: &[Candidate],
    ) -> Result<Option<ClaimedBatch>, OutboxError> {
        if candidates.is_empty() {
            return Ok(None);
        }
        let claim = Claim {
            id: self.ids.next_id().to_string(),
            owner: self.options.name.clone(),
            lease_time: self.options.lease,
        };
        // Taken before the request, so that the lease never seems to end later than it does.
        let lease_ends = Instant::now() + claim.lease_time;
        match self.outbox.claim(candidates, &claim).await {
            Ok(claimed) => {
                self.scan.waits_for_others |= !claimed.too_early.is_empty();
                self.release(claimed.too_early, &claim).await?;
                let documents = claimed.documents;
                Ok((!documents.is_empty()).then_some(ClaimedBatch { documents, claim, lease_ends }))
            }
            Err(error) => {
                self.back_off_or_fail(error.into()).await?;
                // The claim may have succeeded although its answer was lost.
                let ids = candidates.iter().map(|candidate| candidate.position.id.clone());
                self.release(ids.collect(), &claim).await?;
                Ok(None)
            }
        }
    }

    async fn release(&mut self, ids: Vec<Bson>, claim: &Claim) -> Result<(), OutboxError> {
        let released = ids.into_iter().map(|id| DocumentOutcome::released(id, false));
        self.settle(&released.collect::<Vec<_>>(), &claim.id).await
    }

    /// Publishes a batch and records its outcomes. Renews the claim meanwhile.
    async fn publish(&mut self, batch: ClaimedBatch) -> Result<(), OutboxError> {
        let ClaimedBatch { documents, claim, lease_ends } = batch;
        let ids: Vec<_> =
            documents.iter().filter_map(|document| document.get("_id").cloned()).collect();
        let permit = SendPermit::new(self.stop.clone(), lease_ends);
        let PublishedBatch { outcomes, failure } = tokio::select! {
            published = self.publisher.publish(documents, &permit) => published,
            never = self.renew(&ids, &claim, &permit) => match never {},
        };
        self.settle(&outcomes, &claim.id).await?;
        match failure {
            Some(error) if is_final(&error) => Err(OutboxError::Bus(error)),
            Some(error) => {
                self.pause_after(format!("the bus: {error}")).await;
                Ok(())
            }
            None => Ok(()),
        }
    }

    async fn renew(&self, ids: &[Bson], claim: &Claim, permit: &SendPermit) -> Infallible {
        let every = claim.lease_time / 3;
        let mut ticks = interval_at(Instant::now() + every, every);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            let lease_ends = Instant::now() + claim.lease_time;
            // If the database stays unavailable for too long, the lease ends.
            if let Ok(1..) = self.outbox.renew(ids, claim).await {
                permit.extend(lease_ends);
            }
        }
    }

    /// Waits until the bus is connected. Returns `false` if the worker is stopped first.
    async fn wait_for_bus(&mut self) -> Result<bool, OutboxError> {
        let mut state = self.publisher.client().state();
        loop {
            let now = state.borrow_and_update().clone();
            match now {
                ConnectionState::Connected => return Ok(true),
                ConnectionState::Ended(error) => return Err(OutboxError::Bus(error)),
                ConnectionState::Connecting => {}
                ConnectionState::Disconnected { reason, .. } => {
                    self.notify(&Notice::Retrying(format!("the bus: {reason}")));
                }
            }
            let mut stop = self.stop.clone();
            tokio::select! {
                // The end of the client is a state as well.
                _ = state.changed() => {}
                _ = stop.wait_for(|is_stopped| *is_stopped) => return Ok(false),
            }
        }
    }

    /// Returns `true` if a worker has claimed documents: it may die before it has sent them.
    async fn has_claims(&mut self) -> Result<bool, OutboxError> {
        match self.outbox.has_claims().await {
            Ok(has_claims) => Ok(has_claims),
            Err(error) => {
                self.back_off_or_fail(error.into()).await?;
                Ok(true)
            }
        }
    }

    async fn wait(&self, waits_for_others: bool) {
        let poll = self.options.poll;
        let pause = if waits_for_others { poll.min(OTHER_WORKER_PAUSE) } else { poll };
        let mut stop = self.stop.clone();
        tokio::select! {
            () = self.wake.notified() => {}
            () = sleep(pause) => {}
            _ = stop.wait_for(|is_stopped| *is_stopped) => {}
        }
    }

    async fn follow_changes(&mut self) {
        let outbox = self.outbox.collection().clone();
        let stream = match change_stream::open(&outbox).await {
            Ok(stream) => Some(stream),
            Err(error) => {
                self.notify(&Notice::Polling(MongoError::from(error).to_string()));
                None
            }
        };
        let follow = change_stream::follow(outbox, stream, Arc::clone(&self.wake));
        self.change_follower = Some(tokio::spawn(follow));
    }

    fn stop_following(&mut self) {
        if let Some(follower) = self.change_follower.take() {
            follower.abort();
        }
    }

    /// Backs off after a transient error; returns any other.
    async fn back_off_or_fail(&mut self, error: OutboxError) -> Result<(), OutboxError> {
        match &error {
            OutboxError::Mongo(mongo) if is_transient(mongo) => {
                self.pause_after(error.to_string()).await;
                Ok(())
            }
            _ => Err(error),
        }
    }

    /// Reports a failure and backs off, longer with every failure in a row.
    async fn pause_after(&mut self, failure: String) {
        self.notify(&Notice::Retrying(failure));
        let pause = full_jitter(self.back_off.next_wait(), &SystemRandom);
        let mut stop = self.stop.clone();
        let is_stopped = self.is_stopped();
        tokio::select! {
            () = sleep(pause) => {}
            _ = stop.wait_for(|is_stopped| *is_stopped), if !is_stopped => {}
        }
    }

    /// Ends the back-off after a success.
    fn recovered(&mut self) {
        if self.back_off.failures() > 0 {
            self.back_off.reset();
            self.notify(&Notice::Recovered);
        }
    }

    fn is_stopped(&self) -> bool {
        *self.stop.borrow()
    }

    fn notify(&mut self, notice: &Notice) {
        self.summary.count(notice);
        (self.on_notice)(notice);
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        self.stop_following();
    }
}
