//! Topics in use: settings, retention, recent events, followers.

mod configure;
mod delete;
mod feed;
mod feed_memory;
mod follow;
mod purge;
mod read;
mod recent;
mod registry;
mod remote_appends;
mod retention;
mod settings;
mod start;

pub(crate) use configure::keep_settings_current;
pub(crate) use delete::deleted_elsewhere;
pub use feed::FeedEvent;
pub(crate) use feed_memory::FeedMemory;
pub use follow::{Followed, Follower};
pub use purge::{Purge, Purged};
pub(crate) use read::read;
pub use read::{DamagedRange, ReadPage};
pub(crate) use registry::{TopicInUse, Topics};
pub(crate) use retention::RetentionTask;
pub use settings::{ConfiguredTopics, Settings, SubscriptionDefaults, TopicRules, TopicSettings};
pub use start::StartAt;
