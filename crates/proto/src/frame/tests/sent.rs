//! Every server frame of the protocol's tables: written in the documented order, and parsed.

use super::*;
use crate::{EventId, Group, Seq, Topic};

fn read(text: &str) -> Result<ServerFrame, FrameError> {
    ServerFrame::parse(&Bytes::copy_from_slice(text.as_bytes()))
}

#[track_caller]
fn reads_and_writes(text: &str, frame: &ServerFrame) {
    assert_eq!(&read(text).unwrap(), frame);
    let mut out = b"before".to_vec();
    frame.write(&mut out);
    assert_eq!(String::from_utf8(out).unwrap(), format!("before{text}"));
}

fn published(id: &str, seq: u64, duplicate: bool) -> Published {
    Published { id: EventId::new(id).unwrap(), seq: Seq(seq), duplicate }
}

#[test]
fn ok() {
    let ok = |outcome| ServerFrame::Ok { corr: Corr::new("c\"1"), outcome };
    let done = ServerFrame::Ok { corr: None, outcome: Outcome::Done };
    reads_and_writes(r#"{"op":"OK"}"#, &done);
    reads_and_writes(r#"{"op":"OK","corr":"c\"1"}"#, &ok(Outcome::Done));
    reads_and_writes(r#"{"op":"OK","corr":"c\"1","stale":true}"#, &ok(Outcome::Stale));
    reads_and_writes(
        r#"{"op":"OK","corr":"c\"1","id":"0190f5e4-8d4b-7c3a-9f2e-0123456789ab","seq":7}"#,
        &ok(Outcome::Published(published("0190f5e4-8d4b-7c3a-9f2e-0123456789ab", 7, false))),
    );
    reads_and_writes(
        r#"{"op":"OK","corr":"c\"1","id":"a\"b","seq":18446744073709551615,"duplicate":true}"#,
        &ok(Outcome::Published(published("a\"b", u64::MAX, true))),
    );
    reads_and_writes(
        r#"{"op":"OK","corr":"c\"1","results":[{"id":"a","seq":1},{"id":"b","seq":2,"duplicate":true}]}"#,
        &ok(Outcome::Results(vec![published("a", 1, false), published("b", 2, true)])),
    );
    let group = r#"{"ordering":"none","partitions":1,"max_attempts":5,"created":true}"#;
    reads_and_writes(
        &format!(r#"{{"op":"OK","corr":"c\"1","group":{group}}}"#),
        &ok(Outcome::Subscribed(JoinedGroup { max_attempts: 5, created: true })),
    );
    reads_and_writes(r#"{"op":"OK","corr":"c\"1","results":[]}"#, &ok(Outcome::Results(vec![])));
    let seen =
        |ids: &[&str]| Outcome::Seen(ids.iter().map(|id| published(id, 0, false).id).collect());
    reads_and_writes(r#"{"op":"OK","corr":"c\"1","seen":["a","b"]}"#, &ok(seen(&["a", "b"])));
    reads_and_writes(r#"{"op":"OK","corr":"c\"1","seen":[]}"#, &ok(seen(&[])));
    assert_eq!(read(r#"{"stale":false,"op":"OK","new":{}}"#).unwrap(), done);
}

#[test]
fn err() {
    for code in ErrorCode::ALL {
        for (retry_after_ms, rest) in [(None, ""), (Some(250), r#","retry_after_ms":250"#)] {
            let msg = "no \"such\"\n\u{1}é".to_owned();
            reads_and_writes(
                &format!(
                    r#"{{"op":"ERR","corr":"c","code":"{code}","msg":"no \"such\"\n\u0001é"{rest}}}"#
                ),
                &ServerFrame::Err { corr: Corr::new("c"), code: *code, msg, retry_after_ms },
            );
        }
    }
    let newer = read(r#"{"op":"ERR","code":"too_sunny","msg":"wait"}"#).unwrap();
    let ServerFrame::Err { code: ErrorCode::Internal, msg, .. } = newer else { panic!() };
    assert_eq!(msg, "too_sunny: wait");
}

#[test]
fn event() {
    let text = r#"{"op":"EVENT","topic":"a.b","group":"g","event":{"seq":1,"payload":{"é":1}},"ctx":{"attempt":2,"ack_deadline_ms":30000}}"#;
    let frame = ServerFrame::Event {
        topic: Topic::new("a.b").unwrap(),
        group: Group::new("g").unwrap(),
        event: Bytes::from_static(r#"{"seq":1,"payload":{"é":1}}"#.as_bytes()),
        attempt: 2,
        ack_deadline_ms: 30_000,
    };
    reads_and_writes(text, &frame);
    let bytes = Bytes::from_static(text.as_bytes());
    let ServerFrame::Event { event, .. } = ServerFrame::parse(&bytes).unwrap() else { panic!() };
    assert!(bytes.as_ptr_range().contains(&event.as_ptr()), "no copy");
}

#[test]
fn ended() {
    for reason in EndReason::ALL {
        reads_and_writes(
            &format!(
                r#"{{"op":"ENDED","topic":"a.b","group":"g","reason":"{}"}}"#,
                reason.as_str()
            ),
            &ServerFrame::Ended {
                topic: Topic::new("a.b").unwrap(),
                group: Group::new("g").unwrap(),
                reason: *reason,
            },
        );
    }
    let newer = read(r#"{"op":"ENDED","topic":"t","group":"g","reason":"too_sunny"}"#).unwrap();
    assert!(matches!(newer, ServerFrame::Ended { reason: EndReason::Other, .. }));
}

#[test]
fn an_event_of_any_depth() {
    for depth in [100, 127, 200, 100_000] {
        let nested = format!("{}1{}", "[".repeat(depth), "]".repeat(depth));
        let event = format!(r#"{{"seq":1,"id":"a","payload":{nested}}}"#);
        let frame = ServerFrame::Event {
            topic: Topic::new("t").unwrap(),
            group: Group::new("g").unwrap(),
            event: event.clone().into(),
            attempt: 2,
            ack_deadline_ms: 30_000,
        };
        reads_and_writes(
            &format!(
                r#"{{"op":"EVENT","topic":"t","group":"g","event":{event},"ctx":{{"attempt":2,"ack_deadline_ms":30000}}}}"#
            ),
            &frame,
        );
    }
    let deep = format!("{}{}", "[".repeat(200), "]".repeat(200));
    let not_an_event = r#"{"op":"EVENT","topic":"t","group":"g","event":[],"ctx":{"attempt":1,"ack_deadline_ms":1}"#;
    let no_attempt = r#"{"op":"EVENT","topic":"t","group":"g","event":{},"ctx":{"attempt":0,"ack_deadline_ms":1}"#;
    for frame in [not_an_event, no_attempt] {
        read(&format!(r#"{frame},"more":{deep}}}"#)).unwrap_err();
    }
    let deep = "[".repeat(200);
    for bad in [format!(r#"{{"op":"EVENT","event":{deep}"#), format!(r#"{{"op":"OK","new":{deep}"#)]
    {
        let error = read(&bad).unwrap_err().to_string();
        let expected = "bad_frame: the frame is nested deeper than 128 levels at byte ";
        assert!(error.starts_with(expected), "{error}");
    }
}

#[test]
fn invalid_server_frames() {
    let event = |event: &str, ctx: &str| {
        format!(r#"{{"op":"EVENT","topic":"t","group":"g","event":{event},"ctx":{ctx}}}"#)
    };
    for (text, msg) in [
        ("[]".to_owned(), "bad_frame: a frame must be a JSON object"),
        ("{".to_owned(), "bad_json: the frame is not JSON: expected '\"' at byte 1"),
        (r#"{"op":5}"#.to_owned(), "bad_frame: op must be a string"),
        (r#"{"op":"OK","id":"a"}"#.to_owned(), "bad_frame: seq is missing"),
        (
            r#"{"op":"OK","results":[{"id":"a"}]}"#.to_owned(),
            "bad_frame: results[0].seq is missing",
        ),
        (r#"{"op":"OK","results":[1]}"#.to_owned(), "bad_frame: results[0] must be an object"),
        (r#"{"op":"ERR","msg":"a"}"#.to_owned(), "bad_frame: code is missing"),
        (r#"{"op":"ERR","code":"internal"}"#.to_owned(), "bad_frame: msg is missing"),
        (r#"{"op":"ENDED","topic":"t","group":"g"}"#.to_owned(), "bad_frame: reason is missing"),
        (event("5", "{}"), "bad_frame: event must be an object"),
        (event("{}", "null"), "bad_frame: ctx must be an object"),
        (event("{}", "{}"), "bad_frame: ctx.attempt is missing"),
        (event("{}", r#"{"attempt":1}"#), "bad_frame: ctx.ack_deadline_ms is missing"),
        (
            event("{}", r#"{"attempt":0}"#),
            "bad_frame: ctx.attempt must be a whole number from 1 to 4294967295",
        ),
        (
            r#"{"op":"PUBLISH"}"#.to_owned(),
            "unknown_op: unknown operation \"PUBLISH\" (operations are upper-case)",
        ),
    ] {
        assert_eq!(read(&text).unwrap_err().to_string(), msg, "{text}");
    }
}
