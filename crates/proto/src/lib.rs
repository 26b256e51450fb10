//! What an event is: its names, sizes, bytes and error codes; and the frames it travels in. No I/O.
//!
//! | idea | file |
//! |---|---|
//! | what a publisher hands in | [`new_event`] |
//! | the event, and the JSON it becomes once | [`event`] |
//! | its payload, raw and validated once | [`payload`] |
//! | its identity, and where new ones come from | [`event_id`], [`id_source`] |
//! | its place in a topic | [`seq`] |
//! | topics, groups and keys | [`name`], [`key`] |
//! | what can go wrong, on every wire | [`error_code`] |
//! | what the WebSocket gateway and its clients say | [`frame`] |
//! | how large anything may be | [`limits`] |
//! | time and randomness, injected | [`clock`], [`random`] |

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
pub use new_event::NewEvent;
pub use payload::{InvalidPayload, Payload};
pub use random::{RandomSource, SeededRandom, SystemRandom};
pub use seq::Seq;
