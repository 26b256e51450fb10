use prombus_proto::ErrorCode;
use prombus_proto::frame::EndReason;

use super::Command;
use super::harness::{Harness, membership, ops};
use super::subscriber::AckMode;
use crate::Error;
use crate::consuming::handler::Handled;

fn published(seq: u64) -> String {
    format!(r#"{{"op":"OK","id":"e{seq}","seq":{seq}}}"#)
}

#[test]
fn assigns_answers_to_frames_in_order() {
    let mut harness = Harness::connected();
    let mut answers: Vec<_> = ["a", "b"].map(|frame| harness.publish(frame, None)).into();
    assert_eq!(harness.sent(), ["a", "b"]);
    assert_eq!(harness.room(), 98);
    harness.receive(&published(7)).unwrap();
    assert!(format!("{:?}", answers[0].try_recv().unwrap()).contains("e7"));
    assert!(answers[1].try_recv().is_err());
    assert_eq!(harness.room(), 99);
    harness.refuse("forbidden", "");
    let error = answers[1].try_recv().unwrap().unwrap_err();
    assert_eq!(error.code(), Some(ErrorCode::Forbidden));
    let unrequested = harness.receive(&published(8));
    assert!(matches!(unrequested, Err(Error::NotUnderstood(_))));
}

#[test]
fn sends_unanswered_requests_first_after_a_reconnect() {
    let mut harness = Harness::connected();
    let mut first = harness.publish("a", None);
    let _others = ["b", "c"].map(|frame| harness.publish(frame, None));
    assert_eq!(harness.sent(), ["a", "b", "c"]);
    harness.receive(&published(1)).unwrap();
    first.try_recv().unwrap().unwrap();
    harness.session.disconnected();
    let _late = harness.publish("d", None);
    assert!(harness.sent().is_empty());
    harness.session.connected();
    assert_eq!(harness.sent(), ["b", "c", "d"]);
    harness.reconnect();
    assert_eq!(harness.sent(), ["b", "c", "d"]);
}

#[test]
fn reports_or_retries_every_error_code() {
    for code in ErrorCode::ALL {
        let mut harness = Harness::connected();
        let mut answer = harness.publish("a", None);
        assert_eq!(harness.sent(), ["a"]);
        harness.refuse(code.as_str(), r#","retry_after_ms":10"#);
        if code.is_retryable() {
            assert!(answer.try_recv().is_err() && harness.sent().is_empty(), "{code}");
            assert!(harness.session.next_wake(harness.now).is_some());
            harness.at(10);
            assert_eq!(harness.sent(), ["a"], "{code}");
        } else {
            let error = answer.try_recv().unwrap().unwrap_err();
            assert_eq!(error.code(), Some(*code));
            assert!(!error.is_retryable());
        }
    }
}

#[test]
fn reports_a_rate_limit_that_never_admits_the_frame() {
    let mut harness = Harness::connected();
    let mut answer = harness.publish("a", None);
    harness.sent();
    harness.refuse("rate_limited", "");
    let error = answer.try_recv().unwrap().unwrap_err();
    assert_eq!((error.code(), error.retry_after()), (Some(ErrorCode::RateLimited), None));
}

#[test]
fn waits_after_a_rate_limit_and_then_speeds_up() {
    let mut harness = Harness::connected();
    let _answers = ["a", "b", "c"].map(|frame| harness.publish(frame, None));
    assert_eq!(harness.sent(), ["a", "b", "c"]);
    for _ in 0..3 {
        harness.refuse("rate_limited", r#","retry_after_ms":50"#);
    }
    assert!(harness.sent().is_empty());
    harness.at(50);
    assert_eq!(harness.sent(), ["a"]);
    harness.receive(&published(1)).unwrap();
    assert_eq!(harness.sent(), ["b", "c"]);
}

#[test]
fn retries_while_storage_is_unavailable() {
    let mut harness = Harness::connected();
    let _answer = harness.publish("a", None);
    let mut now = 0;
    for _ in 0..10 {
        assert_eq!(harness.sent(), ["a"]);
        harness.refuse("storage_unavailable", "");
        assert!(harness.sent().is_empty());
        now += 1000;
        harness.at(now);
    }
}

#[test]
fn expires_requests_and_does_not_send_them_again() {
    let mut harness = Harness::connected();
    let mut late = harness.publish("a", Some(100));
    let mut other = harness.publish("b", None);
    assert_eq!(harness.sent(), ["a", "b"]);
    assert_eq!(
        harness.session.next_wake(harness.now),
        Some(harness.now + std::time::Duration::from_millis(100))
    );
    harness.at(100);
    assert_eq!(late.try_recv().unwrap().unwrap_err(), Error::TimedOut);
    // The late answer still belongs to the expired request.
    harness.receive(&published(1)).unwrap();
    harness.receive(&published(2)).unwrap();
    assert!(format!("{:?}", other.try_recv().unwrap()).contains("e2"));
    let mut never = harness.publish("c", Some(100));
    harness.sent();
    harness.at(300);
    assert_eq!(never.try_recv().unwrap().unwrap_err(), Error::TimedOut);
    harness.reconnect();
    assert!(harness.sent().is_empty());
    assert_eq!(harness.room(), 100);
}

#[test]
fn authenticates_before_anything_else() {
    let mut harness = Harness::new(Some("secret"));
    let _answer = harness.publish("a", None);
    let auth = harness.session.connected().unwrap();
    assert_eq!(auth.as_str(), r#"{"op":"AUTH","token":"secret"}"#);
    assert!(harness.sent().is_empty() && !harness.session.is_ready());
    harness.ok();
    assert_eq!(harness.sent(), ["a"]);
    harness.session.disconnected();
    harness.session.connected().unwrap();
    let refused = harness.receive(r#"{"op":"ERR","code":"bad_token","msg":"expired"}"#);
    assert_eq!(refused.unwrap_err().code(), Some(ErrorCode::BadToken));
}

#[test]
fn reports_why_the_client_ended() {
    let mut harness = Harness::connected();
    let mut subscribed = harness.subscribe(AckMode::Plain, 1, 1);
    let mut answers = ["a", "b"].map(|frame| harness.publish(frame, None));
    harness.session.next_frame(harness.now);
    let error = Error::Closed { code: 1002, reason: "no".to_owned() };
    harness.session.end(&error);
    for answer in &mut answers {
        assert_eq!(answer.try_recv().unwrap().unwrap_err(), error);
    }
    assert_eq!(subscribed.started.try_recv().unwrap().unwrap_err(), error);
    assert_eq!(*subscribed.ended.borrow(), Some(Err(error)));
    assert_eq!(harness.room(), 100);
}

#[test]
fn a_subscription_that_the_server_ends_reports_why() {
    let mut harness = Harness::connected();
    let first = harness.subscribed(AckMode::Plain, 10, 1);
    harness.event("a").unwrap();
    assert_eq!(harness.started(), ["a"]);
    harness.handled("a", Handled::Done);
    assert_eq!(ops(&harness.sent()), ["ACK"]);
    harness.receive(r#"{"op":"ENDED","topic":"t","group":"g","reason":"topic_deleted"}"#).unwrap();
    let ended = first.ended.borrow().clone().expect("it has ended");
    let Err(Error::SubscriptionEnded { reason, .. }) = ended else { panic!("{ended:?}") };
    assert_eq!(reason, EndReason::TopicDeleted);
    // A new subscription is not confused by the answer to the old one.
    let mut second = harness.subscribe(AckMode::Plain, 10, 1);
    assert_eq!(ops(&harness.sent()), ["SUBSCRIBE"]);
    harness.refuse("not_subscribed", "");
    assert!(second.started.try_recv().is_err(), "the ACK was refused, not the SUBSCRIBE");
    harness.ok();
    second.started.try_recv().unwrap().unwrap();
    // Neither is anyone by an end that is none of theirs, or of a newer kind.
    harness
        .receive(r#"{"op":"ENDED","topic":"t","group":"other","reason":"topic_deleted"}"#)
        .unwrap();
    assert!(second.ended.borrow().is_none());
    harness.receive(r#"{"op":"ENDED","topic":"t","group":"g","reason":"too_sunny"}"#).unwrap();
    assert!(matches!(*second.ended.borrow(), Some(Err(Error::SubscriptionEnded { .. }))));
    // It does not begin again by itself.
    harness.reconnect();
    assert!(harness.sent().is_empty());
}

#[test]
fn a_subscription_that_was_about_to_stop_ends_without_an_error() {
    let mut harness = Harness::connected();
    let subscribed = harness.subscribed(AckMode::Plain, 10, 1);
    harness.session.command(Command::Stop(membership()));
    assert_eq!(ops(&harness.sent()), ["PAUSE"]);
    harness.ok();
    assert_eq!(ops(&harness.sent()), ["UNSUBSCRIBE"]);
    harness.receive(r#"{"op":"ENDED","topic":"t","group":"g","reason":"group_deleted"}"#).unwrap();
    assert_eq!(*subscribed.ended.borrow(), Some(Ok(())));
    harness.refuse("not_subscribed", "");
}
