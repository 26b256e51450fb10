//! Recognizes the server's frames without parsing them.
//!
//! `prombus_proto::frame::answer` writes the members of a frame in a fixed order, so it is enough
//! to look at fixed positions.

use bytes::Bytes;
use memchr::memmem;
use prombus_proto::ServerFrame;
use tokio_tungstenite::tungstenite::Utf8Bytes;

use crate::BenchError;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FramePeek<'a> {
    Ok,
    /// OK to an acknowledgement whose lease is lost.
    Stale,
    Event {
        topic: &'a str,
        id: &'a str,
        /// The event's JSON.
        event: &'a str,
    },
    /// A refusal, or an unknown frame.
    Other,
}

impl<'a> FramePeek<'a> {
    pub(crate) fn of(frame: &'a str) -> Self {
        if let Some(rest) = frame.strip_prefix(r#"{"op":"OK""#) {
            return if rest == r#","stale":true}"# { Self::Stale } else { Self::Ok };
        }
        match frame.strip_prefix(r#"{"op":"EVENT","topic":""#).and_then(Self::event) {
            Some(event) => event,
            None => Self::Other,
        }
    }

    /// `frame` starts with the name of the topic.
    fn event(frame: &'a str) -> Option<Self> {
        let (topic, rest) = frame.split_once('"')?;
        let start = memmem::find(rest.as_bytes(), br#","event":{"#)? + br#","event":"#.len();
        let end = memmem::rfind(rest.as_bytes(), br#","ctx":{"#)?;
        let event = rest.get(start..end)?;
        let id = event.split_once(r#","id":""#)?.1.split_once('"')?.0;
        Some(Self::Event { topic, id, event })
    }
}

/// Converts a refusal, or any other frame, into an error.
pub(crate) fn frame_error(frame: &Utf8Bytes) -> BenchError {
    match ServerFrame::parse(&Bytes::from(frame.clone())) {
        Ok(ServerFrame::Err { code, msg, .. }) => BenchError::Refused { code, message: msg },
        _ => BenchError::NotUnderstood(frame.chars().take(200).collect()),
    }
}

#[cfg(test)]
mod tests {
    use prombus_proto::frame::answer;
    use prombus_proto::{ErrorCode, EventId, Group, Seq, Topic};

    use super::*;

    fn written(write: impl FnOnce(&mut Vec<u8>)) -> String {
        let mut out = Vec::new();
        write(&mut out);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn recognizes_frames_as_the_server_writes_them() {
        let id = EventId::new("0190f5e4-8d4b-7c3a-9f2e-0123456789ab").unwrap();
        let (topic, group) = (Topic::new("a.b").unwrap(), Group::new("g").unwrap());
        let ok = written(|out| answer::write_ok(out, None));
        assert_eq!(FramePeek::of(&ok), FramePeek::Ok);
        let published = written(|out| answer::write_published(out, None, &id, Seq(7), false));
        assert_eq!(FramePeek::of(&published), FramePeek::Ok);
        let stale = written(|out| answer::write_stale(out, None));
        assert_eq!(FramePeek::of(&stale), FramePeek::Stale);
        let json =
            format!(r#"{{"seq":7,"id":"{id}","ts":1,"topic":"a.b","payload":{{"ctx":{{}}}}}}"#);
        let json = &json;
        let event = written(|out| {
            let write = |out: &mut Vec<u8>| out.extend_from_slice(json.as_bytes());
            answer::write_event(out, &topic, &group, write, 1, 30_000);
        });
        let expected = FramePeek::Event {
            topic: "a.b",
            id: "0190f5e4-8d4b-7c3a-9f2e-0123456789ab",
            event: json,
        };
        assert_eq!(FramePeek::of(&event), expected);
        let limited = ErrorCode::RateLimited;
        let refused = written(|out| answer::write_err(out, limited, "no", None, Some(5)));
        assert_eq!(FramePeek::of(&refused), FramePeek::Other);
        let error = frame_error(&Utf8Bytes::from(refused));
        assert!(matches!(error, BenchError::Refused { code: ErrorCode::RateLimited, .. }));
    }
}
