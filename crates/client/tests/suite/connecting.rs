//! Connections: opened, lost, encrypted, refused.

use std::sync::Arc;

use prombus_client::{Client, ConnectionState, Error};
use prombus_engine::{DiskEngine, DiskOptions};

use crate::harness::{started, started_over, through, within};
use crate::proxy::Proxy;

#[tokio::test]
async fn a_wrong_address_is_said_at_once() {
    for url in ["127.0.0.1:8090", "http://127.0.0.1:8090", "ws://me:hunter2@127.0.0.1/"] {
        let error = Client::connect(url).await.unwrap_err();
        assert!(matches!(error, Error::BadAddress(_)) && !error.is_retryable(), "{error}");
        assert!(!error.to_string().contains("hunter2"));
    }
    let running = started(&[]).await;
    let error = running.builder().http("ws://127.0.0.1/").connect().await.unwrap_err();
    assert!(matches!(error, Error::BadAddress(_)), "{error}");
    let error = Client::connect(&format!("{}nowhere", running.server.ws_url())).await.unwrap_err();
    assert!(matches!(error, Error::NotReached(_)), "{error}");
    assert!(error.to_string().contains("404"), "{error}");
}

#[tokio::test]
async fn how_it_stands_can_be_watched() {
    let running = started(&[]).await;
    let proxy = Proxy::to(running.ws()).await;
    let client = through(&proxy.ws()).connect().await.unwrap();
    let mut state = client.state();
    assert_eq!(*state.borrow_and_update(), ConnectionState::Connected);
    proxy.close(true);
    proxy.cut();
    let given_up = |state: &ConnectionState| matches!(state, ConnectionState::Disconnected { failures, .. } if *failures >= 3);
    within(state.wait_for(given_up)).await.unwrap().unwrap();
    proxy.close(false);
    within(state.wait_for(|state| *state == ConnectionState::Connected)).await.unwrap().unwrap();
    client.publish("t", &1).await.unwrap();
    client.close().await;
    assert_eq!(*state.borrow_and_update(), ConnectionState::Ended(Error::Ended));
}

#[tokio::test]
async fn a_server_that_stops_is_waited_for() {
    let folder = tempfile::tempdir().unwrap();
    let open = || Arc::new(DiskEngine::open(&DiskOptions::at(folder.path())).unwrap());
    let running = started_over(open(), &[]).await;
    let address = format!("server.ws={}", running.ws());
    let client = running.connect().await;
    client.publish("t", &1).await.unwrap();
    running.server.stop().await.unwrap();
    let receipt = client.enqueue("t", &2).await.unwrap();
    let running = started_over(open(), &[&address]).await;
    assert_eq!(within(receipt).await.unwrap().unwrap().seq.0, 2);
    assert_eq!(running.payloads("t").await, [1, 2]);
}

#[tokio::test]
async fn nobody_left_ends_it() {
    let running = started(&[]).await;
    let client = running.connect().await;
    let mut state = client.state();
    let receipt = client.enqueue("t", &1).await.unwrap();
    drop(client);
    receipt.await.unwrap();
    let ended = state.wait_for(|state| *state == ConnectionState::Ended(Error::Ended));
    within(ended).await.unwrap().unwrap();
}
