//! The core of the bus: publish, groups, leases, limits. No sockets, no JSON frames.
//!
//! The way of a published event: `publish` limits, checks and builds it; `committer` gathers all
//! that waits into one commit, answers everybody and tells the `feed` of the topic.
//!
//! The way of a delivered event: `feed` gives it to the `group`, whose `leases` lend it to one of
//! its members; it waits in that connection's `delivery_queue`.

mod bus;
mod error;
mod groups;
mod inspect;
mod limits;
mod metrics;
mod publish;
mod sharing;
mod stored;
mod topics;

pub use bus::{Bus, Connection};
pub use error::Refusal;
pub use groups::{
    Acked, Answer, Delivery, DeliveryQueue, Description, MAX_WINDOW, MemberId, Nacked,
    SubscribeOptions, Subscription, dead_letter_topic,
};
pub use inspect::{GroupOverview, Lag, TopicOverview};
pub use limits::{Deficit, Limit, Rate, Scope, Standing, TokenBucket};
pub use metrics::{Metrics, OpenConnection, Traffic, Transport};
pub use prombus_engine::{
    Bounds, Condition, Durability, Health, Position, ReadBudget, StoredEvent,
};
pub use publish::{PublishBatch, Submitted};
pub use stored::mark::DEFAULT_MARK_TTL;
pub use stored::{DecodeError, cursor, topic_settings};
pub use topics::{
    FeedEvent, Follower, Settings, StartAt, SubscriptionDefaults, TopicRules, TopicSettings,
};
