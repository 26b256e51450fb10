//! Opening, losing and reopening connections.

use std::sync::Arc;

use prombus_client::{Client, ConnectionState, Error};
use prombus_engine::{DiskEngine, DiskOptions};

use crate::harness::{client_builder, start, start_with_engine, within};
use crate::proxy::Proxy;

#[tokio::test]
async fn reports_an_invalid_address_at_once() {
    for url in ["127.0.0.1:8090", "http://127.0.0.1:8090", "ws://me:hunter2@127.0.0.1/"] {
        let error = Client::connect(url).await.unwrap_err();
        assert!(matches!(error, Error::BadAddress(_)) && !error.is_retryable(), "{error}");
        assert!(!error.to_string().contains("hunter2"));
    }
    let server = start(&[]).await;
    let error = server.builder().http("ws://127.0.0.1/").connect().await.unwrap_err();
    assert!(matches!(error, Error::BadAddress(_)), "{error}");
    let error = Client::connect(&format!("{}nowhere", server.inner.ws_url())).await.unwrap_err();
    assert!(matches!(error, Error::NotReached(_)), "{error}");
    assert!(error.to_string().contains("404"), "{error}");
}

#[tokio::test]
async fn reports_the_state_of_the_connection() {
    let server = start(&[]).await;
    let proxy = Proxy::to(server.ws()).await;
    let client = client_builder(&proxy.ws()).connect().await.unwrap();
    let mut state = client.state();
    assert_eq!(*state.borrow_and_update(), ConnectionState::Connected);
    proxy.close(true);
    proxy.cut();
    let has_failed_often = |state: &ConnectionState| matches!(state, ConnectionState::Disconnected { failures, .. } if *failures >= 3);
    within(state.wait_for(has_failed_often)).await.unwrap().unwrap();
    proxy.close(false);
    within(state.wait_for(|state| *state == ConnectionState::Connected)).await.unwrap().unwrap();
    client.publish("t", &1).await.unwrap();
    client.close().await;
    assert_eq!(*state.borrow_and_update(), ConnectionState::Ended(Error::Ended));
}

#[tokio::test]
async fn reconnects_after_a_server_restart() {
    let folder = tempfile::tempdir().unwrap();
    let open = || Arc::new(DiskEngine::open(&DiskOptions::at(folder.path())).unwrap());
    let server = start_with_engine(open(), &[]).await;
    let address = format!("server.ws={}", server.ws());
    let client = server.connect().await;
    client.publish("t", &1).await.unwrap();
    server.inner.stop().await.unwrap();
    let receipt = client.enqueue("t", &2).await.unwrap();
    let server = start_with_engine(open(), &[&address]).await;
    assert_eq!(within(receipt).await.unwrap().unwrap().seq.0, 2);
    assert_eq!(server.payloads("t").await, [1, 2]);
}

#[tokio::test]
async fn ends_when_the_last_handle_is_dropped() {
    let server = start(&[]).await;
    let client = server.connect().await;
    let mut state = client.state();
    let receipt = client.enqueue("t", &1).await.unwrap();
    drop(client);
    receipt.await.unwrap();
    let ended = state.wait_for(|state| *state == ConnectionState::Ended(Error::Ended));
    within(ended).await.unwrap().unwrap();
}
