//! The core of the bus: publish, groups, leases, limits. No sockets, no JSON frames.
//!
//! The way of a published event: `publish` limits, checks and builds it; `committer` gathers all
//! that waits into one commit, answers everybody and tells the `feed` of the topic.
//!
//! The way of a delivered event: `feed` gives it to the `group`, whose `leases` lend it to one of
//! its members; it waits in that connection's `outbox`.

mod bus;
mod committer;
mod configure;
pub mod cursor;
mod dead_letter;
mod dedupe;
mod elsewhere;
mod error;
mod feed;
mod follow;
mod group;
mod groups;
mod lag;
mod latest_by_key;
mod leases;
mod limits;
mod metrics;
mod moments;
mod outbox;
mod overview;
pub mod own_settings;
mod publish;
mod retention;
mod settings;
mod start;
mod state_pages;
mod subscription;
mod tenure;
mod token_bucket;
mod topics;

pub use bus::{Bus, Connection};
pub use dead_letter::dead_letter_topic;
pub use dedupe::DEFAULT_MARK_TTL;
pub use error::Refusal;
pub use feed::FeedEvent;
pub use follow::Follower;
pub use group::{Acked, Description, Nacked};
pub use lag::Lag;
pub use leases::{MAX_WINDOW, MemberId};
pub use limits::{Limit, Scope, Standing};
pub use metrics::{Metrics, OpenConnection, Traffic, Transport};
pub use outbox::{Delivery, Outbox};
pub use overview::{GroupOverview, TopicOverview};
pub use prombus_engine::{
    Bounds, Condition, Durability, Health, Position, ReadBudget, StoredEvent,
};
pub use publish::{Prepared, Submitted};
pub use settings::{Settings, SubscriptionDefaults, TopicRules, TopicSettings};
pub use start::StartAt;
pub use subscription::{Answer, SubscribeOptions, Subscription};
pub use token_bucket::{Deficit, Rate, TokenBucket};
