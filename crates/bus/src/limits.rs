//! Rate limits: a token bucket per connection and per topic.

mod rate_limit;
mod token_bucket;

pub use rate_limit::{LimitScope, LimitStatus, RateLimit};
pub(crate) use rate_limit::{Limited, SHORTEST_WAIT};
pub use token_bucket::{Deficit, Rate, TokenBucket};
