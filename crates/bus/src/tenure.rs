//! Which gateway delivers a group, where several use one store.
//!
//! A group is held by one gateway at a time. Its tenure, an entry of the keyed state, says by which,
//! and has an epoch that rises whenever that changes. Every cursor is stored with the epoch, and only
//! in place of the cursor before. Whoever takes a group over stores its cursor anew, in the same
//! commit, so nothing that the gateway before it still tries can be stored from then on.
//!
//! A gateway lives as long as its beat is stored anew. No clock is compared with another: whoever
//! waits for a group measures, by its own, for how long the beat of the holder has not changed.

mod beat;
mod record;
mod sightings;
mod watch;

pub(crate) use record::Tenure;
pub(crate) use watch::Tenures;
