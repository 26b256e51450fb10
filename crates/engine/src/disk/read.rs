//! The read path: the view of what is committed, and the look-ups that follow it into the files.

pub(crate) mod events;
pub(crate) mod seek_id;
pub(crate) mod seek_time;
pub(crate) mod state;
pub(crate) mod topic_view;
pub(crate) mod view;
