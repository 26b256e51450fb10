//! The publish path: a batch is admitted and encoded, then committed in order by one task.

mod admission;
mod batch;
mod committer;
mod publish_times;

pub(crate) use admission::check_ts;
pub use batch::PublishBatch;
pub use committer::PendingCommit;
pub(crate) use committer::{CommitReceipt, CommitResult, Committer, Submission};
pub(crate) use publish_times::PublishTimes;
