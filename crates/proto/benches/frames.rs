//! The cost of parsing and writing a frame, compared with `serde_json` finding the same members.

#![expect(clippy::print_stdout, clippy::unwrap_used, reason = "a program that prints figures")]

use std::hint::black_box;
use std::time::{Duration, Instant};

use bytes::Bytes;
use prombus_proto::frame::{Corr, answer};
use prombus_proto::{
    ClientFrame, Event, EventId, FrameLimits, Group, Headers, Payload, Seq, Timestamp, Topic,
};
use serde::Deserialize;
use serde_json::value::RawValue;

/// The first step of parsing with derived code: it finds the members but does not check or convert
/// their values.
#[derive(Deserialize)]
struct Derived<'a> {
    #[serde(borrow)]
    op: Option<&'a RawValue>,
    corr: Option<&'a RawValue>,
    topic: Option<&'a RawValue>,
    group: Option<&'a RawValue>,
    payload: Option<&'a RawValue>,
    opts: Option<&'a RawValue>,
    events: Option<&'a RawValue>,
    id: Option<&'a RawValue>,
    ids: Option<&'a RawValue>,
}

/// Prints the best of many short runs: on a busy machine, a long run is always interrupted.
fn nanos(name: &str, bytes: usize, mut once: impl FnMut()) {
    // `-- ACK` only measures names that contain `ACK`.
    if std::env::args().skip(1).any(|only| only != "--bench" && !name.contains(&only)) {
        return;
    }
    const CALLS: u32 = 20;
    let mut best = f64::MAX;
    let start = Instant::now();
    while start.elapsed() < Duration::from_millis(400) {
        let run_start = Instant::now();
        for _ in 0..CALLS {
            once();
        }
        best = best.min(run_start.elapsed().as_secs_f64() * 1e9 / f64::from(CALLS));
    }
    println!("{name:<44} {bytes:>7} bytes {best:>9.0} ns");
}

fn parsing(name: &str, text: &str) {
    let limits = FrameLimits::default();
    ClientFrame::parse(&Bytes::copy_from_slice(text.as_bytes()), &limits).unwrap();
    nanos(name, text.len(), || {
        // Allocates a buffer per frame, as the gateway does.
        let frame = Bytes::from(text.as_bytes().to_vec());
        drop(black_box(ClientFrame::parse(black_box(&frame), &limits)));
    });
    nanos("  of which the buffer", text.len(), || {
        drop(black_box(Bytes::from(black_box(text.as_bytes()).to_vec())));
    });
    nanos("  serde_json, only finding the members", text.len(), || {
        let members: Derived<'_> = serde_json::from_slice(black_box(text.as_bytes())).unwrap();
        black_box((members.op, members.corr, members.topic, members.group, members.payload));
        black_box((members.opts, members.events, members.id, members.ids));
    });
    nanos("  serde_json, validating only (one RawValue)", text.len(), || {
        let value: &RawValue = serde_json::from_slice(black_box(text.as_bytes())).unwrap();
        black_box(value);
    });
}

fn main() {
    let id = "0190f5e4-8d4b-7c3a-9f2e-0123456789ab";
    let payload = r#"{"pid":4711,"name":"promethean-heartbeat","host":"node-17.example","cpu":12.5,"memory":183500800,"status":"running","started_at":1700000000000}"#;
    let opts = format!(r#"{{"id":"{id}","key":"node-17"}}"#);
    let event = Event {
        id: EventId::new(id).unwrap(),
        ts: Timestamp(1_700_000_000_000),
        topic: Topic::new("heartbeat").unwrap(),
        key: None,
        headers: Headers::NONE,
        payload: Payload::parse(Bytes::from_static(payload.as_bytes())).unwrap(),
        caused_by: vec![],
        tags: vec![],
        sid: None,
    };
    let mut event_json = Vec::new();
    event.encode().write_json(Seq(1234), &mut event_json);
    println!("one event's JSON has {} bytes\n", event_json.len());

    let single =
        format!(r#"{{"op":"PUBLISH","corr":"c-12345","topic":"heartbeat","payload":{payload}}}"#);
    parsing("PUBLISH", &single);
    // Isolates the cost of finding the members: RESUME ignores the payload and reads only two names.
    let ignored =
        single.replace("PUBLISH", "RESUME").replace("\"payload\"", "\"group\":\"g\",\"payload\"");
    parsing("RESUME that carries the same payload", &ignored);
    parsing("PUBLISH with id and key", &single.replace("}}", &format!("}},\"opts\":{opts}}}")));
    let element = format!(r#"{{"payload":{payload}}}"#);
    let batch = vec![element.as_str(); 100].join(",");
    parsing(
        "PUBLISH of 100",
        &format!(r#"{{"op":"PUBLISH","topic":"heartbeat","events":[{batch}]}}"#),
    );
    parsing("ACK", &format!(r#"{{"op":"ACK","topic":"heartbeat","group":"workers","id":"{id}"}}"#));
    let ids = vec![format!("\"{id}\""); 100].join(",");
    parsing(
        "ACK of 100",
        &format!(r#"{{"op":"ACK","topic":"heartbeat","group":"workers","ids":[{ids}]}}"#),
    );

    println!();
    let corr = Corr::new("c-12345").unwrap();
    let (topic, group) = (Topic::new("heartbeat").unwrap(), Group::new("workers").unwrap());
    let mut out = Vec::with_capacity(4096);
    let writing = |name: &str, out: &mut Vec<u8>, write: &dyn Fn(&mut Vec<u8>)| {
        write(out);
        let bytes = out.len();
        nanos(name, bytes, || {
            out.clear();
            write(black_box(out));
        });
        out.clear();
    };
    writing("OK with corr", &mut out, &|out| answer::write_ok(out, Some(&corr)));
    writing("OK with corr, id and seq", &mut out, &|out| {
        answer::write_published(out, Some(&corr), &event.id, Seq(123_456), false);
    });
    writing("EVENT", &mut out, &|out| {
        answer::write_event(
            out,
            &topic,
            &group,
            |out| out.extend_from_slice(&event_json),
            1,
            30_000,
        );
    });
}
