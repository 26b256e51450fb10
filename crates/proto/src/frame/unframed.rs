//! Events without a frame, as HTTP accepts them: a bare payload, or one line of an export.

use bytes::Bytes;

use super::error::FrameError;
use super::event_fields::{self, EventReader, OptMembers};
use super::json::{Cursor, Malformed, members};
use super::{FrameLimits, text_of};
use crate::{ErrorCode, NewEvent, Payload};

members! {
    /// One line: `payload` beside the members that a frame has in `opts`.
    LineMembers {
        payload = "payload",
        id = "id",
        ts = "ts",
        key = "key",
        headers = "headers",
        tags = "tags",
        caused_by = "caused_by",
        sid = "sid",
    }
}

/// Parses all of `body` as one payload, which stays a slice of `body`.
///
/// # Errors
///
/// `bad_json` if `body` is not one JSON value, `payload_too_large` if it exceeds `limits`, `bad_frame`
/// if it nests too deep.
pub fn parse_payload(body: &Bytes, limits: &FrameLimits) -> Result<Payload, FrameError> {
    let text = text_of(body).map_err(not_json)?;
    let mut cursor = Cursor::new(text);
    let value = cursor.value().map_err(malformed)?;
    cursor.end().map_err(malformed)?;
    EventReader { frame: body, limits }.payload(Some(value))
}

/// Parses one line, an object with a `payload`. The members that the bus assigns (`topic`, `seq`) and
/// unknown members are ignored. The payload stays a slice of the line.
///
/// # Errors
///
/// As [`ClientFrame::parse`](super::ClientFrame::parse) for the event of a PUBLISH.
pub fn parse_event_line(line: &Bytes, limits: &FrameLimits) -> Result<NewEvent, FrameError> {
    let text = text_of(line).map_err(not_json)?;
    let mut cursor = Cursor::new(text);
    if !cursor.is_at_object() {
        cursor.value().map_err(malformed)?;
        cursor.end().map_err(malformed)?;
        return Err(FrameError::bad_frame("an event must be a JSON object with a payload"));
    }
    let mut members = LineMembers::default();
    members.read(&mut cursor).map_err(malformed)?;
    cursor.end().map_err(malformed)?;
    let LineMembers { payload, id, ts, key, headers, tags, caused_by, sid } = members;
    let mut event = NewEvent::of(EventReader { frame: line, limits }.payload(payload)?);
    let others = OptMembers { id, ts, key, headers, tags, caused_by, sid };
    event_fields::fill(&others, &mut event)?;
    Ok(event)
}

fn malformed(malformed: Malformed) -> FrameError {
    match malformed {
        Malformed::Syntax { .. } => not_json(malformed),
        Malformed::TooDeep { .. } => FrameError::bad_frame(malformed),
    }
}

fn not_json(msg: impl std::fmt::Display) -> FrameError {
    FrameError::new(ErrorCode::BadJson, format_args!("not JSON: {msg}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Event, EventId, Headers, Key, Seq, Timestamp, Topic};

    fn parse_line(line: &str) -> Result<NewEvent, String> {
        let limits = FrameLimits { max_payload_bytes: 500 };
        parse_event_line(&Bytes::copy_from_slice(line.as_bytes()), &limits)
            .map_err(|error| error.to_string())
    }

    fn payload(body: impl AsRef<[u8]>) -> Result<Payload, String> {
        let limits = FrameLimits { max_payload_bytes: 500 };
        parse_payload(&Bytes::copy_from_slice(body.as_ref()), &limits)
            .map_err(|error| error.to_string())
    }

    #[test]
    fn reads_back_an_exported_line() {
        let event = Event {
            id: EventId::new("a").unwrap(),
            ts: Timestamp(5),
            topic: Topic::new("t").unwrap(),
            key: Some(Key::new("k\"").unwrap()),
            headers: Headers::new([("h".to_owned(), "v".to_owned())]).unwrap(),
            payload: Payload::parse(Bytes::from_static(b"{\"b\":1.0, \"a\":1}")).unwrap(),
            caused_by: vec![EventId::new("b").unwrap()],
            tags: vec!["x".to_owned()],
            sid: Some("s".to_owned()),
        };
        let mut line = Vec::new();
        event.encode().write_json(Seq(7), &mut line);
        let read = parse_line(std::str::from_utf8(&line).unwrap()).unwrap();
        let no_id = || unreachable!("the line has an id");
        assert_eq!(read.complete(Topic::new("t").unwrap(), no_id, Timestamp(0)), event);
    }

    #[test]
    fn requires_only_the_payload_and_ignores_unknown_members() {
        let plain = parse_line(r#" {"payload":null} "#).unwrap();
        assert_eq!(plain, NewEvent::of(Payload::parse(Bytes::from_static(b"null")).unwrap()));
        let more = r#"{"seq":"x","topic":7,"opts":{"ts":1},"other":[],"ts":null,"payload":null}"#;
        assert_eq!(parse_line(more).unwrap(), plain);
    }

    #[test]
    fn refuses_invalid_lines_with_the_reason() {
        let too_large = format!(r#"{{"payload":"{}"}}"#, "x".repeat(500));
        for (line, reason) in [
            ("{}", "bad_frame: payload is missing"),
            ("[1]", "bad_frame: an event must be a JSON object with a payload"),
            ("{", "bad_json: not JSON: "),
            ("nonsense", "bad_json: not JSON: "),
            (r#"{"payload":1}{"payload":1}"#, "bad_json: not JSON: unexpected text after"),
            (r#"{"payload":1,"ts":"now"}"#, "bad_frame: ts must be a whole number"),
            (r#"{"payload":1,"id":""}"#, "bad_frame: id: an event id must be 1 to 256 bytes long"),
            (r#"{"payload":1,"headers":[]}"#, "bad_frame: headers must be an object"),
            (&too_large, "payload_too_large: payload has 502 bytes"),
        ] {
            let error = parse_line(line).unwrap_err();
            assert!(error.starts_with(reason), "{line}: {error}");
        }
    }

    #[test]
    fn accepts_the_payloads_that_a_frame_may_carry() {
        assert_eq!(payload(" 1.50\n").unwrap().as_bytes(), b"1.50");
        let nested = |depth: usize| format!("{}{}", "[".repeat(depth), "]".repeat(depth));
        let line = |depth| parse_line(&format!(r#"{{"payload":{}}}"#, nested(depth)));
        for depth in [1, 100] {
            assert!(payload(nested(depth)).is_ok());
        }
        let refusal = |depth| format!("bad_frame: payload nests {depth} levels; the limit is 100");
        for depth in [101, 127] {
            assert_eq!(payload(nested(depth)).unwrap_err(), refusal(depth));
            assert_eq!(line(depth).unwrap_err(), refusal(depth));
        }
        let far_too_deep = "bad_frame: nested deeper than 128 levels at byte ";
        assert_eq!(payload(nested(200)).unwrap_err(), format!("{far_too_deep}128"));
        assert_eq!(line(200).unwrap_err(), format!("{far_too_deep}138"));
        for bad in ["", "{", "1 2", "nul"] {
            assert!(payload(bad).unwrap_err().starts_with("bad_json: not JSON: "), "{bad}");
        }
        assert!(payload(b"\"\xff\"").unwrap_err().contains("invalid UTF-8 at byte 1"));
        assert!(payload(format!("\"{}\"", "x".repeat(500))).unwrap_err().contains("502 bytes"));
    }
}
