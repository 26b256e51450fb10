use std::time::Duration;

use prombus_proto::{ErrorCode, NewEvent, Payload, Topic};
use tokio::sync::oneshot;

use super::super::Command;
use super::super::harness::{Harness, frame, membership, ops};
use super::*;
use crate::HandlerError;

const MARKED: AckMode = AckMode::Marked(Duration::from_secs(60));
const TRANSFORMED: AckMode = AckMode::Transformed(Duration::from_secs(60));

fn failed(reason: &str) -> Handled {
    Handled::Failed { reason: reason.to_owned(), next: AfterNack::DelayMs(5) }
}

fn produced() -> Handled {
    let event = NewEvent::of(Payload::of(&7).unwrap());
    Handled::Produced(vec![(Topic::new("u").unwrap(), event)])
}

#[test]
fn acknowledges_several_events_with_one_frame() {
    let mut harness = Harness::connected();
    harness.subscribed(AckMode::Plain, 10, 3);
    for id in ["a", "b", "c", "d"] {
        harness.event(id).unwrap();
    }
    assert_eq!(harness.started(), ["a", "b", "c"]);
    harness.handled("a", Handled::Done);
    harness.handled("c", Handled::Done);
    harness.handled("b", failed("no"));
    let nack = frame("NACK", r#","id":"b","reason":"no","delay_ms":5"#);
    assert_eq!(harness.sent(), [nack, frame("ACK", r#","ids":["a","c"]"#)]);
    assert_eq!(harness.started(), ["d"]);
    harness.handled("d", Handled::Done);
    assert_eq!(harness.sent(), [frame("ACK", r#","id":"d""#)]);
}

#[test]
fn a_rejected_event_is_nacked_as_dead_in_every_mode() {
    for mode in [AckMode::Plain, MARKED, TRANSFORMED] {
        let mut harness = Harness::connected();
        harness.subscribed(mode, 10, 1);
        harness.event("a").unwrap();
        if mode != AckMode::Plain {
            assert_eq!(harness.sent(), [frame("SEEN", r#","id":"a""#)]);
            harness.receive(r#"{"op":"OK","seen":[]}"#).unwrap();
        }
        assert_eq!(harness.started(), ["a"]);
        let rejected = HandlerError::reject("no such article");
        harness.handled("a", rejected.into());
        let nack = frame("NACK", r#","id":"a","reason":"no such article","dead":true"#);
        assert_eq!(harness.sent(), [nack]);
        harness.ok();
        assert!(harness.sent().is_empty() && harness.started().is_empty());
    }
}

#[test]
fn retries_an_acknowledgement_while_storage_is_unavailable() {
    let mut harness = Harness::connected();
    harness.subscribed(AckMode::Plain, 10, 1);
    harness.event("a").unwrap();
    harness.started();
    harness.handled("a", Handled::Done);
    for round in 1..4 {
        // The lease is extended meanwhile.
        let sent = ops(&harness.sent());
        assert_eq!(sent.last().unwrap(), "ACK");
        for op in sent {
            if op == "ACK" { harness.refuse("storage_unavailable", "") } else { harness.ok() }
        }
        assert!(harness.sent().is_empty());
        harness.at(round * 1000);
    }
}

#[test]
fn extends_leases_and_reports_their_loss() {
    let mut harness = Harness::connected();
    harness.subscribed(AckMode::Plain, 10, 1);
    harness.event("a").unwrap();
    harness.event("b").unwrap();
    let (_, delivery) = harness.started_with_deliveries().remove(0);
    let next = harness.session.next_wake(harness.now).unwrap();
    assert!(next < harness.now + Duration::from_millis(500), "before half of the lease is over");
    harness.at(400);
    let mut extended = harness.sent();
    extended.sort_unstable();
    let modack = |id| frame("MODACK", &format!(r#","id":"{id}","extend_ms":1000"#));
    assert_eq!(extended, [modack("a"), modack("b")]);
    assert!(harness.sent().is_empty());
    for _ in 0..2 {
        harness.refuse("lease_lost", "");
    }
    assert!(delivery.lease.is_lost());
    // A result without a lease is not sent.
    harness.handled("a", failed("late"));
    assert!(harness.sent().is_empty() && harness.started().is_empty());
    // The event may be delivered again.
    harness.event("b").unwrap();
    assert_eq!(harness.started(), ["b"]);
}

#[test]
fn running_handlers_take_over_the_lease_of_a_redelivery() {
    let mut harness = Harness::connected();
    harness.subscribed(AckMode::Plain, 10, 2);
    for id in ["a", "b", "c"] {
        harness.event(id).unwrap();
    }
    let started = harness.started_with_deliveries();
    harness.reconnect();
    assert!(started.iter().all(|(_, delivery)| delivery.lease.is_lost()));
    harness.handled("b", Handled::Done);
    assert_eq!(ops(&harness.sent()), ["SUBSCRIBE"]);
    harness.ok();
    for id in ["a", "b", "c"] {
        harness.event(id).unwrap();
    }
    assert!(!started[0].1.lease.is_lost());
    // `a` still runs, `b` is done and is acknowledged, `c` starts.
    assert_eq!(harness.sent(), [frame("ACK", r#","id":"b""#)]);
    assert_eq!(harness.started(), ["c"]);
    harness.handled("a", Handled::Done);
    assert_eq!(harness.sent(), [frame("ACK", r#","id":"a""#)]);
}

#[test]
fn a_paused_subscription_subscribes_again_only_when_resumed() {
    let mut harness = Harness::connected();
    harness.subscribed(AckMode::Plain, 10, 1);
    let pause = |harness: &mut Harness, is_paused| {
        let (reply, mut answer) = oneshot::channel();
        harness.session.command(Command::SetPaused { membership: membership(), is_paused, reply });
        let sent = harness.sent();
        for _ in &sent {
            harness.ok();
        }
        answer.try_recv().unwrap().unwrap();
        ops(&sent)
    };
    assert_eq!(pause(&mut harness, true), ["PAUSE"]);
    assert!(pause(&mut harness, true).is_empty());
    harness.reconnect();
    assert!(harness.sent().is_empty());
    assert_eq!(pause(&mut harness, false), ["SUBSCRIBE"]);
    assert_eq!(pause(&mut harness, true), ["PAUSE"]);
    assert_eq!(pause(&mut harness, false), ["RESUME"]);
}

#[test]
fn stopping_waits_for_running_handlers_and_starts_no_more() {
    let mut harness = Harness::connected();
    let subscribed = harness.subscribed(AckMode::Plain, 10, 1);
    harness.event("a").unwrap();
    harness.event("b").unwrap();
    assert_eq!(harness.started(), ["a"]);
    harness.session.command(Command::Stop(membership()));
    assert_eq!(ops(&harness.sent()), ["PAUSE"]);
    harness.event("c").unwrap();
    harness.ok();
    assert!(harness.started().is_empty() && harness.sent().is_empty());
    harness.handled("a", Handled::Done);
    assert_eq!(harness.sent(), [frame("ACK", r#","id":"a""#)]);
    harness.ok();
    assert!(subscribed.ended.borrow().is_none());
    assert_eq!(ops(&harness.sent()), ["UNSUBSCRIBE"]);
    harness.ok();
    assert_eq!(*subscribed.ended.borrow(), Some(Ok(())));
}

#[test]
fn retries_or_ends_a_refused_subscription() {
    let mut harness = Harness::connected();
    let mut subscribed = harness.subscribe(AckMode::Plain, 10, 1);
    assert_eq!(ops(&harness.sent()), ["SUBSCRIBE"]);
    harness.refuse("storage_unavailable", "");
    assert!(harness.sent().is_empty());
    harness.at(1000);
    assert_eq!(ops(&harness.sent()), ["SUBSCRIBE"]);
    harness.refuse("forbidden", "");
    let error = subscribed.started.try_recv().unwrap().unwrap_err();
    assert_eq!(error.code(), Some(ErrorCode::Forbidden));
    assert_eq!(*subscribed.ended.borrow(), Some(Err(error)));
    harness.subscribe(AckMode::Plain, 10, 1);
    assert_eq!(ops(&harness.sent()), ["SUBSCRIBE"]);
}

#[test]
fn rejects_more_events_than_max_in_flight() {
    let mut harness = Harness::connected();
    harness.subscribed(AckMode::Plain, 2, 1);
    for id in ["a", "b", "c"] {
        harness.event(id).unwrap();
    }
    assert!(matches!(harness.event("d"), Err(Error::NotUnderstood(_))));
}

#[test]
fn settling_events_do_not_count_as_in_flight() {
    let mut harness = Harness::connected();
    harness.subscribed(AckMode::Plain, 2, 1);
    for id in ["a", "b", "c", "d"] {
        harness.event(id).unwrap();
        assert_eq!(harness.started(), [id]);
        harness.handled(id, Handled::Done);
        assert_eq!(ops(&harness.sent()), ["ACK"]);
    }
    for id in ["e", "f", "g"] {
        harness.event(id).unwrap();
    }
    assert!(matches!(harness.event("h"), Err(Error::NotUnderstood(_))));
}

#[test]
fn looks_up_marks_in_one_frame_and_marks_with_the_acknowledgement() {
    let mut harness = Harness::connected();
    harness.subscribed(MARKED, 10, 5);
    for id in ["a", "b", "c"] {
        harness.event(id).unwrap();
    }
    assert!(harness.started().is_empty());
    assert_eq!(harness.sent(), [frame("SEEN", r#","ids":["a","b","c"]"#)]);
    harness.receive(r#"{"op":"OK","seen":["b"]}"#).unwrap();
    assert_eq!(harness.started(), ["a", "c"]);
    assert_eq!(harness.sent(), [frame("ACK", r#","id":"b""#)]);
    harness.handled("a", Handled::Done);
    harness.handled("c", failed("no"));
    let nack = frame("NACK", r#","id":"c","reason":"no","delay_ms":5"#);
    assert_eq!(harness.sent(), [nack, frame("ACK", r#","id":"a","mark":{"ttl_ms":60000}"#)]);
}

#[test]
fn marks_before_it_subscribes_again() {
    let mut harness = Harness::connected();
    harness.subscribed(MARKED, 10, 5);
    for id in ["a", "b"] {
        harness.event(id).unwrap();
    }
    harness.sent();
    harness.receive(r#"{"op":"OK","seen":[]}"#).unwrap();
    assert_eq!(harness.started(), ["a", "b"]);
    harness.handled("a", Handled::Done);
    assert_eq!(ops(&harness.sent()), ["ACK"]);
    // The answer is lost with the connection, and `b` finishes without one.
    harness.session.disconnected();
    harness.handled("b", Handled::Done);
    harness.session.connected();
    let mark = harness.sent();
    assert_eq!(ops(&mark), ["MARK"]);
    assert!(mark[0].contains("\"a\"") && mark[0].contains("\"b\""), "{mark:?}");
    harness.refuse("rate_limited", r#","retry_after_ms":20"#);
    assert!(harness.sent().is_empty());
    harness.at(20);
    assert_eq!(ops(&harness.sent()), ["MARK"]);
    harness.ok();
    assert_eq!(ops(&harness.sent()), ["SUBSCRIBE"]);
    harness.ok();
    // `a` is confirmed now, so it is looked up again.
    harness.event("a").unwrap();
    assert_eq!(ops(&harness.sent()), ["SEEN"]);
}

#[test]
fn splits_marks_that_exceed_the_rate_limit() {
    let mut harness = Harness::connected();
    harness.subscribed(MARKED, 10, 5);
    let ids = ["a", "b", "c"];
    for id in ids {
        harness.event(id).unwrap();
    }
    harness.sent();
    harness.receive(r#"{"op":"OK","seen":[]}"#).unwrap();
    harness.started();
    harness.session.disconnected();
    for id in ids {
        harness.handled(id, Handled::Done);
    }
    harness.session.connected();
    assert_eq!(ops(&harness.sent()), ["MARK"]);
    // Without a time: more than the bucket ever holds.
    harness.refuse("rate_limited", "");
    let mut marked = Vec::new();
    for _ in ids {
        let mark = harness.sent();
        assert_eq!(ops(&mark), ["MARK"]);
        marked.extend(ids.into_iter().filter(|id| mark[0].contains(&format!("\"id\":\"{id}\""))));
        harness.ok();
    }
    marked.sort_unstable();
    assert_eq!(marked, ids);
    assert_eq!(ops(&harness.sent()), ["SUBSCRIBE"]);
}

/// Marks of an ACK take tokens like those of a MARK.
#[test]
fn splits_acknowledgements_whose_marks_exceed_the_rate_limit() {
    let mut harness = Harness::connected();
    harness.subscribed(MARKED, 10, 5);
    let ids = ["a", "b", "c"];
    for id in ids {
        harness.event(id).unwrap();
    }
    harness.sent();
    harness.receive(r#"{"op":"OK","seen":[]}"#).unwrap();
    harness.started();
    for id in ids {
        harness.handled(id, Handled::Done);
    }
    assert_eq!(ops(&harness.sent()), ["ACK"]);
    // Without a time: more than the bucket ever holds.
    harness.refuse("rate_limited", "");
    let acks = harness.sent();
    let ack = |id| frame("ACK", &format!(r#","id":"{id}","mark":{{"ttl_ms":60000}}"#));
    assert_eq!(acks, ids.map(ack));
}

#[test]
fn publishes_the_output_with_the_acknowledgement() {
    let mut harness = Harness::connected();
    harness.subscribed(TRANSFORMED, 10, 5);
    let ids = ["a", "b", "c", "d"];
    for id in ids {
        harness.event(id).unwrap();
    }
    harness.sent();
    harness.receive(r#"{"op":"OK","seen":[]}"#).unwrap();
    assert_eq!(harness.started(), ids);
    let ack = |id: &str| {
        let publish = r#""mark":{"ttl_ms":60000},"publish":[{"topic":"u","payload":7}]"#;
        frame("ACK", &format!(r#","id":"{id}",{publish}"#))
    };
    for id in ids {
        harness.handled(id, produced());
        assert_eq!(harness.sent(), [ack(id)]);
    }
    harness.receive(r#"{"op":"OK","results":[{"id":"x","seq":1}]}"#).unwrap();
    assert!(harness.sent().is_empty());
    // Marked by another member meanwhile: it is done.
    harness.refuse("conflict", "");
    assert_eq!(harness.sent(), [frame("ACK", r#","id":"b""#)]);
    // Another member has it.
    harness.refuse("lease_lost", "");
    assert!(harness.sent().is_empty());
    harness.refuse("rate_limited", r#","retry_after_ms":30"#);
    assert!(harness.sent().is_empty());
    harness.at(30);
    assert_eq!(harness.sent(), [ack("d")]);
    harness.ok();
    harness.refuse("forbidden", "");
    assert_eq!(harness.sent(), [frame("NACK", r#","id":"d","reason":"forbidden: because""#)]);
}
