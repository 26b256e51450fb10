//! Limits: token buckets of connections, principals and topics, and the numbers of topics and groups.
//!
//! | what | where |
//! |---|---|
//! | an exact token bucket | `token_bucket` |
//! | one that requests and deliveries share fairly | `fair_bucket` |
//! | what a connection and its principal may take | `connection_limit`, `principals` |
//! | what a topic may take, and refusals | `rate_limit` |
//! | tokens that return unless they are used | `charges` |
//! | how many topics and groups there are | `census` |

mod census;
mod charges;
mod connection_limit;
mod fair_bucket;
mod principals;
mod rate_limit;
mod token_bucket;

pub use census::CensusLimits;
pub(crate) use census::{Census, GroupPermit, TopicPermit, keep_census_current};
pub use charges::Charges;
pub use connection_limit::ConnectionLimit;
pub(crate) use principals::Principals;
pub use principals::{Network, Principal};
pub use rate_limit::{LimitScope, LimitStatus, RateLimit};
pub(crate) use rate_limit::{Limited, SHORTEST_WAIT};
pub use token_bucket::{Deficit, Rate, TokenBucket};
