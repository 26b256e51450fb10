//! The largest values that must be accepted, unusual text, and values that are too large.

use bytes::Bytes;
use prombus_proto::limits::{
    MAX_BATCH_BYTES, MAX_BATCH_EVENTS, MAX_EVENT_BYTES, MAX_ID_BYTES, MAX_KEY_BYTES,
    MAX_NAME_BYTES, MAX_STATE_KEY_BYTES, MAX_STATE_VALUE_BYTES,
};
use prombus_proto::{Event, EventId, Headers, Key, Seq};

use super::case::{Case, cases};
use super::test_store::{
    TestStore, all_as_stored, as_stored, found_at, of_events, of_state, payload, put, stored_at,
};
use crate::{Batch, CommitError, Durability, Expect, StateKey, StateOp};

pub(super) fn cases() -> Vec<Case> {
    cases![
        text_in_any_script_is_preserved,
        the_longest_names_fit,
        a_payload_of_one_mebibyte_is_preserved,
        the_largest_event_fits,
        a_larger_event_is_refused,
        the_maximum_number_of_events_fits_in_one_batch,
        a_batch_with_more_events_is_refused,
        a_larger_batch_is_refused,
        the_largest_state_value_fits,
        a_larger_state_value_is_refused,
        small_and_large_events_can_be_mixed,
    ]
}

fn text_payload(bytes: usize) -> prombus_proto::Payload {
    payload(&format!("\"{}\"", "x".repeat(bytes)))
}

/// An event whose `max_json_bytes` is exactly `bytes`.
fn event_of_size(store: &TestStore, bytes: usize) -> Event {
    let mut event = Event { payload: text_payload(0), ..store.event("a") };
    event.payload = text_payload(bytes - event.encode().max_json_bytes());
    assert_eq!(event.encode().max_json_bytes(), bytes);
    event
}

/// Commits `batch`, which must be refused as too large and store nothing.
async fn check_too_large(store: &TestStore, batch: Batch, over: usize) {
    let answer = store.try_commit(batch).await;
    assert!(
        matches!(answer, Err(CommitError::TooLarge { limit, bytes, .. }) if limit == over && bytes > over),
        "{answer:?}"
    );
    assert_eq!(store.topic_names().await, Vec::<String>::new());
    assert_eq!(store.scan(b"", None, 10).await.len(), 0);
    assert_eq!(store.append(&[store.event("b")]).await, stored_at([1]));
}

async fn text_in_any_script_is_preserved(store: TestStore) {
    let texts = [
        "Grüße, Ünïcödé",
        "漢字かな交じり文",
        "🦀👩‍👩‍👧‍👦🏳️‍🌈",
        "שלום עולם مرحبا",
        "\u{0}\u{1}\u{7f}\u{85}\u{2028}\u{feff}\u{10ffff}",
        "quote \" backslash \\ slash / tab \t line \n",
    ];
    let events: Vec<Event> = texts
        .iter()
        .enumerate()
        .map(|(n, text)| {
            let printable: String = text.chars().filter(|c| !c.is_control()).collect();
            Event {
                id: EventId::new(&format!("{n}{printable}")).unwrap(),
                key: Some(Key::new(text).unwrap()),
                headers: Headers::new([((*text).into(), (*text).into())]).unwrap(),
                payload: payload(&format!("[\"{printable}\"]").replace(" \" backslash \\", "")),
                tags: vec![(*text).into()],
                sid: Some((*text).into()),
                ..store.event("a")
            }
        })
        .collect();
    store.append(&events).await;
    let read = store.read_all("a").await;
    assert_eq!(read, all_as_stored(&events, 1));
    for (event, stored) in events.into_iter().zip(read) {
        assert_eq!(store.seek_id("a", &event.id).await, Some(stored.seq.0));
        assert_eq!(Event::decode(&stored.json).unwrap(), (stored.seq, event));
    }
}

async fn the_longest_names_fit(store: TestStore) {
    let name = format!("{}.z", "n".repeat(MAX_NAME_BYTES - 2));
    let other = format!("{}.y", "n".repeat(MAX_NAME_BYTES - 2));
    let event = Event {
        id: EventId::new(&"é".repeat(MAX_ID_BYTES / 2)).unwrap(),
        key: Some(Key::new(&"k".repeat(MAX_KEY_BYTES)).unwrap()),
        ..store.event(&name)
    };
    store.append(std::slice::from_ref(&event)).await;
    store.fill(&other, 1).await;
    assert_eq!(store.read_all(&name).await, [as_stored(&event, 1)]);
    assert_eq!(store.seek_id(&name, &event.id).await, Some(1));
    assert_eq!(store.topic_names().await, [other, name]);

    let key = StateKey::new(vec![0xff; MAX_STATE_KEY_BYTES]).unwrap();
    let op = StateOp::Put {
        key: key.clone(),
        value: Bytes::from_static(b"v"),
        expires_at: None,
        expect: Expect::Absent,
    };
    store.commit(of_state(vec![op])).await;
    assert_eq!(store.engine().get(&key).await.unwrap().unwrap().key, key);
    let prefix = vec![0xff; MAX_STATE_KEY_BYTES];
    assert_eq!(store.scan(&prefix, None, 9).await.len(), 1);
    let longer = vec![0xff; MAX_STATE_KEY_BYTES + 1];
    assert_eq!(store.scan(&longer, None, 9).await.len(), 0);
}

async fn a_payload_of_one_mebibyte_is_preserved(store: TestStore) {
    let events: Vec<Event> =
        (0..3).map(|_| Event { payload: text_payload(1 << 20), ..store.event("a") }).collect();
    assert_eq!(store.append(&events).await, stored_at([1, 2, 3]));
    assert_eq!(store.read_all("a").await, all_as_stored(&events, 1));
}

async fn the_largest_event_fits(store: TestStore) {
    let event = event_of_size(&store, MAX_EVENT_BYTES);
    store.append(std::slice::from_ref(&event)).await;
    assert!(store.read_all("a").await == [as_stored(&event, 1)]);
    assert_eq!(store.append(&[store.event("a")]).await, stored_at([2]));
}

async fn a_larger_event_is_refused(store: TestStore) {
    let event = event_of_size(&store, MAX_EVENT_BYTES + 1);
    let batch = Batch { state: vec![put("k", "v")], ..of_events(&[store.event("a"), event]) };
    check_too_large(&store, batch, MAX_EVENT_BYTES).await;
}

async fn the_maximum_number_of_events_fits_in_one_batch(store: TestStore) {
    // The same event over and over: the most positions with little to store.
    let mut events = vec![store.event("a").encode(); MAX_BATCH_EVENTS - 1];
    events.push(store.event("a").encode());
    let positions = store.commit(Batch::of_events(events, Durability::Fsync)).await.positions;
    assert_eq!(positions.len(), MAX_BATCH_EVENTS);
    assert_eq!(positions[..1], stored_at([1]));
    assert!(positions[1..MAX_BATCH_EVENTS - 1].iter().all(|position| *position == found_at(1)));
    assert_eq!(positions[MAX_BATCH_EVENTS - 1..], stored_at([2]));
    assert_eq!(store.bounds("a").await.last(), Seq(2));
}

async fn a_batch_with_more_events_is_refused(store: TestStore) {
    let events = vec![store.event("a").encode(); MAX_BATCH_EVENTS + 1];
    let batch = Batch::of_events(events, Durability::Fsync);
    check_too_large(&store, batch, MAX_BATCH_EVENTS).await;
}

async fn a_larger_batch_is_refused(store: TestStore) {
    let third = MAX_BATCH_BYTES / 3;
    let batch = Batch {
        state: vec![put("k", "more than the rest leaves")],
        ..of_events(&[
            event_of_size(&store, third),
            event_of_size(&store, third),
            event_of_size(&store, third),
        ])
    };
    check_too_large(&store, batch, MAX_BATCH_BYTES).await;
}

fn put_of_size(name: &str, bytes: usize) -> StateOp {
    StateOp::Put {
        key: super::test_store::key(name),
        value: vec![0xa5; bytes].into(),
        expires_at: None,
        expect: Expect::Any,
    }
}

async fn the_largest_state_value_fits(store: TestStore) {
    let op = put_of_size("k", MAX_STATE_VALUE_BYTES);
    store.commit(of_state(vec![op])).await;
    let entry = store.get("k").await.unwrap();
    assert!(entry.value == vec![0xa5; MAX_STATE_VALUE_BYTES]);
}

async fn a_larger_state_value_is_refused(store: TestStore) {
    let ops = vec![put("small", "v"), put_of_size("k", MAX_STATE_VALUE_BYTES + 1)];
    let batch = Batch { state: ops, ..of_events(&[store.event("a")]) };
    check_too_large(&store, batch, MAX_STATE_VALUE_BYTES).await;
}

async fn small_and_large_events_can_be_mixed(store: TestStore) {
    let mut all = Vec::new();
    for round in 0..6 {
        let events: Vec<Event> = [0, 1, 4095, 4096, 65_536, 3, 300_000]
            .iter()
            .map(|bytes| Event { payload: text_payload(bytes + round), ..store.event("a") })
            .collect();
        store.append(&events).await;
        all.extend(events);
    }
    assert!(store.read_all("a").await == all_as_stored(&all, 1));
    for (seq, event) in (1..).zip(&all) {
        let page = store.read("a", seq, crate::ReadBudget::of_events(1)).await;
        assert!(page == [as_stored(event, seq)], "event {seq}");
    }
}
