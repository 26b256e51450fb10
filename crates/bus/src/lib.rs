//! The core of Prombus: publishing, consumer groups, rate limits. It knows no sockets and no frames.
//!
//! A published event goes from a [`PublishBatch`] to the committer task, which stores it and notifies the
//! feed of its topic. A delivered event goes from the feed to the task of a group, which leases it to a
//! member and puts it into the [`DeliveryQueue`] of the member's connection.
//!
//! | module | |
//! |---|---|
//! | `bus` | [`Bus`], what gateways and HTTP use; starts and stops the tasks |
//! | `publish` | admission by the rate limits, [`PublishBatch`], the committer task |
//! | `topics` | topics in use: settings, retention, the feed of recent events, followers |
//! | `groups` | consumer groups: members, leases, acknowledgements, dead letters, delivery queues |
//! | `sharing` | several gateways on one store: which of them delivers a group |
//! | `stored` | the keyed state: one file per kind of key and its versioned encoding |
//! | `limits` | token buckets of connections, principals and topics; how many topics and groups there are |
//! | `memory` | the budgets of buffers, for the whole process |
//! | `dead_letters` | reading, redriving and dropping the events that groups gave up on |
//! | `inspect` | read-only views for operators: topics, groups, lag, latest event of a key |
//! | `metrics` | counters and histograms, in the Prometheus text format |
//! | `notices`, `paced_log` | log lines about what clients cause, at most one per second and subject |
//! | `spans` | OpenTelemetry spans of single events |
//! | `backup` | backups of the store |
//! | `error` | [`Refusal`], the error that is reported to a client |
//! | `time` | the monotonic clock |

mod backup;
mod bus;
mod dead_letters;
mod error;
mod groups;
mod inspect;
mod limits;
mod memory;
mod metrics;
mod notices;
mod paced_log;
mod publish;
mod sharing;
mod spans;
mod stored;
mod time;
mod topics;

pub use bus::{Bus, Connection};
pub use dead_letters::{
    Discarded, Letter, LetterPage, LetterSelection, Redriven, dead_letter_topic,
};
pub use error::Refusal;
pub use groups::{
    Acked, AckedAndMarked, AfterNack, Delivery, DeliveryQueue, Description, EndedSubscription,
    GroupChange, GroupInfo, GroupReply, MAX_WINDOW, MemberDetails, MemberId, Nacked, RetryDelays,
    SeekOptions, Sought, SubscribeOptions, Subscription, WhyUnfinished,
};
pub use inspect::{GroupDetails, GroupOverview, Lag, OldestUnfinished, TopicOverview};
pub use limits::{
    CensusLimits, Charges, ConnectionLimit, Deficit, LimitScope, LimitStatus, Network, Principal,
    Rate, RateLimit, TokenBucket,
};
pub use memory::{Budget, Memory, MemoryLimits, Share};
pub use metrics::{
    MemoryGauge, Metrics, NdjsonStage, OpenConnection, PlaceLimit, SpanCounters, Traffic, Transport,
};
pub use paced_log::{LinePace, PacedLine, PacedLog};
pub use prombus_engine::disk::backup::{
    Backup, BackupChunk, BackupError, OnDamage, WORKING_BYTES as BACKUP_BYTES,
};
pub use prombus_engine::{
    Bounds, Condition, Durability, Health, Position, ReadBudget, StoredEvent,
};
pub use publish::{PendingCommit, PublishBatch};
pub use spans::{FinishedSpan, SpanIds, SpanKind, SpanQueue, SpanSettings, TraceContext};
pub use stored::mark::DEFAULT_MARK_TTL;
pub use stored::{DecodeError, STATE_KINDS, cursor, topic_settings};
pub use topics::{
    ConfiguredTopics, DamagedRange, FeedEvent, Followed, Follower, Purge, Purged, ReadPage,
    Settings, StartAt, SubscriptionDefaults, TopicRules, TopicSettings,
};
