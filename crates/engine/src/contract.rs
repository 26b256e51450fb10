//! The contract that every engine fulfils. `conformance` is the same contract as tests.

use async_trait::async_trait;
use prombus_proto::{EventId, Seq, Timestamp, Topic};
use tokio::sync::watch;

use crate::disk::backup::{Backup, BackupError, OnDamage};
use crate::{
    Arrival, Batch, Bounds, Capabilities, CommitError, Committed, Figures, Health, Page,
    ReadBudget, ReadError, Retention, StateEntry, StateKey,
};

/// A store with one log per topic, a small keyed state, and a single way to write:
/// [`commit`](Engine::commit).
///
/// The following holds for every method:
///
/// - **Visibility.** Once a `commit`, `trim` or `retain` has returned, every call that starts later
///   sees its effect. No call ever sees a part of a commit, or a commit that has not yet reached the
///   durability it asked for.
/// - **Empty topics.** A topic without events is empty, not an error. Topics are created by their
///   first event, and exist until a commit deletes them.
/// - **Cancellation.** Dropping a future abandons the answer, not the work: the commit may still be
///   stored.
/// - **Closing.** After [`close`](Engine::close), every call that can fail returns
///   [`Unavailable::Closed`](crate::Unavailable::Closed).
#[async_trait]
pub trait Engine: Send + Sync + 'static {
    /// Returns what this engine supports. Constant for the life of the engine.
    fn capabilities(&self) -> Capabilities;

    /// Stores all of `batch` atomically, or none of it.
    ///
    /// *Order.* Commits take effect one after another. Within a batch:
    ///
    /// 1. Every entry of [`Batch::expected_last`] must match the topic's last `seq` before the batch.
    /// 2. State operations apply in order. Each one's expectation is checked against the state that
    ///    the operations before it left behind.
    /// 3. The topics in [`Batch::deleted_topics`] are deleted.
    /// 4. Each event gets the next `seq` of its topic, in batch order.
    ///
    /// All expectations are checked before anything is stored.
    ///
    /// *Deletion.* A deleted topic is as if it had never existed: it is not listed, its bounds are
    /// [`Bounds::EMPTY`], and its events, their ids and the revision of its retention rule are forgotten. The
    /// space that it took is freed later. Deleting a topic that does not exist changes nothing. Its next
    /// event creates it again, at a `seq` that is either 1 or the one after the last event before the
    /// deletion, whichever suits the engine: no position from before says anything about the new topic, and
    /// whoever stores positions has to delete them in the same batch. A batch with deletions has the
    /// highest durability that the engine supports.
    ///
    /// *Duplicates.* An event whose id the topic already has, or that appears earlier in the batch, is
    /// not stored again. Its position is that of the first event, with
    /// [`duplicate`](crate::Position::duplicate) set.
    ///
    /// *Durability.* Returns when the batch has the durability it asked for, or the highest that the
    /// engine supports; [`Committed::durability`] says which, and may be higher. When one write stores
    /// several commits, the first of them carries the [`WriteStats`](crate::WriteStats) of that write. A
    /// sync time is only reported together with [`Durability::Fsync`](crate::Durability::Fsync).
    ///
    /// *Called twice.* The same batch again stores no event (the ids are known) and repeats its state
    /// operations, unless an expectation fails.
    ///
    /// # Errors
    ///
    /// [`CommitError::Conflict`] if an expectation does not hold, [`CommitError::TooLarge`] if the batch
    /// exceeds a limit, [`CommitError::Full`] if the storage has no space. After
    /// [`CommitError::Unavailable`] it is unknown whether the batch is stored; after every other error,
    /// no part of it is.
    async fn commit(&self, batch: Batch) -> Result<Committed, CommitError>;

    /// Returns events of `topic` from `from` on, in order and without gaps: as many as `budget`
    /// allows, but at least one if there is one.
    ///
    /// If `from` is below the first retained event, the page starts with that event. If it is above
    /// the last, the page is empty. A page ends before a damaged event.
    ///
    /// *Called twice.* Reading changes nothing.
    ///
    /// # Errors
    ///
    /// [`ReadError::Damaged`] if the first event to return is damaged. The error names the whole
    /// damaged range; reading from the event after it works.
    async fn read(&self, topic: &Topic, from: Seq, budget: ReadBudget) -> Result<Page, ReadError>;

    /// Returns the first retained and the next `seq` of `topic`, and its approximate size.
    async fn bounds(&self, topic: &Topic) -> Result<Bounds, ReadError>;

    /// Returns all topics that ever had an event and were not deleted since, sorted by name. A topic stays
    /// listed after its events were trimmed.
    async fn topics(&self) -> Result<Vec<Topic>, ReadError>;

    /// Returns the first retained event whose timestamp is `ts` or later, or the topic's next `seq` if
    /// there is none.
    ///
    /// Timestamps need not increase with `seq`: an event after the returned one may be older than
    /// `ts`. An event whose timestamp is damaged counts as a match, so that the reader runs into the
    /// damage instead of skipping it.
    async fn seek_time(&self, topic: &Topic, ts: Timestamp) -> Result<Seq, ReadError>;

    /// Returns the position of the event `id`, or `None` if `topic` never had it or has dropped it.
    async fn seek_id(&self, topic: &Topic, id: &EventId) -> Result<Option<Seq>, ReadError>;

    /// Returns what [`seek_id`](Engine::seek_id) returns for each of `ids`, in the same order. Engines that
    /// can find several ids at once override this.
    async fn seek_ids(
        &self,
        topic: &Topic,
        ids: &[EventId],
    ) -> Result<Vec<Option<Seq>>, ReadError> {
        let mut found = Vec::with_capacity(ids.len());
        for id in ids {
            found.push(self.seek_id(topic, id).await?);
        }
        Ok(found)
    }

    /// Returns when the event at `seq` was stored, or `None` if `topic` does not have it, or has
    /// dropped it.
    ///
    /// As for [`retain`](Engine::retain), the time is the engine's and not the event's `ts`, and an
    /// event may count as stored as late as any event before it. An engine that no longer knows the
    /// exact time returns bounds.
    async fn arrival(&self, topic: &Topic, seq: Seq) -> Result<Option<Arrival>, ReadError>;

    /// Drops the events of `topic` below `below` and returns the remaining bounds. A `below` above the
    /// last event drops all of them.
    ///
    /// The effect is durable when the call returns. The numbering continues: after dropping all
    /// events, the next one still gets the topic's next `seq`. The ids of dropped events are
    /// forgotten: an event with the same id can be stored again.
    ///
    /// *Called twice.* The second call changes nothing. A smaller `below` brings nothing back.
    async fn trim(&self, topic: &Topic, below: Seq) -> Result<Bounds, CommitError>;

    /// Drops events that `rule` no longer retains, oldest first, and returns the remaining bounds.
    ///
    /// An engine may retain more than the rule asks for if dropping it would be expensive (the disk
    /// engine drops whole segments), but never less. Otherwise the effect is that of
    /// [`trim`](Engine::trim).
    ///
    /// The age of an event counts from when it was stored. An event may count as stored as late as any
    /// event before it, since the clock may step back and only the front can be dropped. Its `ts` neither
    /// shortens nor prolongs its life, nor that of others.
    ///
    /// Rules have revisions, and the engine remembers the newest one applied per topic, so that a
    /// slow sweep cannot drop what a newer rule retains.
    ///
    /// *Called twice.* The same revision may be applied again; time may have moved on.
    ///
    /// # Errors
    ///
    /// [`CommitError::StaleRule`] if a newer rule was already applied to the topic.
    async fn retain(&self, topic: &Topic, rule: &Retention) -> Result<Bounds, CommitError>;

    /// Returns the value of `key`, or `None` if there is none or it has expired.
    async fn get(&self, key: &StateKey) -> Result<Option<StateEntry>, ReadError>;

    /// Returns what [`get`](Engine::get) returns for each of `keys`, in the same order. Engines that
    /// can fetch several keys at once override this.
    async fn get_many(&self, keys: &[StateKey]) -> Result<Vec<Option<StateEntry>>, ReadError> {
        let mut entries = Vec::with_capacity(keys.len());
        for key in keys {
            entries.push(self.get(key).await?);
        }
        Ok(entries)
    }

    /// Returns at most `limit` entries whose keys start with `prefix`, in byte order. With `after`,
    /// only keys greater than `after`, which need not exist. Fewer than `limit` entries means that
    /// there are no more.
    ///
    /// Each entry is consistent. The scan as a whole is not a snapshot: with a commit in progress,
    /// some entries may be from before it and some from after it.
    async fn scan(
        &self,
        prefix: &[u8],
        after: Option<&StateKey>,
        limit: usize,
    ) -> Result<Vec<StateEntry>, ReadError>;

    /// Returns a receiver of the topic's last `seq`, which changes whenever the topic grows, also
    /// through another gateway on the same store.
    ///
    /// It is a wake-up, not a queue: several appends may show up as one change. The value is never
    /// ahead of what [`read`](Engine::read) returns. The channel closes when the engine is closed or
    /// dropped; on a closed engine it is closed from the start. It also closes when this engine deletes the
    /// topic, or sees that another gateway did; a later call watches the topic that may follow.
    fn watch(&self, topic: &Topic) -> watch::Receiver<Seq>;

    /// Starts a backup of the whole store: every commit whose answer came before this call, and whole
    /// commits only. Commits, reads and trims go on while it is read.
    ///
    /// *Called twice.* Each backup has its own moment. An engine limits how many run at a time.
    ///
    /// # Errors
    ///
    /// [`BackupError::Unsupported`] if the engine has no backups; it says what to use instead.
    async fn backup(&self, on_damage: OnDamage) -> Result<Backup, BackupError>;

    /// Returns whether the engine accepts commits, and what it found damaged or repaired since it was
    /// opened. Works on a closed engine.
    fn health(&self) -> Health;

    /// Returns what the engine measures about itself. Cheap enough to be asked every few seconds, whatever
    /// the number of topics; what cannot be found out now is left out. Works on a closed engine.
    async fn figures(&self) -> Figures {
        Figures::default()
    }

    /// Finishes the commits in progress, makes them durable and releases all resources.
    ///
    /// *Called twice.* The second call does nothing and succeeds.
    async fn close(&self) -> Result<(), CommitError>;
}
