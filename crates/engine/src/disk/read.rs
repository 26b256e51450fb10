//! The read path: look up in the view where events are, release it, and read the files.

pub(crate) mod arrival;
pub(crate) mod events;
mod fault;
pub(crate) mod seek_id;
pub(crate) mod seek_time;
pub(crate) mod state;
pub(crate) mod topic_view;
pub(crate) mod view;
