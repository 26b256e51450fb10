//! How large anything may be. The defaults of the wire, and the hard ends of the store.

/// A topic or group name, in bytes.
pub const MAX_NAME_BYTES: usize = 200;
/// An event key, in bytes.
pub const MAX_KEY_BYTES: usize = 256;
/// An event id, in bytes.
pub const MAX_ID_BYTES: usize = 256;
/// Headers on one event.
pub const MAX_HEADERS: usize = 64;
/// A payload unless configured otherwise: what fits the default frame.
pub const MAX_PAYLOAD_BYTES: usize = 1 << 20;

/// A frame's `corr`, in bytes.
pub const MAX_CORR_BYTES: usize = 128;
/// Objects and arrays within each other in one frame: what every JSON reader can follow.
pub const MAX_FRAME_NESTING: u32 = 128;
/// Events in one PUBLISH, in the `publish` of one ACK, and the ids in one SEEN or MARK.
pub const MAX_FRAME_EVENTS: usize = 1000;
/// What a subscription may have out on lease; so also the ids in one ACK.
pub const MAX_IN_FLIGHT: u32 = 10_000;
/// The shortest lease that a subscription may ask for.
pub const MIN_ACK_TIMEOUT_MS: u64 = 100;
/// The longest lease, whether asked for at subscribing or by MODACK: 12 hours.
pub const MAX_LEASE_MS: u64 = 12 * 3_600_000;
/// Deliveries of one event to one group.
pub const MAX_ATTEMPTS: u32 = 1000;
/// The longest wait that a NACK may ask for: a day.
pub const MAX_NACK_DELAY_MS: u64 = 24 * 3_600_000;
/// The shortest time that a mark may be kept for.
pub const MIN_MARK_TTL_MS: u64 = 1000;
/// How long a mark is kept unless it says so: 7 days.
pub const DEFAULT_MARK_TTL_MS: u64 = 7 * 24 * 3_600_000;
/// The longest time that a mark may be kept for: 365 days.
pub const MAX_MARK_TTL_MS: u64 = 365 * 24 * 3_600_000;
/// The reason of a NACK, in bytes; what is longer is cut.
pub const MAX_REASON_BYTES: usize = 1024;

/// One event's JSON. The store's hard end, above every configurable limit.
pub const MAX_EVENT_BYTES: usize = 16 << 20;
/// All that one commit may carry, events and state together.
pub const MAX_BATCH_BYTES: usize = 32 << 20;
/// Events in one commit.
pub const MAX_BATCH_EVENTS: usize = 100_000;
/// A key of the keyed state.
pub const MAX_STATE_KEY_BYTES: usize = 1024;
/// A value of the keyed state.
pub const MAX_STATE_VALUE_BYTES: usize = 1 << 20;

// Limits that lean on each other.
const _: () = assert!(MAX_PAYLOAD_BYTES < MAX_EVENT_BYTES);
const _: () = assert!(MAX_EVENT_BYTES < MAX_BATCH_BYTES);
const _: () = assert!(MAX_STATE_VALUE_BYTES + MAX_STATE_KEY_BYTES < MAX_BATCH_BYTES);
const _: () = assert!(MAX_NAME_BYTES < 255, "a topic name is a file name, too");
const _: () = assert!(MAX_BATCH_BYTES < u32::MAX as usize / 4);
const _: () = assert!(MAX_KEY_BYTES < 0x7FFF, "key and id lengths are stored in 15 bits");
const _: () = assert!(MAX_ID_BYTES < 0x7FFF);
