//! What a server does in the measurements, the same for every library.

use bytes::{Bytes, BytesMut};

/// Frames of the outbound work that leave in one flush.
pub const GROUP: usize = 100;
/// Largest message that is taken.
pub const MAX_MESSAGE: usize = 1 << 20;
/// Messages of one burst: what is read before anything is answered is bounded.
pub const MAX_BURST: usize = 1024;

/// What a client's frame asks for.
pub enum Ask {
    /// An answer.
    Answer,
    /// So many events.
    Events(usize),
}

/// Reads `events N`; everything else wants an answer.
pub fn ask(text: &[u8]) -> Ask {
    match text.strip_prefix(b"events ") {
        Some(number) => Ask::Events(
            std::str::from_utf8(number).ok().and_then(|n| n.parse().ok()).expect("a number"),
        ),
        None => Ask::Answer,
    }
}

/// An answer of 70 bytes.
pub const ANSWER: &str =
    r#"{"op":"OK","corr":"c-00000001","topic":"heartbeat.received","seq":123}"#;

/// A client's PUBLISH of some 330 bytes.
pub fn publish() -> String {
    let payload = "x".repeat(236 - 13);
    format!(
        r#"{{"op":"PUBLISH","corr":"c-00000001","topic":"heartbeat.received","key":"k-17","payload":{{"text":"{payload}"}}}}"#
    )
}

/// An EVENT of some 330 bytes.
pub fn event() -> String {
    let payload = "x".repeat(236 - 13);
    format!(
        r#"{{"op":"EVENT","topic":"heartbeat.received","group":"g","seq":12345,"attempt":1,"event":{{"text":"{payload}"}}}}"#
    )
}

/// Texts are made one after the other in one buffer and leave it without a copy, as frames of a real session
/// would.
pub fn cut(buffer: &mut BytesMut, text: &str) -> Bytes {
    buffer.extend_from_slice(text.as_bytes());
    buffer.split().freeze()
}
