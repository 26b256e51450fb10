//! The contract of every engine.

use async_trait::async_trait;
use prombus_proto::{EventId, Seq, Timestamp, Topic};
use tokio::sync::watch;

use crate::{
    Batch, Bounds, Capabilities, CommitError, Committed, Health, Page, ReadBudget, ReadError,
    Retention, StateEntry, StateKey,
};

/// A log per topic, a small keyed state, and one door in.
///
/// What holds for every method:
///
/// - What a finished `commit`, `trim` or `retain` did is seen by every call that starts after it.
///   Nobody sees a part of a commit, or one that its durability has not reached yet.
/// - A topic that nothing was appended to is empty, not an error.
/// - A dropped future gives up the answer, not the work: a commit may still happen.
#[async_trait]
pub trait Engine: Send + Sync + 'static {
    /// What this engine cannot do. Constant for the life of the engine.
    fn capabilities(&self) -> Capabilities;

    /// Stores all of `batch` or nothing of it.
    ///
    /// Appends get the next `seq` of their topic in the order they stand in the batch. An event
    /// whose id its topic already holds (or that stands earlier in the batch) is not stored again:
    /// its position is the first one's, marked as a duplicate. State operations happen in order,
    /// each one's expectation is checked against what the ones before it left. The batch's expected
    /// last positions and the expectations are checked before anything is stored.
    ///
    /// The answer comes when the batch is as durable as it asked for, or more; it says which. The first
    /// of those that were stored by one write tells how long the sync for it took, if there was one.
    /// Only what is on stable storage was synced.
    /// Commits are answered as if they happened one after the other.
    ///
    /// Twice: the same batch again stores no event (same ids) and repeats its state operations,
    /// unless an expectation stops it.
    ///
    /// Fails with [`CommitError::Conflict`] when an expectation does not hold. After any error but
    /// [`CommitError::Unavailable`], nothing of the batch is stored. After that one it is unknown.
    async fn commit(&self, batch: Batch) -> Result<Committed, CommitError>;

    /// Events of `topic` from `from` on, in order, without gaps, as many as `budget` allows and at
    /// least one if there is one.
    ///
    /// Below the first event kept, it starts with that one; above the last, it is empty. Changes
    /// nothing.
    ///
    /// Fails with [`ReadError::Damaged`] when the first event to return cannot be read back: the
    /// error names the whole damaged range, and reading on behind it works. A page ends before
    /// damage.
    async fn read(&self, topic: &Topic, from: Seq, budget: ReadBudget) -> Result<Page, ReadError>;

    /// The first and the next `seq` of `topic`, and about how many bytes it holds.
    async fn bounds(&self, topic: &Topic) -> Result<Bounds, ReadError>;

    /// All topics that ever had an event, in order of their names.
    async fn topics(&self) -> Result<Vec<Topic>, ReadError>;

    /// The first event kept with `ts` or a later time; behind the last where there is none.
    ///
    /// Times need not rise with `seq`: later events may well be older. An event whose time cannot
    /// be read back counts as found, so that the reader meets the damage.
    async fn seek_time(&self, topic: &Topic, ts: Timestamp) -> Result<Seq, ReadError>;

    /// Where the event `id` is, if `topic` still keeps it.
    async fn seek_id(&self, topic: &Topic, id: &EventId) -> Result<Option<Seq>, ReadError>;

    /// Forgets the events of `topic` below `below`, and answers what is left.
    ///
    /// Durable when answered. Positions go on counting: a topic trimmed empty continues with its
    /// next `seq`. Above the last event, it trims all. Twice: nothing more happens. Ids of
    /// forgotten events may be stored again.
    async fn trim(&self, topic: &Topic, below: Seq) -> Result<Bounds, CommitError>;

    /// Forgets what `rule` no longer keeps, as far as that is cheap: an engine may keep more (disk
    /// drops whole segments only), never less. Answers what is left.
    ///
    /// Rules carry a revision. Once a rule was applied to a topic, an older one is refused with
    /// [`CommitError::StaleRule`]: a slow sweep cannot drop what a newer rule keeps. Otherwise as
    /// [`Engine::trim`].
    async fn retain(&self, topic: &Topic, rule: &Retention) -> Result<Bounds, CommitError>;

    /// The value of `key`, unless there is none or it has expired.
    async fn get(&self, key: &StateKey) -> Result<Option<StateEntry>, ReadError>;

    /// As [`Engine::get`] for each of `keys`, in order. An engine may look for all of them at once.
    async fn get_many(&self, keys: &[StateKey]) -> Result<Vec<Option<StateEntry>>, ReadError> {
        let mut entries = Vec::with_capacity(keys.len());
        for key in keys {
            entries.push(self.get(key).await?);
        }
        Ok(entries)
    }

    /// At most `limit` entries whose keys start with `prefix`, in byte order of keys, behind
    /// `after` if given. Fewer than `limit` means that these were the last.
    ///
    /// Each entry is whole; entries of one scan may come from before and after a commit that runs
    /// meanwhile.
    async fn scan(
        &self,
        prefix: &[u8],
        after: Option<&StateKey>,
        limit: usize,
    ) -> Result<Vec<StateEntry>, ReadError>;

    /// Tells the last `seq` of `topic` whenever it grows, also when another gateway wrote.
    ///
    /// A wake-up, not a queue: several growths may show as one. The value is never ahead of what
    /// [`Engine::read`] gives. Ends when the engine does.
    fn watch(&self, topic: &Topic) -> watch::Receiver<Seq>;

    /// How the engine is, and what it found damaged or repaired since it was opened.
    fn health(&self) -> Health;

    /// Finishes what was begun, makes it durable and lets go of its resources.
    ///
    /// Every call after it fails with `Unavailable::Closed`. Twice: nothing more happens.
    async fn close(&self) -> Result<(), CommitError>;
}
