use std::time::Duration;

use prombus_proto::{ErrorCode, NewEvent, Payload, Topic};
use tokio::sync::oneshot;

use super::super::Command;
use super::super::harness::{Scene, frame, ops, which};
use super::*;

const MARKED: Form = Form::Marked(Duration::from_secs(60));
const TRANSFORMED: Form = Form::Transformed(Duration::from_secs(60));

fn failed(reason: &str) -> Handled {
    Handled::Failed { reason: reason.to_owned(), delay: Some(Duration::from_millis(5)) }
}

fn produced() -> Handled {
    let event = NewEvent::of(Payload::of(&7).unwrap());
    Handled::Produced(vec![(Topic::new("u").unwrap(), event)])
}

#[test]
fn what_is_done_together_is_acknowledged_together() {
    let mut scene = Scene::connected();
    scene.followed(Form::Plain, 10, 3);
    for id in ["a", "b", "c", "d"] {
        scene.event(id).unwrap();
    }
    assert_eq!(scene.started(), ["a", "b", "c"]);
    scene.handled("a", Handled::Done);
    scene.handled("c", Handled::Done);
    scene.handled("b", failed("no"));
    let nack = frame("NACK", r#","id":"b","reason":"no","delay_ms":5"#);
    assert_eq!(scene.sent(), [nack, frame("ACK", r#","ids":["a","c"]"#)]);
    assert_eq!(scene.started(), ["d"]);
    scene.handled("d", Handled::Done);
    assert_eq!(scene.sent(), [frame("ACK", r#","id":"d""#)]);
}

#[test]
fn an_acknowledgement_that_cannot_be_stored_is_sent_again() {
    let mut scene = Scene::connected();
    scene.followed(Form::Plain, 10, 1);
    scene.event("a").unwrap();
    scene.started();
    scene.handled("a", Handled::Done);
    for round in 1..4 {
        // The lease is kept meanwhile.
        let sent = ops(&scene.sent());
        assert_eq!(sent.last().unwrap(), "ACK");
        for op in sent {
            if op == "ACK" { scene.refuse("storage_unavailable", "") } else { scene.ok() }
        }
        assert!(scene.sent().is_empty());
        scene.at(round * 1000);
    }
}

#[test]
fn a_lease_is_extended_while_the_event_is_here_and_its_loss_is_told() {
    let mut scene = Scene::connected();
    scene.followed(Form::Plain, 10, 1);
    scene.event("a").unwrap();
    scene.event("b").unwrap();
    let (_, delivery) = scene.started_with_deliveries().remove(0);
    let next = scene.session.next_wake(scene.now).unwrap();
    assert!(next < scene.now + Duration::from_millis(500), "before a half of the lease is over");
    scene.at(400);
    let mut extended = scene.sent();
    extended.sort_unstable();
    let modack = |id| frame("MODACK", &format!(r#","id":"{id}","extend_ms":1000"#));
    assert_eq!(extended, [modack("a"), modack("b")]);
    assert!(scene.sent().is_empty());
    for _ in 0..2 {
        scene.refuse("lease_lost", "");
    }
    assert!(delivery.lease.is_lost());
    // Neither is ours any more, whatever becomes of it.
    scene.handled("a", failed("late"));
    assert!(scene.sent().is_empty() && scene.started().is_empty());
    // It may come again.
    scene.event("b").unwrap();
    assert_eq!(scene.started(), ["b"]);
}

#[test]
fn what_runs_when_the_connection_is_lost_is_adopted_by_the_next() {
    let mut scene = Scene::connected();
    scene.followed(Form::Plain, 10, 2);
    for id in ["a", "b", "c"] {
        scene.event(id).unwrap();
    }
    let started = scene.started_with_deliveries();
    scene.reconnect();
    assert!(started.iter().all(|(_, delivery)| delivery.lease.is_lost()));
    scene.handled("b", Handled::Done);
    assert_eq!(ops(&scene.sent()), ["SUBSCRIBE"]);
    scene.ok();
    for id in ["a", "b", "c"] {
        scene.event(id).unwrap();
    }
    assert!(!started[0].1.lease.is_lost());
    // What ran goes on, what was done is said, and what had not begun begins.
    assert_eq!(scene.sent(), [frame("ACK", r#","id":"b""#)]);
    assert_eq!(scene.started(), ["c"]);
    scene.handled("a", Handled::Done);
    assert_eq!(scene.sent(), [frame("ACK", r#","id":"a""#)]);
}

#[test]
fn paused_it_is_not_made_again_before_it_is_resumed() {
    let mut scene = Scene::connected();
    scene.followed(Form::Plain, 10, 1);
    let pause = |scene: &mut Scene, is_paused| {
        let (reply, mut answer) = oneshot::channel();
        scene.session.command(Command::SetPaused { which: which(), is_paused, reply });
        let sent = scene.sent();
        for _ in &sent {
            scene.ok();
        }
        answer.try_recv().unwrap().unwrap();
        ops(&sent)
    };
    assert_eq!(pause(&mut scene, true), ["PAUSE"]);
    assert!(pause(&mut scene, true).is_empty());
    scene.reconnect();
    assert!(scene.sent().is_empty());
    assert_eq!(pause(&mut scene, false), ["SUBSCRIBE"]);
    assert_eq!(pause(&mut scene, true), ["PAUSE"]);
    assert_eq!(pause(&mut scene, false), ["RESUME"]);
}

#[test]
fn stopping_lets_what_runs_finish_and_begins_nothing() {
    let mut scene = Scene::connected();
    let followed = scene.followed(Form::Plain, 10, 1);
    scene.event("a").unwrap();
    scene.event("b").unwrap();
    assert_eq!(scene.started(), ["a"]);
    scene.session.command(Command::Stop(which()));
    assert_eq!(ops(&scene.sent()), ["PAUSE"]);
    scene.event("c").unwrap();
    scene.ok();
    assert!(scene.started().is_empty() && scene.sent().is_empty());
    scene.handled("a", Handled::Done);
    assert_eq!(scene.sent(), [frame("ACK", r#","id":"a""#)]);
    scene.ok();
    assert!(followed.ended.borrow().is_none());
    assert_eq!(ops(&scene.sent()), ["UNSUBSCRIBE"]);
    scene.ok();
    assert_eq!(*followed.ended.borrow(), Some(Ok(())));
}

#[test]
fn a_subscription_that_is_refused_ends_and_one_that_cannot_be_now_is_tried_again() {
    let mut scene = Scene::connected();
    let mut followed = scene.follow(Form::Plain, 10, 1);
    assert_eq!(ops(&scene.sent()), ["SUBSCRIBE"]);
    scene.refuse("storage_unavailable", "");
    assert!(scene.sent().is_empty());
    scene.at(1000);
    assert_eq!(ops(&scene.sent()), ["SUBSCRIBE"]);
    scene.refuse("forbidden", "");
    let error = followed.started.try_recv().unwrap().unwrap_err();
    assert_eq!(error.code(), Some(ErrorCode::Forbidden));
    assert_eq!(*followed.ended.borrow(), Some(Err(error)));
    scene.follow(Form::Plain, 10, 1);
    assert_eq!(ops(&scene.sent()), ["SUBSCRIBE"]);
}

#[test]
fn a_server_that_lends_more_than_was_asked_for_is_not_believed() {
    let mut scene = Scene::connected();
    scene.followed(Form::Plain, 2, 1);
    for id in ["a", "b", "c"] {
        scene.event(id).unwrap();
    }
    assert!(matches!(scene.event("d"), Err(Error::NotUnderstood(_))));
}

#[test]
fn what_is_acknowledged_makes_room_before_the_server_says_so() {
    let mut scene = Scene::connected();
    scene.followed(Form::Plain, 2, 1);
    for id in ["a", "b", "c", "d"] {
        scene.event(id).unwrap();
        assert_eq!(scene.started(), [id]);
        scene.handled(id, Handled::Done);
        assert_eq!(ops(&scene.sent()), ["ACK"]);
    }
    for id in ["e", "f", "g"] {
        scene.event(id).unwrap();
    }
    assert!(matches!(scene.event("h"), Err(Error::NotUnderstood(_))));
}

#[test]
fn what_came_together_is_asked_for_together_and_marked_with_its_acknowledgement() {
    let mut scene = Scene::connected();
    scene.followed(MARKED, 10, 5);
    for id in ["a", "b", "c"] {
        scene.event(id).unwrap();
    }
    assert!(scene.started().is_empty());
    assert_eq!(scene.sent(), [frame("SEEN", r#","ids":["a","b","c"]"#)]);
    scene.receive(r#"{"op":"OK","seen":["b"]}"#).unwrap();
    assert_eq!(scene.started(), ["a", "c"]);
    assert_eq!(scene.sent(), [frame("ACK", r#","id":"b""#)]);
    scene.handled("a", Handled::Done);
    scene.handled("c", failed("no"));
    let nack = frame("NACK", r#","id":"c","reason":"no","delay_ms":5"#);
    assert_eq!(scene.sent(), [nack, frame("ACK", r#","id":"a","mark":{"ttl_ms":60000}"#)]);
}

#[test]
fn after_a_lost_connection_marks_come_before_anything_else() {
    let mut scene = Scene::connected();
    scene.followed(MARKED, 10, 5);
    for id in ["a", "b"] {
        scene.event(id).unwrap();
    }
    scene.sent();
    scene.receive(r#"{"op":"OK","seen":[]}"#).unwrap();
    assert_eq!(scene.started(), ["a", "b"]);
    scene.handled("a", Handled::Done);
    assert_eq!(ops(&scene.sent()), ["ACK"]);
    // The answer is lost. So is the connection when the other one is done.
    scene.session.disconnected();
    scene.handled("b", Handled::Done);
    scene.session.connected();
    let mark = scene.sent();
    assert_eq!(ops(&mark), ["MARK"]);
    assert!(mark[0].contains("\"a\"") && mark[0].contains("\"b\""), "{mark:?}");
    scene.refuse("rate_limited", r#","retry_after_ms":20"#);
    assert!(scene.sent().is_empty());
    scene.at(20);
    assert_eq!(ops(&scene.sent()), ["MARK"]);
    scene.ok();
    assert_eq!(ops(&scene.sent()), ["SUBSCRIBE"]);
    scene.ok();
    // The server knows now.
    scene.event("a").unwrap();
    assert_eq!(ops(&scene.sent()), ["SEEN"]);
}

#[test]
fn marks_that_are_too_many_for_the_limit_are_made_in_parts_and_none_is_forgotten() {
    let mut scene = Scene::connected();
    scene.followed(MARKED, 10, 5);
    let ids = ["a", "b", "c"];
    for id in ids {
        scene.event(id).unwrap();
    }
    scene.sent();
    scene.receive(r#"{"op":"OK","seen":[]}"#).unwrap();
    scene.started();
    scene.session.disconnected();
    for id in ids {
        scene.handled(id, Handled::Done);
    }
    scene.session.connected();
    assert_eq!(ops(&scene.sent()), ["MARK"]);
    // No time helps: it is more than the bucket ever holds.
    scene.refuse("rate_limited", "");
    let mut marked = Vec::new();
    for _ in ids {
        let mark = scene.sent();
        assert_eq!(ops(&mark), ["MARK"]);
        marked.extend(ids.into_iter().filter(|id| mark[0].contains(&format!("\"id\":\"{id}\""))));
        scene.ok();
    }
    marked.sort_unstable();
    assert_eq!(marked, ids);
    assert_eq!(ops(&scene.sent()), ["SUBSCRIBE"]);
}

#[test]
fn what_a_handler_answers_is_published_with_the_acknowledgement() {
    let mut scene = Scene::connected();
    scene.followed(TRANSFORMED, 10, 5);
    let ids = ["a", "b", "c", "d"];
    for id in ids {
        scene.event(id).unwrap();
    }
    scene.sent();
    scene.receive(r#"{"op":"OK","seen":[]}"#).unwrap();
    assert_eq!(scene.started(), ids);
    let ack = |id: &str| {
        let publish = r#""mark":{"ttl_ms":60000},"publish":[{"topic":"u","payload":7}]"#;
        frame("ACK", &format!(r#","id":"{id}",{publish}"#))
    };
    for id in ids {
        scene.handled(id, produced());
        assert_eq!(scene.sent(), [ack(id)]);
    }
    scene.receive(r#"{"op":"OK","results":[{"id":"x","seq":1}]}"#).unwrap();
    assert!(scene.sent().is_empty());
    // Marked meanwhile: it is done.
    scene.refuse("conflict", "");
    assert_eq!(scene.sent(), [frame("ACK", r#","id":"b""#)]);
    // Somebody else has it.
    scene.refuse("lease_lost", "");
    assert!(scene.sent().is_empty());
    scene.refuse("rate_limited", r#","retry_after_ms":30"#);
    assert!(scene.sent().is_empty());
    scene.at(30);
    assert_eq!(scene.sent(), [ack("d")]);
    scene.ok();
    scene.refuse("forbidden", "");
    assert_eq!(scene.sent(), [frame("NACK", r#","id":"d","reason":"forbidden: because""#)]);
}
