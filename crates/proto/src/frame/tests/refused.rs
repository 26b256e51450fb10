//! Every error code and message that parsing a frame can return.

use super::*;
use ErrorCode::{BadFrame, BadGroup, BadJson, BadTopic, PayloadTooLarge, UnknownOp};

#[track_caller]
fn refused(text: &str, code: ErrorCode, msg: &str) {
    let error = parse(text).expect_err(text);
    assert_eq!((error.code, error.msg.as_str()), (code, msg), "{text}");
}

#[test]
fn invalid_json() {
    for (text, msg) in [
        ("", "expected a value at byte 0"),
        ("hello", "expected a value at byte 0"),
        ("{", "expected '\"' at byte 1"),
        ("{}x", "unexpected text after the value at byte 2"),
        ("5 5", "unexpected text after the value at byte 2"),
        (r#"{"op":"PAUSE","corr":"a""#, "expected ',' or '}' after a member at byte 24"),
        (r#"{"op":"PAUSE",}"#, "expected '\"' at byte 14"),
        (r#"{"op" "PAUSE"}"#, "expected ':' after a member name at byte 6"),
        (r#"{"op":tru}"#, "expected true, false or null at byte 6"),
        (r#"{"a":[1;2]}"#, "expected ',' or ']' after an element at byte 7"),
        (r#"{"a":-}"#, "expected a digit at byte 6"),
        (r#"{"a":"\x"}"#, "invalid escape at byte 6"),
        (r#"{"a":"\u12"}"#, "expected four hexadecimal digits after \\u at byte 6"),
        ("{\"a\":\"\n\"}", "unescaped control character in a string at byte 6"),
        (r#"{"a":"b"#, "unterminated string at byte 7"),
    ] {
        refused(text, BadJson, &format!("the frame is not JSON: {msg}"));
    }
    let deep = format!(r#"{{"op":"PUBLISH","topic":"t","payload":{}"#, "[".repeat(300));
    refused(&deep, BadFrame, "the frame is nested deeper than 128 levels at byte 165");
    let frame = Bytes::from_static(b"{\"op\":\"\xff\"}");
    let error = ClientFrame::parse(&frame, &FrameLimits::default()).unwrap_err();
    assert_eq!(error.to_string(), "bad_json: the frame is not JSON: invalid UTF-8 at byte 7");
}

#[test]
fn json_that_is_not_a_frame() {
    for text in ["5", "null", "[]", "\"op\"", " [{\"op\":\"PAUSE\"}] "] {
        refused(text, BadFrame, "a frame must be a JSON object");
    }
    refused("{}", BadFrame, "op is missing");
    refused(r#"{"op":null}"#, BadFrame, "op is missing");
    refused(r#"{"op":5}"#, BadFrame, "op must be a string");
    refused(r#"{"op":"\ud800"}"#, BadFrame, "op must be a string");
    let msg = "corr must be a string of at most 128 bytes";
    refused(r#"{"op":"PAUSE","corr":5}"#, BadFrame, msg);
    refused(r#"{"op":"PAUSE","corr":"\udc00"}"#, BadFrame, msg);
    refused(&format!(r#"{{"op":"PAUSE","corr":"{}"}}"#, "x".repeat(129)), BadFrame, msg);
}

#[test]
fn an_unknown_operation() {
    let msg = |op: &str| format!("unknown operation {op:?} (operations are upper-case)");
    refused(r#"{"op":"pause"}"#, UnknownOp, &msg("pause"));
    refused(r#"{"op":""}"#, UnknownOp, &msg(""));
    let long = format!(r#"{{"op":"{}"}}"#, "é".repeat(500));
    refused(&long, UnknownOp, &msg(&"é".repeat(20)));
}

#[test]
fn names() {
    for op in ClientOp::NAMES.iter().filter(|op| **op != "AUTH") {
        let with = |topic: &str| format!(r#"{{"op":"{op}",{topic}"group":"g","payload":1}}"#);
        refused(&with(""), BadFrame, "topic is missing");
        refused(&with(r#""topic":7,"#), BadFrame, "topic must be a string");
        refused(&with(r#""topic":"","#), BadTopic, "topic: a name must not be empty");
        let msg = "topic: a name may only contain a-z, 0-9, '_', '-' and '.', not 'A'";
        refused(&with(r#""topic":"A","#), BadTopic, msg);
    }
    for op in ClientOp::NAMES.iter().filter(|op| !["AUTH", "PUBLISH"].contains(op)) {
        let with = |group: &str| format!(r#"{{"op":"{op}",{group}"topic":"t"}}"#);
        refused(&with(""), BadFrame, "group is missing");
        refused(&with(r#""group":{},"#), BadFrame, "group must be a string");
        let msg = "group: a name must not have empty segments (a leading, trailing or doubled dot)";
        refused(&with(r#""group":"a..b","#), BadGroup, msg);
    }
}

#[test]
fn auth() {
    refused(r#"{"op":"AUTH","token":1}"#, BadFrame, "token must be a string");
}

#[test]
fn publish() {
    let whole = |rest: &str, msg: &str| {
        refused(&format!(r#"{{"op":"PUBLISH","topic":"t"{rest}}}"#), BadFrame, msg);
    };
    whole("", "payload or events is missing");
    whole(r#","payload":1,"events":[{"payload":1}]"#, "send either payload or events, not both");
    whole(r#","payload":null,"events":[{"payload":1}]"#, "send either payload or events, not both");
    for none in ["[]", "5", "{}"] {
        whole(&format!(r#","events":{none}"#), "events must be a list of 1 to 1000 events");
    }
    let many = vec![r#"{"payload":1}"#; 1001].join(",");
    whole(&format!(r#","events":[{many}]"#), "events must be a list of 1 to 1000 events");
    whole(r#","events":[{"payload":1},2]"#, "events[1] must be an object with a payload");
    whole(r#","events":[{"payload":1},{}]"#, "events[1].payload is missing");
    whole(r#","payload":1,"opts":[]"#, "opts must be an object");
    whole(r#","events":[{"payload":1,"opts":5}]"#, "events[0].opts must be an object");
}

#[test]
fn the_options_of_an_event() {
    let number = "ts must be a whole number from 0 to 18446744073709551615";
    let headers = "headers must be an object with at most 64 members, each a string";
    let many: Vec<_> = (0..65).map(|n| format!(r#""h{n}":"""#)).collect();
    let too_many = format!(r#""headers":{{{}}}"#, many.join(","));
    let long = "x".repeat(257);
    let (long_id, long_key) = (format!(r#""id":"{long}""#), format!(r#""key":"{long}""#));
    for (opts, msg) in [
        (r#""id":5"#, "id must be a string"),
        (r#""id":"""#, "id: an event id must be 1 to 256 bytes long; this one has 0"),
        (&long_id, "id: an event id must be 1 to 256 bytes long; this one has 257"),
        (r#""id":"a\n""#, "id: an event id must not contain control characters"),
        (r#""ts":"now""#, number),
        (r#""ts":-1"#, number),
        (r#""ts":1.5"#, number),
        (r#""ts":1e3"#, number),
        (r#""key":true"#, "key must be a string"),
        (r#""key":"""#, "key: a key must be 1 to 256 bytes long; this one has 0"),
        (&long_key, "key: a key must be 1 to 256 bytes long; this one has 257"),
        (r#""headers":[]"#, headers),
        (r#""headers":{"a":1}"#, headers),
        (&too_many, headers),
        (r#""tags":"t""#, "tags must be a list of strings"),
        (r#""tags":["a",1]"#, "tags[1] must be a string"),
        (r#""caused_by":"x""#, "caused_by must be a list of event ids"),
        (
            r#""caused_by":["x",""]"#,
            "caused_by[1]: an event id must be 1 to 256 bytes long; this one has 0",
        ),
        (r#""sid":5"#, "sid must be a string"),
    ] {
        let event = format!(r#""payload":1,"opts":{{{opts}}}"#);
        let single = format!(r#"{{"op":"PUBLISH","topic":"t",{event}}}"#);
        refused(&single, BadFrame, &format!("opts.{msg}"));
        let batch =
            format!(r#"{{"op":"PUBLISH","topic":"t","events":[{{"payload":0}},{{{event}}}]}}"#);
        refused(&batch, BadFrame, &format!("events[1].opts.{msg}"));
        let ack = format!(
            r#"{{"op":"ACK","topic":"t","group":"g","id":"a","publish":[{{"topic":"u",{event}}}]}}"#
        );
        refused(&ack, BadFrame, &format!("publish[0].opts.{msg}"));
    }
}

#[test]
fn a_payload_over_the_limit() {
    let limits = FrameLimits { max_payload_bytes: 4 };
    let parse = |text: &str| ClientFrame::parse(&Bytes::copy_from_slice(text.as_bytes()), &limits);
    assert!(parse(r#"{"op":"PUBLISH","topic":"t","payload": "ab" }"#).is_ok());
    let msg = "payload has 5 bytes; the limit is 4";
    for (text, msg) in [
        (r#"{"op":"PUBLISH","topic":"t","payload":"abc"}"#, msg.to_owned()),
        (
            r#"{"op":"PUBLISH","topic":"t","events":[{"payload":1},{"payload":"abc"}]}"#,
            format!("events[1].{msg}"),
        ),
        (
            r#"{"op":"ACK","topic":"t","group":"g","id":"a","publish":[{"topic":"t","payload":"abc"}]}"#,
            format!("publish[0].{msg}"),
        ),
    ] {
        let error = parse(text).unwrap_err();
        assert_eq!((error.code, error.msg), (PayloadTooLarge, msg), "{text}");
    }
}

#[test]
fn a_payload_over_the_depth_limit() {
    for (open, close) in [("[", "]"), (r#"{"a":"#, "}")] {
        let nested = |depth: usize| format!("{}1{}", open.repeat(depth), close.repeat(depth));
        let frames = |depth| {
            let payload = nested(depth);
            [
                format!(r#"{{"op":"PUBLISH","topic":"t","payload":{payload}}}"#),
                format!(
                    r#"{{"op":"PUBLISH","topic":"t","events":[{{"payload":0}},{{"payload":{payload}}}]}}"#
                ),
                format!(
                    r#"{{"op":"ACK","topic":"t","group":"g","id":"a","publish":[{{"topic":"t","payload":{payload}}}]}}"#
                ),
            ]
        };
        for frame in frames(100) {
            assert!(parse(&frame).is_ok(), "{frame}");
        }
        for depth in [101, 125] {
            for (frame, path) in frames(depth).iter().zip(["", "events[1].", "publish[0]."]) {
                let msg = format!("{path}payload nests {depth} levels; the limit is 100");
                refused(frame, BadFrame, &msg);
            }
        }
    }
    // Deep in one place, wide in another: the deepest counts.
    let payload = format!("[{},1]", ["[".repeat(100), "]".repeat(100)].concat());
    refused(
        &format!(r#"{{"op":"PUBLISH","topic":"t","payload":{payload}}}"#),
        BadFrame,
        "payload nests 101 levels; the limit is 100",
    );
}

#[test]
fn subscribe() {
    let opts = |opts: &str, msg: &str| {
        let text = format!(r#"{{"op":"SUBSCRIBE","topic":"t","group":"g","opts":{opts}}}"#);
        refused(&text, BadFrame, msg);
    };
    opts("[]", "opts must be an object");
    let from = "opts.from must be latest, earliest, ts or afterId";
    opts(r#"{"from":"now"}"#, from);
    opts(r#"{"from":5}"#, from);
    opts(r#"{"from":"ts"}"#, "opts.ts is missing");
    let ts = "opts.ts must be a whole number from 0 to 18446744073709551615";
    opts(r#"{"from":"ts","ts":"5"}"#, ts);
    opts(r#"{"from":"afterId"}"#, "opts.afterId is missing");
    opts(r#"{"from":"afterId","afterId":5}"#, "opts.afterId must be a string");
    let range = |name: &str, min: u64, max: u64| {
        let msg = format!("opts.{name} must be a whole number from {min} to {max}");
        for bad in [(min - 1).to_string(), (max + 1).to_string(), "\"5\"".into(), "5.5".into()] {
            opts(&format!(r#"{{"{name}":{bad}}}"#), &msg);
        }
    };
    range("maxInFlight", 1, 10_000);
    range("ackTimeoutMs", 100, 43_200_000);
    range("maxAttempts", 1, 1000);
}

#[test]
fn ack() {
    let with = |rest: &str, msg: &str| {
        refused(&format!(r#"{{"op":"ACK","topic":"t","group":"g"{rest}}}"#), BadFrame, msg);
    };
    with("", "id or ids is missing");
    with(r#","id":"a","ids":["a"]"#, "send either id or ids, not both");
    with(r#","id":5"#, "id must be a string");
    with(r#","ids":"a""#, "ids must be a list of 1 to 10000 event ids");
    with(r#","ids":[]"#, "ids must be a list of 1 to 10000 event ids");
    let many = vec!["\"a\""; 10_001].join(",");
    with(&format!(r#","ids":[{many}]"#), "ids must be a list of 1 to 10000 event ids");
    with(r#","ids":["a",5]"#, "ids[1] must be a string");
    with(r#","ids":[""]"#, "ids[0]: an event id must be 1 to 256 bytes long; this one has 0");
    with(r#","id":"a","publish":5"#, "publish must be a list of 0 to 1000 events");
    with(r#","id":"a","publish":[5]"#, "publish[0] must be an object with a payload");
    with(r#","id":"a","publish":[{"payload":1}]"#, "publish[0].topic is missing");
    with(r#","id":"a","publish":[{"topic":"t"}]"#, "publish[0].payload is missing");
    refused(
        r#"{"op":"ACK","topic":"t","group":"g","id":"a","publish":[{"topic":"","payload":1}]}"#,
        BadTopic,
        "publish[0].topic: a name must not be empty",
    );
}

#[test]
fn seen_and_mark() {
    let with = |op: &str, rest: &str, msg: &str| {
        refused(&format!(r#"{{"op":"{op}","topic":"t","group":"g"{rest}}}"#), BadFrame, msg);
    };
    let many = vec!["\"a\""; 1001].join(",");
    for op in ["SEEN", "MARK"] {
        with(op, "", "id or ids is missing");
        let sizes = "ids must be a list of 1 to 1000 event ids";
        with(op, &format!(r#","ids":[{many}]"#), sizes);
    }
    let range = "ttl_ms must be a whole number from 1000 to 31536000000";
    for bad in ["999", "31536000001", "-1", "1000.5", "\"1000\"", "true"] {
        with("MARK", &format!(r#","id":"a","ttl_ms":{bad}"#), range);
        let msg = format!("mark.{range}");
        with("ACK", &format!(r#","id":"a","mark":{{"ttl_ms":{bad}}}"#), &msg);
    }
    for bad in ["1", "\"yes\"", "[]"] {
        let msg = "mark must be true, false or an object";
        with("ACK", &format!(r#","id":"a","mark":{bad}"#), msg);
    }
}

#[test]
fn nack_and_modack() {
    let with = |op: &str, rest: &str, msg: &str| {
        refused(&format!(r#"{{"op":"{op}","topic":"t","group":"g"{rest}}}"#), BadFrame, msg);
    };
    with("NACK", "", "id or ids is missing");
    with("NACK", r#","id":"a","reason":5"#, "reason must be a string");
    let delay = "delay_ms must be a whole number from 0 to 86400000";
    with("NACK", r#","id":"a","delay_ms":86400001"#, delay);
    with("NACK", r#","id":"a","delay_ms":-1"#, delay);
    with("NACK", r#","id":"a","dead":1"#, "dead must be true or false");
    let both = "send either delay_ms or dead, not both";
    with("NACK", r#","id":"a","delay_ms":1,"dead":true"#, both);
    with("MODACK", r#","extend_ms":5"#, "id is missing");
    with("MODACK", r#","id":"a""#, "extend_ms is missing");
    let extend = "extend_ms must be a whole number from 0 to 43200000";
    with("MODACK", r#","id":"a","extend_ms":43200001"#, extend);
    with("MODACK", r#","id":"a","extend_ms":"5""#, extend);
}

#[test]
fn an_error_repeats_the_corr_from_anywhere_in_the_frame() {
    for text in [
        r#"{"corr":"c\u0031"}"#,
        r#"{"op":"NONE","corr":"c\u0031"}"#,
        r#"{"op":"PAUSE","topic":"A","corr":"c\u0031"}"#,
        r#"{"op":"PUBLISH","topic":"t","events":[{"payload":1},{}],"corr":"c\u0031"}"#,
    ] {
        let corr = parse(text).unwrap_err().corr.expect(text);
        assert_eq!((corr.as_json(), &*corr.text()), (br#""c\u0031""#.as_slice(), "c1"));
    }
    assert_eq!(parse(r#"{"corr":"a","op":}"#).unwrap_err().corr, None);
}
