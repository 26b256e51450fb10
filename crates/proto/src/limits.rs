//! Limits of the protocol and of the store.

/// Bytes of a topic or group name.
pub const MAX_NAME_BYTES: usize = 200;
/// Bytes of an event key.
pub const MAX_KEY_BYTES: usize = 256;
/// Bytes of an event id.
pub const MAX_ID_BYTES: usize = 256;
/// Headers of one event.
pub const MAX_HEADERS: usize = 64;
/// Bytes of a payload, unless configured otherwise. Fits into a frame of the default size.
pub const MAX_PAYLOAD_BYTES: usize = 1 << 20;

/// How far the `ts` of a published event may be ahead of the server's clock: one day.
pub const MAX_TS_AHEAD_MS: u64 = 24 * 3_600_000;

/// Bytes of a frame of a client that has not authenticated, where tokens are required.
pub const MAX_FRAME_BYTES_BEFORE_AUTH: usize = 8 << 10;
/// Bytes of a frame's `corr`.
pub const MAX_CORR_BYTES: usize = 128;
/// Nesting depth of objects and arrays in a frame. Every common JSON reader accepts it.
pub const MAX_FRAME_NESTING: u32 = 128;
/// Nesting depth of objects and arrays in a payload: `[[1]]` has two levels.
///
/// Many JSON readers, `serde_json` among them, stop at 128 levels. The event and the frame add two, and
/// a dead letter of the event adds another two; the rest is for what users wrap around events.
pub const MAX_PAYLOAD_NESTING: u32 = 100;
/// Events in one PUBLISH or in the `publish` of one ACK, and ids in one SEEN or MARK.
pub const MAX_FRAME_EVENTS: usize = 1000;
/// Events that a subscription may have on lease, and therefore ids in one ACK.
pub const MAX_IN_FLIGHT: u32 = 10_000;
/// The shortest lease that a subscription may request, in milliseconds.
pub const MIN_ACK_TIMEOUT_MS: u64 = 100;
/// The longest lease that SUBSCRIBE or MODACK may request: 12 hours.
pub const MAX_LEASE_MS: u64 = 12 * 3_600_000;
/// Deliveries of one event to one group before it becomes a dead letter.
pub const MAX_ATTEMPTS: u32 = 1000;
/// The longest delay that a NACK may request: one day.
pub const MAX_NACK_DELAY_MS: u64 = 24 * 3_600_000;
/// The shortest lifetime of a mark: one second.
pub const MIN_MARK_TTL_MS: u64 = 1000;
/// The lifetime of a mark that does not set one: 7 days.
pub const DEFAULT_MARK_TTL_MS: u64 = 7 * 24 * 3_600_000;
/// The longest lifetime of a mark: 365 days.
pub const MAX_MARK_TTL_MS: u64 = 365 * 24 * 3_600_000;
/// Bytes of a NACK's reason; longer ones are truncated.
pub const MAX_REASON_BYTES: usize = 1024;

/// Bytes of one event's JSON. A hard limit of the store, above every configurable one.
pub const MAX_EVENT_BYTES: usize = 16 << 20;
/// Bytes of one commit, events and state together.
pub const MAX_BATCH_BYTES: usize = 32 << 20;
/// Events in one commit.
pub const MAX_BATCH_EVENTS: usize = 100_000;
/// Bytes of a state key.
pub const MAX_STATE_KEY_BYTES: usize = 1024;
/// Bytes of a state value.
pub const MAX_STATE_VALUE_BYTES: usize = 1 << 20;

// Limits that depend on each other.
const _: () = assert!(MAX_PAYLOAD_BYTES < MAX_EVENT_BYTES);
const _: () = assert!(MAX_EVENT_BYTES < MAX_BATCH_BYTES);
const _: () = assert!(MAX_PAYLOAD_NESTING + 4 < MAX_FRAME_NESTING);
const _: () = assert!(MAX_STATE_VALUE_BYTES + MAX_STATE_KEY_BYTES < MAX_BATCH_BYTES);
const _: () = assert!(MAX_NAME_BYTES < 255, "a topic name is also a file name");
const _: () = assert!(MAX_BATCH_BYTES < u32::MAX as usize / 4);
const _: () = assert!(MAX_KEY_BYTES < 0x7FFF, "key and id lengths are stored in 15 bits");
const _: () = assert!(MAX_ID_BYTES < 0x7FFF);
