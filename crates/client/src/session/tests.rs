use prombus_proto::ErrorCode;

use super::harness::Scene;
use crate::Error;

fn published(seq: u64) -> String {
    format!(r#"{{"op":"OK","id":"e{seq}","seq":{seq}}}"#)
}

#[test]
fn answers_are_to_frames_in_their_order() {
    let mut scene = Scene::connected();
    let mut answers: Vec<_> = ["a", "b"].map(|frame| scene.publish(frame, None)).into();
    assert_eq!(scene.sent(), ["a", "b"]);
    assert_eq!(scene.room(), 98);
    scene.receive(&published(7)).unwrap();
    assert!(format!("{:?}", answers[0].try_recv().unwrap()).contains("e7"));
    assert!(answers[1].try_recv().is_err());
    assert_eq!(scene.room(), 99);
    scene.refuse("forbidden", "");
    let error = answers[1].try_recv().unwrap().unwrap_err();
    assert_eq!(error.code(), Some(ErrorCode::Forbidden));
    let nothing = scene.receive(&published(8));
    assert!(matches!(nothing, Err(Error::NotUnderstood(_))));
}

#[test]
fn what_was_not_answered_is_sent_again_first_and_in_order() {
    let mut scene = Scene::connected();
    let mut first = scene.publish("a", None);
    let _others = ["b", "c"].map(|frame| scene.publish(frame, None));
    assert_eq!(scene.sent(), ["a", "b", "c"]);
    scene.receive(&published(1)).unwrap();
    first.try_recv().unwrap().unwrap();
    scene.session.disconnected();
    let _late = scene.publish("d", None);
    assert!(scene.sent().is_empty());
    scene.session.connected();
    assert_eq!(scene.sent(), ["b", "c", "d"]);
    scene.reconnect();
    assert_eq!(scene.sent(), ["b", "c", "d"]);
}

/// Every code is an error of its own, or is tried again where that can help.
#[test]
fn every_code_is_said_or_tried_again() {
    for code in ErrorCode::ALL {
        let mut scene = Scene::connected();
        let mut answer = scene.publish("a", None);
        assert_eq!(scene.sent(), ["a"]);
        scene.refuse(code.as_str(), r#","retry_after_ms":10"#);
        if code.is_retryable() {
            assert!(answer.try_recv().is_err() && scene.sent().is_empty(), "{code}");
            assert!(scene.session.next_wake(scene.now).is_some());
            scene.at(10);
            assert_eq!(scene.sent(), ["a"], "{code}");
        } else {
            let error = answer.try_recv().unwrap().unwrap_err();
            assert_eq!(error.code(), Some(*code));
            assert!(!error.is_retryable());
        }
    }
}

#[test]
fn a_rate_that_no_time_helps_is_said() {
    let mut scene = Scene::connected();
    let mut answer = scene.publish("a", None);
    scene.sent();
    scene.refuse("rate_limited", "");
    let error = answer.try_recv().unwrap().unwrap_err();
    assert_eq!((error.code(), error.retry_after()), (Some(ErrorCode::RateLimited), None));
}

#[test]
fn too_fast_it_waits_and_then_goes_one_by_one() {
    let mut scene = Scene::connected();
    let _answers = ["a", "b", "c"].map(|frame| scene.publish(frame, None));
    assert_eq!(scene.sent(), ["a", "b", "c"]);
    for _ in 0..3 {
        scene.refuse("rate_limited", r#","retry_after_ms":50"#);
    }
    assert!(scene.sent().is_empty());
    scene.at(50);
    assert_eq!(scene.sent(), ["a"]);
    scene.receive(&published(1)).unwrap();
    assert_eq!(scene.sent(), ["b", "c"]);
}

#[test]
fn a_failing_storage_is_tried_again_with_longer_waits() {
    let mut scene = Scene::connected();
    let _answer = scene.publish("a", None);
    let mut now = 0;
    for _ in 0..10 {
        assert_eq!(scene.sent(), ["a"]);
        scene.refuse("storage_unavailable", "");
        assert!(scene.sent().is_empty());
        now += 1000;
        scene.at(now);
    }
}

#[test]
fn what_takes_too_long_is_not_waited_for_and_not_sent_again() {
    let mut scene = Scene::connected();
    let mut late = scene.publish("a", Some(100));
    let mut other = scene.publish("b", None);
    assert_eq!(scene.sent(), ["a", "b"]);
    assert_eq!(
        scene.session.next_wake(scene.now),
        Some(scene.now + std::time::Duration::from_millis(100))
    );
    scene.at(100);
    assert_eq!(late.try_recv().unwrap().unwrap_err(), Error::TimedOut);
    // Its answer is still its own.
    scene.receive(&published(1)).unwrap();
    scene.receive(&published(2)).unwrap();
    assert!(format!("{:?}", other.try_recv().unwrap()).contains("e2"));
    let mut never = scene.publish("c", Some(100));
    scene.sent();
    scene.at(300);
    assert_eq!(never.try_recv().unwrap().unwrap_err(), Error::TimedOut);
    scene.reconnect();
    assert!(scene.sent().is_empty());
    assert_eq!(scene.room(), 100);
}

#[test]
fn a_token_is_told_before_anything_else() {
    let mut scene = Scene::new(Some("secret"));
    let _answer = scene.publish("a", None);
    let auth = scene.session.connected().unwrap();
    assert_eq!(auth.as_str(), r#"{"op":"AUTH","token":"secret"}"#);
    assert!(scene.sent().is_empty() && !scene.session.is_ready());
    scene.ok();
    assert_eq!(scene.sent(), ["a"]);
    scene.session.disconnected();
    scene.session.connected().unwrap();
    let refused = scene.receive(r#"{"op":"ERR","code":"bad_token","msg":"expired"}"#);
    assert_eq!(refused.unwrap_err().code(), Some(ErrorCode::BadToken));
}

#[test]
fn at_the_end_everybody_hears_why() {
    let mut scene = Scene::connected();
    let mut followed = scene.follow(super::subscriber::Form::Plain, 1, 1);
    let mut answers = ["a", "b"].map(|frame| scene.publish(frame, None));
    scene.session.next_frame(scene.now);
    let error = Error::Closed { code: 1002, reason: "no".to_owned() };
    scene.session.end(&error);
    for answer in &mut answers {
        assert_eq!(answer.try_recv().unwrap().unwrap_err(), error);
    }
    assert_eq!(followed.started.try_recv().unwrap().unwrap_err(), error);
    assert_eq!(*followed.ended.borrow(), Some(Err(error)));
    assert_eq!(scene.room(), 100);
}
