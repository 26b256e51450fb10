//! Refusals of the server.

use prombus_client::{Error, ErrorCode, EventId, Received, Start};

use crate::harness::start;

fn code<T: std::fmt::Debug>(result: Result<T, Error>) -> ErrorCode {
    result.unwrap_err().code().unwrap()
}

#[tokio::test]
async fn reports_the_codes_of_refusals() {
    let server = start(&[]).await;
    let client = server.connect().await;
    let ignore = |_: Received<u64>| async { Ok(()) };
    // Valid, but too long for a dead letter topic, which only the server checks.
    let long = "x".repeat(200);
    assert_eq!(code(client.subscribe(&long, "g").handle(ignore).await), ErrorCode::BadTopic);
    assert_eq!(code(client.subscribe("t", "a b").handle(ignore).await), ErrorCode::BadGroup);
    let unknown = Start::AfterId(EventId::new("x").unwrap());
    let builder = client.subscribe("t", "g").from(unknown);
    assert_eq!(code(builder.handle(ignore).await), ErrorCode::UnknownId);
    let builder = client.subscribe("t", "g").max_in_flight(0);
    assert_eq!(code(builder.handle(ignore).await), ErrorCode::BadFrame);
    client.subscribe("t", "g").handle(ignore).await.unwrap();
    let again = client.subscribe("t", "g").handle(ignore).await;
    assert_eq!(code(again), ErrorCode::AlreadySubscribed);
    let mut events = client.replay("nothing.here").stream::<u64>().unwrap();
    assert_eq!(code(events.next().await.unwrap()), ErrorCode::UnknownTopic);
    assert!(events.next().await.is_none());
}

/// The server also closes the connection. The other requests are not lost.
#[tokio::test]
async fn reports_a_frame_that_is_too_large_for_the_server() {
    let server = start(&["gateway.max_frame_bytes=10000"]).await;
    let client = server.connect().await;
    let before = client.enqueue("t", &1).await.unwrap();
    let large = client.enqueue("t", &"x".repeat(20_000)).await.unwrap();
    let after = client.enqueue("t", &2).await.unwrap();
    assert_eq!(code(large.await), ErrorCode::PayloadTooLarge);
    before.await.unwrap();
    after.await.unwrap();
    assert_eq!(server.payloads("t").await, [1, 2]);
}
