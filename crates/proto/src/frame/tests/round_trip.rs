//! Written frames parse to the same frame, and no input makes the parser panic.

use proptest::collection::vec;
use proptest::option::of;
use proptest::prelude::*;

use super::*;
use crate::{EventId, Group, Headers, Key, NewEvent, Payload, Seq, Timestamp, Topic};

fn topic() -> impl Strategy<Value = Topic> {
    "[a-z0-9_-]{1,9}(\\.[a-z]{1,5}){0,2}".prop_map(|name| Topic::new(&name).unwrap())
}

fn group() -> impl Strategy<Value = Group> {
    "[a-z0-9_-]{1,9}".prop_map(|name| Group::new(&name).unwrap())
}

fn id() -> impl Strategy<Value = EventId> {
    let uuid = any::<u128>().prop_map(|bits| EventId::from_uuid(uuid::Uuid::from_u128(bits)));
    prop_oneof![uuid, "\\PC{1,40}".prop_map(|text| EventId::new(&text).unwrap())]
}

fn corr() -> impl Strategy<Value = Option<Corr>> {
    of(".{0,20}".prop_map(|text| Corr::new(&text).unwrap()))
}

fn json() -> impl Strategy<Value = serde_json::Value> {
    let leaf = prop_oneof![
        Just(serde_json::Value::Null),
        any::<bool>().prop_map(Into::into),
        any::<i64>().prop_map(Into::into),
        any::<f64>().prop_map(Into::into),
        ".{0,20}".prop_map(Into::into),
    ];
    leaf.prop_recursive(4, 24, 5, |inner| {
        prop_oneof![
            vec(inner.clone(), 0..5).prop_map(Into::into),
            vec((".{0,8}", inner), 0..5).prop_map(|members| members.into_iter().collect()),
        ]
    })
}

fn event() -> impl Strategy<Value = NewEvent> {
    let key = of(".{1,20}".prop_map(|key| Key::new(&key).unwrap()));
    let headers = vec((".{0,8}", ".{0,8}"), 0..3).prop_map(|all| Headers::new(all).unwrap());
    let labels = (vec(".{0,8}", 0..3), vec(id(), 0..3), of(".{0,8}"));
    (json(), any::<bool>(), of(id()), of(any::<u64>().prop_map(Timestamp)), key, headers, labels)
        .prop_map(|(json, pretty, id, ts, key, headers, (tags, caused_by, sid))| {
            let to_vec = if pretty { serde_json::to_vec_pretty } else { serde_json::to_vec };
            let payload = Payload::parse(to_vec(&json).unwrap().into()).unwrap();
            NewEvent { payload, id, ts, key, headers, caused_by, tags, sid }
        })
}

fn options() -> impl Strategy<Value = SubscribeOptions> {
    let from = prop_oneof![
        Just(StartFrom::Latest),
        Just(StartFrom::Earliest),
        any::<u64>().prop_map(|ts| StartFrom::Ts(Timestamp(ts))),
        id().prop_map(StartFrom::AfterId),
    ];
    (from, of(1_u32..=10_000), of(100_u64..=43_200_000), of(1_u32..=1000)).prop_map(
        |(from, max_in_flight, ack_timeout_ms, max_attempts)| SubscribeOptions {
            from,
            max_in_flight,
            ack_timeout_ms,
            max_attempts,
        },
    )
}

fn client_op() -> impl Strategy<Value = ClientOp> {
    let membership = || (topic(), group()).prop_map(|(topic, group)| Membership { topic, group });
    let events = prop_oneof![
        event().prop_map(PublishEvents::One),
        vec(event(), 1..4).prop_map(PublishEvents::Many),
    ];
    let ids = || prop_oneof![id().prop_map(Ids::One), vec(id(), 1..5).prop_map(Ids::Many)];
    let ttl = || of(1000_u64..=31_536_000_000);
    let mark = of(ttl().prop_map(|ttl_ms| AckMark { ttl_ms }));
    let lease = || (topic(), group(), id());
    prop_oneof![
        proptest::option::of(".{0,30}")
            .prop_map(|token| ClientOp::Auth(Auth { token: token.map(Token::new) })),
        (topic(), events).prop_map(|(topic, events)| ClientOp::Publish(Publish { topic, events })),
        (topic(), group(), options())
            .prop_map(|(topic, group, opts)| ClientOp::Subscribe(Subscribe { topic, group, opts })),
        membership().prop_map(ClientOp::Unsubscribe),
        membership().prop_map(ClientOp::Pause),
        membership().prop_map(ClientOp::Resume),
        (topic(), group(), ids(), mark, of(vec((topic(), event()), 0..3))).prop_map(
            |(topic, group, ids, mark, publish)| {
                ClientOp::Ack(Ack { topic, group, ids, mark, publish })
            }
        ),
        (topic(), group(), ids()).prop_map(|(topic, group, ids)| ClientOp::Seen(Seen {
            topic,
            group,
            ids
        })),
        (topic(), group(), ids(), ttl()).prop_map(|(topic, group, ids, ttl_ms)| {
            ClientOp::Mark(Mark { topic, group, ids, ttl_ms })
        }),
        (topic(), group(), ids(), of(".{0,40}"), after_nack()).prop_map(
            |(topic, group, ids, reason, next)| {
                ClientOp::Nack(Nack { topic, group, ids, reason, next })
            }
        ),
        (lease(), 0_u64..=43_200_000).prop_map(|((topic, group, id), extend_ms)| {
            ClientOp::ModAck(ModAck { topic, group, id, extend_ms })
        }),
    ]
}

fn after_nack() -> impl Strategy<Value = AfterNack> {
    prop_oneof![
        Just(AfterNack::BackOff),
        (0_u64..=86_400_000).prop_map(AfterNack::DelayMs),
        Just(AfterNack::Dead),
    ]
}

fn client_frame() -> impl Strategy<Value = ClientFrame> {
    (corr(), client_op()).prop_map(|(corr, op)| ClientFrame { corr, op })
}

fn server_frame() -> impl Strategy<Value = ServerFrame> {
    let published = || {
        (id(), any::<u64>(), any::<bool>()).prop_map(|(id, seq, duplicate)| Published {
            id,
            seq: Seq(seq),
            duplicate,
        })
    };
    let outcome = prop_oneof![
        Just(Outcome::Done),
        Just(Outcome::Stale),
        vec(id(), 0..4).prop_map(Outcome::Seen),
        published().prop_map(Outcome::Published),
        vec(published(), 0..4).prop_map(Outcome::Results),
        (1..=u32::MAX, any::<bool>()).prop_map(|(max_attempts, created)| {
            Outcome::Subscribed(JoinedGroup { max_attempts, created })
        }),
    ];
    let event = vec((".{0,8}", json()), 0..4).prop_map(|members| {
        let object: serde_json::Value = members.into_iter().collect();
        Bytes::from(serde_json::to_vec(&object).unwrap())
    });
    prop_oneof![
        (corr(), outcome).prop_map(|(corr, outcome)| ServerFrame::Ok { corr, outcome }),
        (corr(), prop::sample::select(ErrorCode::ALL), ".{0,40}", of(any::<u64>())).prop_map(
            |(corr, code, msg, retry_after_ms)| ServerFrame::Err {
                corr,
                code,
                msg,
                retry_after_ms
            }
        ),
        (topic(), group(), event, 1_u32.., any::<u64>()).prop_map(
            |(topic, group, event, attempt, ack_deadline_ms)| ServerFrame::Event {
                topic,
                group,
                event,
                attempt,
                ack_deadline_ms
            }
        ),
    ]
}

/// Parses `text` as either kind of frame; if it is accepted, checks that it round-trips.
fn check_any_input(text: &Bytes) -> Result<(), TestCaseError> {
    if let Ok(frame) = ClientFrame::parse(text, &FrameLimits::default()) {
        prop_assert_eq!(parse(&written(&frame)).unwrap(), frame);
    }
    if let Ok(frame) = ServerFrame::parse(text) {
        let mut out = Vec::new();
        frame.write(&mut out);
        prop_assert_eq!(ServerFrame::parse(&out.into()).unwrap(), frame);
    }
    Ok(())
}

proptest! {
    #[test]
    fn a_client_frame_round_trips(frame in client_frame()) {
        let text = written(&frame);
        prop_assert!(serde_json::from_str::<serde_json::Value>(&text).is_ok(), "{}", text);
        prop_assert!(!text.contains('\n'));
        prop_assert!(ClientOp::NAMES.contains(&frame.op.name()));
        prop_assert_eq!(parse(&text).unwrap(), frame);
    }

    #[test]
    fn a_server_frame_round_trips(frame in server_frame()) {
        let mut out = Vec::new();
        frame.write(&mut out);
        let json: serde_json::Value = serde_json::from_slice(&out).unwrap();
        prop_assert!(ServerFrame::NAMES.contains(&json["op"].as_str().unwrap()));
        prop_assert_eq!(ServerFrame::parse(&out.into()).unwrap(), frame);
    }

    #[test]
    fn pretty_printing_does_not_change_a_frame(frame in client_frame()) {
        // Payloads preserve their white space, so operations with payloads are excluded.
        prop_assume!(!matches!(&frame.op, ClientOp::Publish(_) | ClientOp::Ack(_)));
        let value: serde_json::Value = serde_json::from_str(&written(&frame)).unwrap();
        prop_assert_eq!(parse(&serde_json::to_string_pretty(&value).unwrap()).unwrap(), frame);
    }

    #[test]
    fn accepts_or_refuses_any_bytes_without_panicking(bytes in vec(any::<u8>(), 0..200)) {
        check_any_input(&bytes.into())?;
    }

    #[test]
    fn accepts_or_refuses_corrupted_frames_without_panicking(
        frame in client_frame(), answer in server_frame(), cut in any::<prop::sample::Index>(),
        changes in vec((any::<prop::sample::Index>(), any::<u8>()), 0..4),
    ) {
        let mut answer_bytes = Vec::new();
        answer.write(&mut answer_bytes);
        for mut bytes in [written(&frame).into_bytes(), answer_bytes] {
            check_any_input(&Bytes::copy_from_slice(&bytes[..cut.index(bytes.len())]))?;
            for (at, byte) in &changes {
                let at = at.index(bytes.len());
                bytes[at] = *byte;
            }
            check_any_input(&bytes.into())?;
        }
    }
}
