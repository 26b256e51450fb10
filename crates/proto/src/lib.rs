//! The vocabulary that servers, engines and clients share: events, names, limits, error codes, and
//! the frames of the WebSocket protocol. No I/O.
//!
//! In reading order:
//!
//! - [`new_event`]: an event as its publisher submits it
//! - [`event`]: the complete event and its stored JSON
//! - [`payload`]: the raw JSON payload, validated once
//! - [`event_id`], [`id_source`]: event ids and their generator
//! - [`seq`]: the position of an event in its topic
//! - [`name`], [`key`]: topic and group names, event keys
//! - `name_pattern`: patterns of such names
//! - [`limits`]: the limits of the protocol and of the store
//! - [`error_code`]: the stable error codes
//! - [`frame`]: the frames between the WebSocket gateway and its clients
//! - [`clock`], [`random`]: time and randomness, injected so that tests repeat
//! - `byte_search`: a vectorised search used by several of these

#![warn(missing_docs)]

mod byte_search;
pub mod clock;
pub mod error_code;
pub mod event;
pub mod event_id;
pub mod frame;
pub mod id_source;
pub mod key;
pub mod limits;
pub mod name;
mod name_pattern;
pub mod new_event;
pub mod payload;
pub mod random;
pub mod seq;

pub use clock::{Clock, ManualClock, SystemClock, Timestamp};
pub use error_code::ErrorCode;
pub use event::{EncodedEvent, Event, EventError, Headers};
pub use event_id::{EventId, InvalidEventId};
pub use frame::{ClientFrame, ClientOp, FrameError, FrameLimits, ServerFrame};
pub use id_source::IdSource;
pub use key::{InvalidKey, Key};
pub use name::{Group, InvalidName, Topic};
pub use name_pattern::{InvalidPattern, NamePattern};
pub use new_event::NewEvent;
pub use payload::{InvalidPayload, Payload};
pub use random::{RandomSource, SeededRandom, SystemRandom};
pub use seq::Seq;
