//! The bus's keyed state: one file per kind of key, which knows the key and the encoding of its
//! value.
//!
//! - `cursor`: `cursor/<topic>::<group>/0`, the progress of a consumer group.
//! - `deletion`: `ended/<topic>` or `ended/<topic>::<group>`, for other gateways: it was deleted.
//! - `group_lease`: `lease/<topic>::<group>/0`, the gateway that owns a group.
//! - `group_properties`: `group/<topic>::<group>`, what members have set for their group.
//! - `group_change`: `changed/<topic>::<group>`, for other gateways: it was sought, or dead letters were redriven.
//! - `heartbeat`: `gateway/<id>`, a sign of life of a gateway.
//! - `letter`: `letter/<topic>::<position>`, what operators did with a dead letter.
//! - `mark`: `dedupe/<topic>::<group>::<id>`, an event that a group has handled.
//! - `redrive`: `redrive/<topic>::<group>::<seq>`, an event that a group delivers again.
//! - `topic_settings`: `topic/<topic>`, the settings of a topic that were changed at run time.
//! - `versioned`: the JSON encoding with a version number that they have in common.
//! - `pages`: reads all entries under a prefix.

pub mod cursor;
pub(crate) mod deletion;
pub(crate) mod group_change;
pub(crate) mod group_lease;
pub(crate) mod group_properties;
pub(crate) mod heartbeat;
pub(crate) mod letter;
pub(crate) mod mark;
mod pages;
pub(crate) mod redrive;
pub mod topic_settings;
mod versioned;

use prombus_engine::{InvalidStateKey, StateKey, StateKind};
use prombus_proto::{Group, Topic};

pub(crate) use pages::StatePages;
pub use versioned::DecodeError;

/// The kinds that other programs read in the store, for engines that let them.
pub const STATE_KINDS: &[StateKind] = &[cursor::KIND, mark::KIND, group_lease::KIND];

/// Separates the names in a key. No topic and no group contains it.
const SEPARATOR: &str = "::";
/// Groups have a single partition.
const PARTITION: &str = "/0";

/// The prefixes of everything that is stored for the groups of `topic`, apart from their marks.
pub(crate) fn group_state_prefixes(topic: &Topic) -> [Vec<u8>; 4] {
    [cursor::PREFIX, group_lease::PREFIX, group_properties::PREFIX, redrive::PREFIX]
        .map(|prefix| format!("{prefix}{topic}{SEPARATOR}").into_bytes())
}

fn group_key(prefix: &str, topic: &Topic, group: &Group) -> Result<StateKey, InvalidStateKey> {
    StateKey::new(format!("{prefix}{topic}{SEPARATOR}{group}{PARTITION}"))
}
