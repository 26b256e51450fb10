//! Read-only views of topics and groups for operators.

mod group_details;
mod lag;
mod latest_by_key;
mod overview;

pub use group_details::{GroupDetails, OldestUnfinished};
pub use lag::Lag;
pub(crate) use lag::open_events;
pub use overview::{GroupOverview, TopicOverview};
