//! Pings, pongs and the time to authenticate.

use std::time::Duration;

use futures_util::StreamExt;
use serde_json::json;
use tokio::time::{sleep, timeout};
use tokio_tungstenite::tungstenite::Message;

use crate::gateway::client::parsed;
use crate::gateway::running::{started, started_with_faults};

#[tokio::test]
async fn a_pong_has_the_payload_of_its_ping() {
    let running = started(&[]).await;
    let mut client = running.connect().await;
    for text in ["", "are you there?"] {
        client.send_message(Message::Ping(text.into())).await;
        let pong = timeout(Duration::from_secs(20), client.socket.next()).await;
        assert_eq!(pong.unwrap().unwrap().unwrap(), Message::Pong(text.into()));
    }
}

#[tokio::test]
async fn pings_periodically_and_accepts_pongs() {
    let running = started(&["gateway.ping_interval_ms=50", "gateway.pong_timeout_ms=2000"]).await;
    let mut client = running.connect().await;
    for _ in 0..5 {
        let ping = timeout(Duration::from_secs(20), client.socket.next()).await;
        assert_eq!(ping.unwrap().unwrap().unwrap(), Message::Ping("".into()));
    }
    client.assert_lives().await;
}

#[tokio::test]
async fn a_missing_pong_closes_the_connection() {
    let running = started(&["gateway.ping_interval_ms=50", "gateway.pong_timeout_ms=100"]).await;
    let mut client = running.connect().await;
    // A client that does not read does not answer pings.
    sleep(Duration::from_millis(600)).await;
    assert_eq!(client.close_code().await, 4009);
}

/// The server stops reading while too many frames are unanswered. It must not blame the client for pongs
/// that it has not read.
#[tokio::test]
async fn an_unread_pong_is_not_a_missing_pong() {
    let set = ["gateway.ping_interval_ms=100", "gateway.pong_timeout_ms=500"];
    let (running, faults) = started_with_faults(&set).await;
    let mut client = running.connect().await;
    faults.shut_gate();
    let count = 15_000;
    client.send_all((0..count).map(|n| json!({"op": "PUBLISH", "topic": "t", "payload": n}))).await;
    let reading = tokio::spawn(async move {
        for seq in 1..=count {
            assert_eq!(parsed(&client.answer().await)["seq"], seq);
        }
        client.assert_lives().await;
    });
    sleep(Duration::from_millis(1500)).await;
    faults.open_gate();
    reading.await.unwrap();
}

/// The same while a SUBSCRIBE waits for the storage.
#[tokio::test]
async fn a_slow_subscribe_does_not_close_the_connection() {
    let set = ["gateway.ping_interval_ms=100", "gateway.pong_timeout_ms=300"];
    let (running, faults) = started_with_faults(&set).await;
    let mut client = running.connect().await;
    faults.shut_gate();
    client.send(&json!({"op": "SUBSCRIBE", "topic": "t", "group": "g"})).await;
    let reading = tokio::spawn(async move {
        let answer = client.answer().await;
        assert!(answer.starts_with(r#"{"op":"OK","group""#), "{answer}");
        client.assert_lives().await;
    });
    sleep(Duration::from_millis(1200)).await;
    faults.open_gate();
    reading.await.unwrap();
}

const TOKEN: &str = r#"auth.tokens=[{token="one",scopes=["publish:**"]}]"#;

#[tokio::test]
async fn a_connection_without_auth_is_closed_in_time() {
    let running = started(&[TOKEN, "gateway.auth_timeout_ms=300"]).await;
    let mut silent = running.connect().await;
    let mut talking = running.connect().await;
    let mut known = running.connect().await;
    known.ok(json!({"op": "AUTH", "token": "one"})).await;
    for frame in [json!({"op": "AUTH", "token": "x"}), json!({"op": "NOPE"})] {
        talking.ask(frame).await;
    }
    assert_eq!(silent.close_code().await, 4401);
    assert_eq!(talking.close_code().await, 4401);
    known.assert_lives().await;
}
