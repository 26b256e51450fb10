//! What the server refuses, as the client says it.

use prombus_client::{Error, ErrorCode, EventId, Received, Start};

use crate::harness::started;

fn code<T: std::fmt::Debug>(result: Result<T, Error>) -> ErrorCode {
    result.unwrap_err().code().unwrap()
}

#[tokio::test]
async fn refusals_of_the_server_have_their_codes() {
    let running = started(&[]).await;
    let client = running.connect().await;
    let nothing = |_: Received<u64>| async { Ok(()) };
    // Too long for a dead letter, which only the server says.
    let long = "x".repeat(200);
    assert_eq!(code(client.subscribe(&long, "g").handle(nothing).await), ErrorCode::BadTopic);
    assert_eq!(code(client.subscribe("t", "a b").handle(nothing).await), ErrorCode::BadGroup);
    let unknown = Start::AfterId(EventId::new("x").unwrap());
    let subscribing = client.subscribe("t", "g").from(unknown);
    assert_eq!(code(subscribing.handle(nothing).await), ErrorCode::UnknownId);
    let subscribing = client.subscribe("t", "g").max_in_flight(0);
    assert_eq!(code(subscribing.handle(nothing).await), ErrorCode::BadFrame);
    client.subscribe("t", "g").handle(nothing).await.unwrap();
    let again = client.subscribe("t", "g").handle(nothing).await;
    assert_eq!(code(again), ErrorCode::AlreadySubscribed);
    let mut events = client.replay("nothing.here").stream::<u64>().unwrap();
    assert_eq!(code(events.next().await.unwrap()), ErrorCode::UnknownTopic);
    assert!(events.next().await.is_none());
}

/// The server ends the connection over it, too; what else was on its way is not lost.
#[tokio::test]
async fn a_frame_that_only_the_server_finds_too_large() {
    let running = started(&["gateway.max_frame_bytes=10000"]).await;
    let client = running.connect().await;
    let before = client.enqueue("t", &1).await.unwrap();
    let large = client.enqueue("t", &"x".repeat(20_000)).await.unwrap();
    let behind = client.enqueue("t", &2).await.unwrap();
    assert_eq!(code(large.await), ErrorCode::PayloadTooLarge);
    before.await.unwrap();
    behind.await.unwrap();
    assert_eq!(running.payloads("t").await, [1, 2]);
}
