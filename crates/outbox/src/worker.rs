//! A worker: finds documents, claims them, publishes them, marks them, again and again.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use mongodb::bson::{Bson, Document};
use prombus_client::transport::{BackOff, full_jitter};
use prombus_client::{Client, ConnectionState};
use prombus_engine_mongo::MongoError;
use prombus_proto::{IdSource, SystemRandom};
use tokio::sync::{Notify, watch};
use tokio::task::JoinHandle;
use tokio::time::{Instant, MissedTickBehavior, interval_at, sleep};

use crate::choosing::{BatchLimit, Candidate, Position, choose};
use crate::collection::{Lease, Outbox};
use crate::error::may_pass;
use crate::mark::Mark;
use crate::notice::{Notice, Summary};
use crate::order::{Holder, Lane, allowed};
use crate::publishing::{Bus, Gate, Outcome, is_final};
use crate::{OutboxError, Until, Wake, WorkerOptions, waking};

/// How much of documents is in memory at a time, unless one alone is larger.
const BATCH_BYTES: usize = 8 << 20;
/// How many are looked at together where those at the front may not go.
const SEARCHED_AT_A_TIME: usize = 1000;
/// How soon to look again at what only waits for another worker.
const OTHERS_ARE_QUICK: Duration = Duration::from_millis(50);
const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);

/// Whom a worker tells what happens.
type Teller = Box<dyn FnMut(&Notice) + Send>;

/// One worker on one outbox.
pub struct Worker {
    pub(crate) outbox: Outbox,
    bus: Bus,
    options: WorkerOptions,
    stop: watch::Receiver<bool>,
    tell: Teller,
    summary: Summary,
    ids: IdSource,
    back_off: BackOff,
    search: Search,
    wake: Arc<Notify>,
    following: Option<JoinHandle<()>>,
}

/// How far the documents that wait were looked through.
#[derive(Debug, Default)]
struct Search {
    /// What comes next is behind this; from the front where there is none.
    after: Option<Position>,
    /// Whether the last page had nothing that may go.
    is_long: bool,
    /// Whether something was found since the front.
    found_some: bool,
    /// Whether something only waits for another worker.
    waits_for_others: bool,
}

/// What a look at the outbox came to.
enum Found {
    /// These are ours.
    Batch(Vec<Document>, Lease, Instant),
    /// Nothing here; there is more to look at.
    NotYet,
    /// Nothing anywhere, for now.
    Nothing {
        /// Whether something only waits for another worker.
        waits_for_others: bool,
    },
}

impl Worker {
    /// A worker on `outbox` that publishes through `client`, and ends soon after `stop` becomes true.
    ///
    /// The client's [timeout](prombus_client::Builder::timeout) should not be longer than the lease.
    pub fn new(
        outbox: Outbox,
        client: Client,
        options: WorkerOptions,
        stop: watch::Receiver<bool>,
        tell: impl FnMut(&Notice) + Send + 'static,
    ) -> Self {
        Self {
            outbox,
            bus: Bus::new(client),
            options,
            stop,
            tell: Box::new(tell),
            summary: Summary::default(),
            ids: IdSource::system(),
            back_off: BackOff::new(FIRST_PAUSE, LONGEST_PAUSE),
            search: Search::default(),
            wake: Arc::default(),
            following: None,
        }
    }

    /// Works until it is stopped, or until nothing is left. Makes the indexes first.
    ///
    /// Whoever does not wait for the end loses nothing: leases end by themselves.
    pub async fn run(mut self, until: Until) -> Result<Summary, OutboxError> {
        self.outbox.prepare(&self.options).await?;
        if until == Until::Stopped && self.options.wake == Wake::ChangeStream {
            self.follow_changes().await;
        }
        let ended = self.work(until).await;
        if let Some(following) = self.following.take() {
            following.abort();
        }
        ended.map(|()| self.summary)
    }

    async fn work(&mut self, until: Until) -> Result<(), OutboxError> {
        while !self.is_stopped() && self.bus_is_there().await? {
            match self.find().await {
                Ok(Found::Batch(documents, lease, lease_ends)) => {
                    self.went_well();
                    self.publish(documents, &lease, lease_ends).await?;
                }
                Ok(Found::NotYet) => self.went_well(),
                Ok(Found::Nothing { waits_for_others }) => {
                    self.went_well();
                    let is_drained = until == Until::Drained && !waits_for_others;
                    if is_drained && !self.is_held().await? {
                        return Ok(());
                    }
                    self.wait(waits_for_others).await;
                }
                Err(error) => self.survive(error).await?,
            }
        }
        Ok(())
    }

    /// Looks at the next documents that wait, and claims what may go.
    async fn find(&mut self) -> Result<Found, OutboxError> {
        let batch = self.options.batch.max(1);
        let limit = if self.search.is_long { batch.max(SEARCHED_AT_A_TIME) } else { batch };
        let page = self.outbox.page(self.search.after.as_ref(), limit).await?;
        let is_last = page.len() < limit;
        let Some(end) = page.last().map(|last| last.position.clone()) else {
            return Ok(self.reached_the_end());
        };
        let lanes: HashSet<Lane> = page.iter().filter_map(|one| one.lane.clone()).collect();
        let ids: HashSet<&Bson> = page.iter().map(|one| &one.position.id).collect();
        let holder = |document: &Document| match document.get("_id") {
            Some(id) if ids.contains(id) => Holder::Us,
            _ => Holder::Others,
        };
        let order = allowed(self.outbox.unsent(&lanes, &end, holder).await?);
        let choice = choose(page, &order.may_go, BatchLimit { count: batch, bytes: BATCH_BYTES });
        self.search.waits_for_others |= order.waits_for_others;
        self.search.is_long = choice.candidates.is_empty();
        self.search.after = choice.looked_at;
        let claimed = self.claim(&choice.candidates).await?;
        if let Some((documents, lease, lease_ends)) = claimed {
            self.search.found_some = true;
            return Ok(Found::Batch(documents, lease, lease_ends));
        }
        match is_last && choice.has_seen_all {
            true => Ok(self.reached_the_end()),
            false => Ok(Found::NotYet),
        }
    }

    fn reached_the_end(&mut self) -> Found {
        let Search { found_some, waits_for_others, .. } = std::mem::take(&mut self.search);
        // What was sent may have made way for others nearer to the front.
        match found_some {
            true => Found::NotYet,
            false => Found::Nothing { waits_for_others },
        }
    }

    /// Claims documents. Those that others are before after all are given back.
    async fn claim(
        &mut self,
        chosen: &[Candidate],
    ) -> Result<Option<(Vec<Document>, Lease, Instant)>, OutboxError> {
        if chosen.is_empty() {
            return Ok(None);
        }
        let lease = Lease {
            id: self.ids.next_id().to_string(),
            owner: self.options.name.clone(),
            time: self.options.lease,
        };
        // Before it is asked for, so that it never seems to end later than it does.
        let lease_ends = Instant::now() + lease.time;
        match self.outbox.claim(chosen, &lease).await {
            Ok(claimed) => {
                let too_early = claimed.too_early.into_iter();
                let marks: Vec<_> = too_early.map(|id| Mark::given_back(id, false)).collect();
                self.search.waits_for_others |= !marks.is_empty();
                self.settle(&marks, &lease.id).await?;
                let documents = claimed.documents;
                Ok((!documents.is_empty()).then_some((documents, lease, lease_ends)))
            }
            Err(error) => {
                // It may have been done although nobody heard of it.
                self.survive(error.into()).await?;
                let ids = chosen.iter().map(|candidate| candidate.position.id.clone());
                let marks: Vec<_> = ids.map(|id| Mark::given_back(id, false)).collect();
                self.settle(&marks, &lease.id).await?;
                Ok(None)
            }
        }
    }

    /// Publishes a batch and marks it, and says from time to time that it is still ours.
    async fn publish(
        &mut self,
        documents: Vec<Document>,
        lease: &Lease,
        lease_ends: Instant,
    ) -> Result<(), OutboxError> {
        let ids: Vec<_> = documents.iter().filter_map(|one| one.get("_id").cloned()).collect();
        let gate = Gate::new(self.stop.clone(), lease_ends);
        let Outcome { marks, trouble } = tokio::select! {
            outcome = self.bus.publish(documents, &gate) => outcome,
            never = self.renew(&ids, lease, &gate) => match never {},
        };
        self.settle(&marks, &lease.id).await?;
        match trouble {
            Some(error) if is_final(&error) => Err(OutboxError::Bus(error)),
            Some(error) => {
                self.pause_after(format!("the bus: {error}")).await;
                Ok(())
            }
            None => Ok(()),
        }
    }

    async fn renew(&self, ids: &[Bson], lease: &Lease, gate: &Gate) -> std::convert::Infallible {
        let every = lease.time / 3;
        let mut times = interval_at(Instant::now() + every, every);
        times.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            times.tick().await;
            let lease_ends = Instant::now() + lease.time;
            // Where the database is away, the lease ends if that takes too long.
            if let Ok(1..) = self.outbox.renew(ids, lease).await {
                gate.renewed(lease_ends);
            }
        }
    }

    /// Waits until the bus is there. Says no where the worker is to end first.
    async fn bus_is_there(&mut self) -> Result<bool, OutboxError> {
        let mut state = self.bus.client().state();
        loop {
            let now = state.borrow_and_update().clone();
            match now {
                ConnectionState::Connected => return Ok(true),
                ConnectionState::Ended(error) => return Err(OutboxError::Bus(error)),
                ConnectionState::Connecting => {}
                ConnectionState::Disconnected { reason, .. } => {
                    self.tell(&Notice::Trouble(format!("the bus: {reason}")));
                }
            }
            let mut stop = self.stop.clone();
            tokio::select! {
                // Its end is a state, too.
                _ = state.changed() => {}
                _ = stop.wait_for(|is_stopped| *is_stopped) => return Ok(false),
            }
        }
    }

    /// Whether somebody holds documents, who may not live to send them.
    async fn is_held(&mut self) -> Result<bool, OutboxError> {
        match self.outbox.is_held().await {
            Ok(is_held) => Ok(is_held),
            Err(error) => {
                self.survive(error.into()).await?;
                Ok(true)
            }
        }
    }

    async fn wait(&self, waits_for_others: bool) {
        let longest = self.options.poll;
        let time = if waits_for_others { longest.min(OTHERS_ARE_QUICK) } else { longest };
        let mut stop = self.stop.clone();
        tokio::select! {
            () = self.wake.notified() => {}
            () = sleep(time) => {}
            _ = stop.wait_for(|is_stopped| *is_stopped) => {}
        }
    }

    async fn follow_changes(&mut self) {
        let outbox = self.outbox.collection().clone();
        let stream = match waking::open(&outbox).await {
            Ok(stream) => Some(stream),
            Err(error) => {
                self.tell(&Notice::Polling(MongoError::from(error).to_string()));
                None
            }
        };
        let follow = waking::follow(outbox, stream, Arc::clone(&self.wake));
        self.following = Some(tokio::spawn(follow));
    }

    /// Waits out what may pass, and fails with the rest.
    async fn survive(&mut self, error: OutboxError) -> Result<(), OutboxError> {
        match &error {
            OutboxError::Mongo(mongo) if may_pass(mongo) => {
                self.pause_after(error.to_string()).await;
                Ok(())
            }
            _ => Err(error),
        }
    }

    /// Something went wrong: says so, and waits a while, longer each time in a row.
    pub(crate) async fn pause_after(&mut self, trouble: String) {
        self.tell(&Notice::Trouble(trouble));
        let time = full_jitter(self.back_off.next_wait(), &SystemRandom);
        let mut stop = self.stop.clone();
        let is_stopped = self.is_stopped();
        tokio::select! {
            () = sleep(time) => {}
            _ = stop.wait_for(|is_stopped| *is_stopped), if !is_stopped => {}
        }
    }

    pub(crate) fn went_well(&mut self) {
        if self.back_off.failures() > 0 {
            self.back_off.reset();
            self.tell(&Notice::GoesOn);
        }
    }

    pub(crate) fn is_stopped(&self) -> bool {
        *self.stop.borrow()
    }

    pub(crate) fn tell(&mut self, notice: &Notice) {
        self.summary.count(notice);
        (self.tell)(notice);
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        if let Some(following) = self.following.take() {
            following.abort();
        }
    }
}
