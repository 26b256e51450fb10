//! What a group asks its task to do, and what the task reports back.

use prombus_engine::{Damaged, ReadError, Version};
use prombus_proto::Seq;
use prombus_proto::frame::EndReason;

use super::pending::{Ack, DeadLetterPending, FailedCommit, StoredAck};
use crate::error::Refusal;
use crate::groups::command::{GroupInfo, Reply};
use crate::groups::members::Member;
use crate::publish::{PublishBatch, Submission};
use crate::stored::cursor::Cursor;
use crate::stored::group_properties::GroupProperties;
use crate::stored::redrive::Redrive;
use crate::time::Moment;
use crate::topics::{FeedEvent, StartAt};

/// Something the task does for the group. It performs each to its end before it hands the group anything
/// else, except for [`Effect::Commit`], which runs beside commands.
#[derive(Debug)]
pub(in crate::groups) enum Effect {
    /// Reads the cursor, or stores a new one; then `GroupState::loaded`.
    Load(Joining),
    /// Claims the group for this gateway unless another one owns it; then `GroupState::claimed`.
    Claim(Claim),
    /// Stores properties of the group; then `GroupState::properties_stored`.
    StoreProperties(GroupProperties, NamedBy),
    /// Watches the lease of the gateway that owns the group.
    WatchLease,
    /// Watches the properties of the group, which other gateways may store while this one owns it.
    WatchProperties,
    /// Stops watching either.
    Unwatch,
    /// Looks up marks for an acknowledgement that publishes; then `GroupState::marks_found`.
    LookUpMarks(MarkLookup),
    /// Reads at most so many events from `from` on, or the copy in the dead letter at `letter` if the topic does not
    /// have the event any more; then `GroupState::events_read`.
    Read { from: Seq, events: usize, letter: Option<Seq> },
    /// Waits for the commit in flight, and reads the redriven events of the group; then `GroupState::redrives_read`.
    ReadRedrives,
    /// Reads the stored cursor, after the commit in flight, to see what is stored and whether the group is still owned; then
    /// `GroupState::cursor_read` with the failed commit that made this necessary, unless its waiters are
    /// answered.
    ReadCursor(Option<Box<FailedCommit>>),
    /// Looks up the events that a stored acknowledgement published, and answers it.
    AnswerStoredAck(StoredAck),
    /// Reads the originals of dead letters and encodes them; then `GroupState::dead_letters_encoded`.
    EncodeDeadLetters(Vec<DeadLetterPending>),
    /// Submits a commit; `GroupState::committed` when it is answered.
    Commit(Submission),
    /// Gives the group's lease back; then `GroupState::released`.
    Release,
    /// Waits for the commit in flight, and stores another position; then `GroupState::sought`.
    Seek(Seeking),
}

/// Who sets properties of the group.
#[derive(Debug)]
pub(in crate::groups) enum NamedBy {
    Member(Joining),
    Operator(Reply<()>),
}

/// A group that an operator moves.
#[derive(Debug)]
pub(in crate::groups) struct Seeking {
    /// The next event the group gets, which may not exist yet.
    pub(in crate::groups) next: Seq,
    /// What consumers have marked as handled stays marked.
    pub(in crate::groups) honour_marks: bool,
    /// Answered with the number of marks that were removed.
    pub(in crate::groups) reply: Reply<u64>,
}

/// A group that was moved.
#[derive(Debug)]
pub(in crate::groups) struct Moved {
    pub(in crate::groups) marks_removed: u64,
    /// The stored group; `None` if gateways share the store, and one of them has to claim it.
    pub(in crate::groups) sole: Option<Loaded>,
}

/// A member that joins a group.
#[derive(Debug)]
pub(in crate::groups) struct Joining {
    pub(in crate::groups) member: Member,
    /// Where the group starts if it does not exist.
    pub(in crate::groups) start: StartAt,
    /// What it names for the whole group.
    pub(in crate::groups) max_attempts: Option<u32>,
    /// Whether the group was created for it.
    pub(in crate::groups) created: bool,
    pub(in crate::groups) reply: Reply<GroupInfo>,
}

#[derive(Debug)]
pub(in crate::groups) enum Claim {
    /// For a member that joins, if nobody owns the group.
    Join(Joining),
    /// After the owner released the group, or died with its lease at this version.
    /// `known` is the version of the group's cursor or lease as this gateway saw it before: a deletion after that
    /// ended the group that its members joined.
    TakeOver { expired: Option<Version>, known: Option<Version> },
}

/// A group read from the store.
#[derive(Debug)]
pub(in crate::groups) struct Loaded {
    pub(in crate::groups) cursor: Cursor,
    pub(in crate::groups) redrives: Vec<(Seq, Redrive)>,
    pub(in crate::groups) topic_end: Seq,
    pub(in crate::groups) properties: GroupProperties,
    pub(in crate::groups) at: Moment,
    /// Whether the group did not exist before.
    pub(in crate::groups) created: bool,
}

/// The stored progress of a group.
#[derive(Clone, Debug)]
pub(in crate::groups) struct StoredProgress {
    pub(in crate::groups) cursor: Cursor,
    /// Of the cursor.
    pub(in crate::groups) version: Version,
    pub(in crate::groups) redrives: Vec<(Seq, Redrive)>,
}

#[derive(Debug)]
pub(in crate::groups) enum ClaimOutcome {
    /// The lease names this gateway, with this epoch; the cursor is stored as this version.
    Claimed { group: Loaded, epoch: u64, version: Version },
    /// Another gateway does, by a lease of this version.
    OwnedElsewhere { properties: GroupProperties, lease: Option<Version> },
    /// There is no such group any more.
    Deleted(EndReason),
    /// The claim was not submitted.
    Failed(Refusal),
    /// The claim was submitted, and may have been stored.
    Unclear(Refusal),
}

/// An acknowledgement that publishes events and marks its own, none of which may be marked already.
#[derive(Debug)]
pub(in crate::groups) struct MarkLookup {
    pub(in crate::groups) ack: Ack,
    pub(in crate::groups) publish: PublishBatch,
}

#[derive(Debug)]
pub(in crate::groups) enum ReadOutcome {
    /// Events without gaps, the first of which is the one asked for.
    Events(Vec<FeedEvent>),
    /// The topic has no such event yet.
    NotYet,
    /// Retention removed the event; the topic starts here now.
    Trimmed(Seq),
    Damaged(Damaged),
    Failed(ReadError),
}
