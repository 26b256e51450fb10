//! The publish path: a batch is admitted and encoded, then committed in order by one task.

mod batch;
mod committer;
mod publish_times;

pub(crate) use batch::{Moment, admit, build, give_back};
pub use batch::{PublishBatch, Submitted};
pub(crate) use committer::{Answer, Committer, Stored, Submission};
pub(crate) use publish_times::PublishTimes;
