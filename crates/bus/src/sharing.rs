//! Which gateway delivers a group, where several gateways share one store.
//!
//! One gateway at a time owns a group. The group lease, an entry of the keyed state, names the owner
//! and carries an epoch that rises with every change of ownership. Every cursor is stored with that
//! epoch and only in place of the previous cursor. A gateway that claims a group rewrites the cursor
//! in the same commit, which fences whatever the previous owner still tries to store.
//!
//! What one gateway deletes, or changes of a group that another one owns, the others learn from a record that expires after a while
//! (`remote_changes`).
//!
//! A gateway is alive as long as it renews its heartbeat. Clocks of different gateways are never
//! compared: a standby measures, by its own clock, how long the owner's heartbeat has not changed.

mod group_leases;
mod heartbeat;
mod peer_heartbeats;
mod remote_changes;

pub(crate) use group_leases::GroupLeases;
pub(crate) use heartbeat::GatewayId;
pub(crate) use remote_changes::RemoteChanges;
