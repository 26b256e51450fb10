//! Every client frame of the protocol's tables, and the variations that a server must accept.

use super::*;
use crate::{EventId, Group, Headers, Key, NewEvent, Payload, Timestamp, Topic};

const ID: &str = "0190f5e4-8d4b-7c3a-9f2e-0123456789ab";

fn topic(name: &str) -> Topic {
    Topic::new(name).unwrap()
}

fn group(name: &str) -> Group {
    Group::new(name).unwrap()
}

fn id(text: &str) -> EventId {
    EventId::new(text).unwrap()
}

fn event(payload: &'static str) -> NewEvent {
    NewEvent::of(Payload::parse(Bytes::from_static(payload.as_bytes())).unwrap())
}

fn membership() -> Membership {
    Membership { topic: topic("t"), group: group("g") }
}

/// Checks that `text` parses to `expected` and that `expected` is written as `text`.
#[track_caller]
fn reads_and_writes(text: &str, expected: ClientOp) {
    let frame = parse(text).unwrap();
    assert_eq!(frame, ClientFrame { corr: None, op: expected });
    assert_eq!(written(&frame), text);
}

#[test]
fn auth() {
    let token = Some(Token::new("s3cret\"é".into()));
    reads_and_writes(r#"{"op":"AUTH","token":"s3cret\"é"}"#, ClientOp::Auth(Auth { token }));
    reads_and_writes(r#"{"op":"AUTH"}"#, ClientOp::Auth(Auth { token: None }));
    assert_eq!(op(r#"{"op":"AUTH","token":null}"#), ClientOp::Auth(Auth { token: None }));
}

#[test]
fn a_token_never_appears_in_debug_output_or_errors() {
    let frame = parse(r#"{"op":"AUTH","corr":"1","token":"s3cret"}"#).unwrap();
    assert!(!format!("{frame:?}").contains("s3cret"), "{frame:?}");
    let ClientOp::Auth(auth) = frame.op else { panic!() };
    assert_eq!(auth.token.as_ref().map(Token::secret), Some("s3cret"));
    for bad in [r#"{"op":"AUTH","token":["s3cret"]}"#, r#"{"op":"AUTH","token":"s3cret""#] {
        assert!(!parse(bad).unwrap_err().to_string().contains("s3cret"));
    }
}

#[test]
fn publish_one() {
    let one = |event| {
        ClientOp::Publish(Publish { topic: topic("a.b"), events: PublishEvents::One(event) })
    };
    reads_and_writes(
        r#"{"op":"PUBLISH","topic":"a.b","payload":{"n": 1}}"#,
        one(event("{\"n\": 1}")),
    );
    reads_and_writes(r#"{"op":"PUBLISH","topic":"a.b","payload":null}"#, one(event("null")));
    reads_and_writes(
        r#"{"op":"PUBLISH","topic":"a.b","payload":1e400,"opts":{"id":"x","ts":5,"key":"k","headers":{"h":"v"},"tags":["t","u"],"caused_by":["x","0190f5e4-8d4b-7c3a-9f2e-0123456789ab"],"sid":"s"}}"#,
        one(NewEvent {
            id: Some(id("x")),
            ts: Some(Timestamp(5)),
            key: Some(Key::new("k").unwrap()),
            headers: Headers::new([("h".into(), "v".into())]).unwrap(),
            tags: vec!["t".into(), "u".into()],
            caused_by: vec![id("x"), id(ID)],
            sid: Some("s".into()),
            ..event("1e400")
        }),
    );
}

#[test]
fn publish_many() {
    let events = vec![event("1"), NewEvent { id: Some(id("x")), ..event("\"two\"") }, event("[3]")];
    reads_and_writes(
        r#"{"op":"PUBLISH","topic":"t","events":[{"payload":1},{"payload":"two","opts":{"id":"x"}},{"payload":[3]}]}"#,
        ClientOp::Publish(Publish { topic: topic("t"), events: PublishEvents::Many(events) }),
    );
    let full = format!(
        r#"{{"op":"PUBLISH","topic":"t","events":[{}]}}"#,
        vec![r#"{"payload":0}"#; 1000].join(",")
    );
    let ClientOp::Publish(publish) = op(&full) else { panic!() };
    assert_eq!(publish.events.as_slice().len(), 1000);
}

#[test]
fn a_payload_is_a_single_line_slice_of_its_frame() {
    let text = "{\"op\":\"PUBLISH\",\"topic\":\"t\",\"payload\": {\"a\" : \"\\n\"} }";
    let frame = Bytes::from_static(text.as_bytes());
    let parsed = ClientFrame::parse(&frame, &FrameLimits::default()).unwrap();
    let ClientOp::Publish(publish) = parsed.op else { panic!() };
    let payload = publish.events.as_slice()[0].payload.as_bytes();
    assert_eq!(payload, b"{\"a\" : \"\\n\"}");
    assert!(frame.as_ptr_range().contains(&payload.as_ptr()), "no copy");

    let ClientOp::Publish(publish) =
        op("{\"op\":\"PUBLISH\",\"topic\":\"t\",\"payload\":\n{\r\n\"a\":\n1}\n}")
    else {
        panic!()
    };
    assert_eq!(publish.events.as_slice()[0].payload.as_bytes(), b"{  \"a\": 1}");
}

#[test]
fn subscribe() {
    let subscribe =
        |opts| ClientOp::Subscribe(Subscribe { topic: topic("t"), group: group("g"), opts });
    let from = |from| subscribe(SubscribeOptions { from, ..SubscribeOptions::default() });
    let with =
        |opts: &str| format!(r#"{{"op":"SUBSCRIBE","topic":"t","group":"g","opts":{opts}}}"#);
    reads_and_writes(
        r#"{"op":"SUBSCRIBE","topic":"t","group":"g"}"#,
        subscribe(SubscribeOptions::default()),
    );
    assert_eq!(op(&with(r#"{"from":"latest","ts":"ignored"}"#)), from(StartFrom::Latest));
    reads_and_writes(&with(r#"{"from":"earliest"}"#), from(StartFrom::Earliest));
    reads_and_writes(&with(r#"{"from":"ts","ts":17}"#), from(StartFrom::Ts(Timestamp(17))));
    reads_and_writes(
        &with(r#"{"from":"afterId","afterId":"x"}"#),
        from(StartFrom::AfterId(id("x"))),
    );
    for (in_flight, timeout, attempts) in [(1, 100, 1), (10_000, 43_200_000, 1000)] {
        reads_and_writes(
            &with(&format!(
                r#"{{"maxInFlight":{in_flight},"ackTimeoutMs":{timeout},"maxAttempts":{attempts}}}"#
            )),
            subscribe(SubscribeOptions {
                from: StartFrom::Latest,
                max_in_flight: Some(in_flight),
                ack_timeout_ms: Some(timeout),
                max_attempts: Some(attempts),
            }),
        );
    }
}

#[test]
fn unsubscribe_pause_and_resume() {
    let text = |op: &str| format!(r#"{{"op":"{op}","topic":"t","group":"g"}}"#);
    reads_and_writes(&text("UNSUBSCRIBE"), ClientOp::Unsubscribe(membership()));
    reads_and_writes(&text("PAUSE"), ClientOp::Pause(membership()));
    reads_and_writes(&text("RESUME"), ClientOp::Resume(membership()));
}

#[test]
fn ack() {
    let marked = |ids, mark, publish| {
        ClientOp::Ack(Ack { topic: topic("t"), group: group("g"), ids, mark, publish })
    };
    let ack = |ids, publish| marked(ids, None, publish);
    let with = |rest: &str| format!(r#"{{"op":"ACK","topic":"t","group":"g",{rest}}}"#);
    reads_and_writes(&with(&format!(r#""id":"{ID}""#)), ack(Ids::One(id(ID)), None));
    let many = Ids::Many(vec![id("a"), id(ID)]);
    assert_eq!(many.as_slice().len(), 2);
    reads_and_writes(&with(&format!(r#""ids":["a","{ID}"]"#)), ack(many, None));
    reads_and_writes(
        &with(
            r#""id":"a","publish":[{"topic":"u","payload":1},{"topic":"v","payload":2,"opts":{"sid":"s"}}]"#,
        ),
        ack(
            Ids::One(id("a")),
            Some(vec![
                (topic("u"), event("1")),
                (topic("v"), NewEvent { sid: Some("s".into()), ..event("2") }),
            ]),
        ),
    );
    reads_and_writes(&with(r#""id":"a","publish":[]"#), ack(Ids::One(id("a")), Some(vec![])));
    let mark = |ttl_ms| marked(Ids::One(id("a")), Some(AckMark { ttl_ms }), None);
    reads_and_writes(&with(r#""id":"a","mark":true"#), mark(None));
    reads_and_writes(&with(r#""id":"a","mark":{"ttl_ms":1000}"#), mark(Some(1000)));
    assert_eq!(op(&with(r#""id":"a","mark":{"more":1}"#)), mark(None));
    assert_eq!(op(&with(r#""id":"a","mark":false"#)), ack(Ids::One(id("a")), None));
}

#[test]
fn seen() {
    let seen = |ids| ClientOp::Seen(Seen { topic: topic("t"), group: group("g"), ids });
    let with = |rest: &str| format!(r#"{{"op":"SEEN","topic":"t","group":"g",{rest}}}"#);
    reads_and_writes(&with(r#""id":"a""#), seen(Ids::One(id("a"))));
    reads_and_writes(&with(r#""ids":["a","b"]"#), seen(Ids::Many(vec![id("a"), id("b")])));
}

#[test]
fn mark() {
    let mark =
        |ids, ttl_ms| ClientOp::Mark(Mark { topic: topic("t"), group: group("g"), ids, ttl_ms });
    let with = |rest: &str| format!(r#"{{"op":"MARK","topic":"t","group":"g",{rest}}}"#);
    reads_and_writes(&with(r#""id":"a""#), mark(Ids::One(id("a")), None));
    reads_and_writes(
        &with(r#""ids":["a","b"],"ttl_ms":31536000000"#),
        mark(Ids::Many(vec![id("a"), id("b")]), Some(31_536_000_000)),
    );
}

#[test]
fn nack() {
    let nack_of = |ids, reason: Option<&str>, next| {
        let reason = reason.map(str::to_owned);
        ClientOp::Nack(Nack { topic: topic("t"), group: group("g"), ids, reason, next })
    };
    let nack = |reason, next| nack_of(Ids::One(id("a")), reason, next);
    let with = |rest: &str| format!(r#"{{"op":"NACK","topic":"t","group":"g","id":"a"{rest}}}"#);
    reads_and_writes(&with(""), nack(None, AfterNack::BackOff));
    reads_and_writes(
        &with(r#","reason":"no\nway","delay_ms":0"#),
        nack(Some("no\nway"), AfterNack::DelayMs(0)),
    );
    reads_and_writes(&with(r#","delay_ms":86400000"#), nack(None, AfterNack::DelayMs(86_400_000)));
    reads_and_writes(&with(r#","reason":"bad","dead":true"#), nack(Some("bad"), AfterNack::Dead));
    assert_eq!(op(&with(r#","dead":false"#)), nack(None, AfterNack::BackOff));
    let many = r#"{"op":"NACK","topic":"t","group":"g","ids":["a","b"],"dead":true}"#;
    let both = Ids::Many(vec![id("a"), id("b")]);
    reads_and_writes(many, nack_of(both, None, AfterNack::Dead));
    let long = format!("{}é", "x".repeat(1023));
    let cut = op(&with(&format!(r#","reason":"{long}""#)));
    assert_eq!(
        cut,
        nack(Some(&"x".repeat(1023)), AfterNack::BackOff),
        "truncated at a character boundary"
    );
}

#[test]
fn modack() {
    for extend_ms in [0, 43_200_000] {
        reads_and_writes(
            &format!(
                r#"{{"op":"MODACK","topic":"t","group":"g","id":"a","extend_ms":{extend_ms}}}"#
            ),
            ClientOp::ModAck(ModAck {
                topic: topic("t"),
                group: group("g"),
                id: id("a"),
                extend_ms,
            }),
        );
    }
}

#[test]
fn corr_keeps_the_spelling_of_the_client() {
    for json in [r#""""#, r#""c-1""#, r#""\u00e9\"\\ é𝄞""#, &format!("\"{}\"", "x".repeat(128))]
    {
        let text = format!(r#"{{"op":"PAUSE","corr":{json},"topic":"t","group":"g"}}"#);
        let frame = parse(&text).unwrap();
        assert_eq!(frame.corr.as_ref().unwrap().as_json(), json.as_bytes());
        assert_eq!(
            frame.corr.as_ref().unwrap().text(),
            serde_json::from_str::<String>(json).unwrap()
        );
        assert_eq!(written(&frame), text);
    }
    // The limit applies to the decoded text, not to its escaped form.
    let escaped =
        format!(r#"{{"op":"PAUSE","corr":"{}","topic":"t","group":"g"}}"#, "\\u0078".repeat(128));
    assert_eq!(parse(&escaped).unwrap().corr.unwrap().text(), "x".repeat(128));
    assert_eq!(Corr::new("a\"b").unwrap().as_json(), br#""a\"b""#);
    assert_eq!(Corr::new(&"x".repeat(129)), None);
}

#[test]
fn accepts_any_order_white_space_and_escapes() {
    let pause = ClientOp::Pause(membership());
    for text in [
        r#"{"group":"g","topic":"t","op":"PAUSE"}"#,
        " \r\n\t{ \"op\" : \"PAUSE\" , \"topic\" : \"t\",\n\"group\":\"g\" } \n",
        r#"{"\u006fp":"P\u0041USE","t\u006Fpic":"\u0074","group":"g"}"#,
    ] {
        assert_eq!(op(text), pause, "{text}");
    }
}

#[test]
fn ignores_members_that_the_operation_does_not_use() {
    for extra in [
        r#""ids":5"#,
        r#""payload":[{}]"#,
        r#""opts":"x""#,
        r#""extend_ms":"soon""#,
        r#""events":{}"#,
        r#""token":[1]"#,
        r#""publish":1.5"#,
        r#""colour":{"a":[null,true,-0.5e-7]}"#,
        r#""\ud800":1"#,
        r#""":0"#,
    ] {
        let text = format!(r#"{{"op":"PAUSE",{extra},"topic":"t","group":"g"}}"#);
        assert_eq!(op(&text), ClientOp::Pause(membership()), "{text}");
    }
    let text = r#"{"op":"PUBLISH","topic":"t","payload":1,"ids":5,"group":7,"opts":{"from":3}}"#;
    assert!(matches!(op(text), ClientOp::Publish(_)));
}

#[test]
fn the_last_of_repeated_members_wins() {
    let text =
        r#"{"op":"AUTH","topic":5,"corr":"a","topic":"t","corr":"b","group":"g","op":"PAUSE"}"#;
    let frame = parse(text).unwrap();
    assert_eq!((frame.corr.unwrap().text(), frame.op), ("b".into(), ClientOp::Pause(membership())));
}

#[test]
fn null_means_absent() {
    let frame = parse(
        r#"{"op":"PUBLISH","corr":null,"topic":"t","payload":1,"events":null,"opts":{"id":null,"ts":null,"key":null,"headers":null,"tags":null,"caused_by":null,"sid":null}}"#,
    )
    .unwrap();
    assert_eq!(written(&frame), r#"{"op":"PUBLISH","topic":"t","payload":1}"#);
    for text in [
        r#"{"op":"SUBSCRIBE","topic":"t","group":"g","opts":null}"#,
        r#"{"op":"SUBSCRIBE","topic":"t","group":"g","opts":{"from":null,"maxInFlight":null}}"#,
    ] {
        assert_eq!(written(&parse(text).unwrap()), r#"{"op":"SUBSCRIBE","topic":"t","group":"g"}"#);
    }
    let text = r#"{"op":"ACK","topic":"t","group":"g","id":"a","ids":null,"publish":null}"#;
    assert!(matches!(op(text), ClientOp::Ack(Ack { ids: Ids::One(_), publish: None, .. })));
}
