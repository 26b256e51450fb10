//! Authentication with tokens.

use prombus_client::{Client, ConnectionState, Error, ErrorCode, Received};

use crate::harness::{client_builder, start, within};
use crate::proxy::Proxy;

const TOKENS: &str = r#"auth.tokens=[
    {token="publisher-token",scopes=["publish:**"]},
    {token="all-token",scopes=["publish:**","subscribe:**"]}]"#;

fn code(result: Result<impl std::fmt::Debug, Error>) -> ErrorCode {
    result.unwrap_err().code().unwrap()
}

async fn subscribe(client: &Client) -> Result<prombus_client::Subscription, Error> {
    client.subscribe("t", "g").handle(|_: Received<u64>| async { Ok(()) }).await
}

#[tokio::test]
async fn authenticates_every_connection() {
    let server = start(&[TOKENS]).await;
    let proxy = Proxy::to(server.ws()).await;
    let client = client_builder(&proxy.ws()).token("all-token").connect().await.unwrap();
    subscribe(&client).await.unwrap();
    for number in 0..5 {
        client.publish("t", &number).await.unwrap();
        proxy.cut();
    }
    let mut state = client.state();
    within(state.wait_for(|state| *state == ConnectionState::Connected)).await.unwrap().unwrap();
}

#[tokio::test]
async fn a_new_token_allows_what_the_old_one_does_not() {
    let server = start(&[TOKENS]).await;
    let client = server.builder().token("publisher-token").connect().await.unwrap();
    client.publish("t", &1).await.unwrap();
    assert_eq!(code(subscribe(&client).await), ErrorCode::Forbidden);
    let mut replay = client.replay("t").stream::<u64>().unwrap();
    assert_eq!(code(replay.next().await.unwrap()), ErrorCode::Forbidden);
    // A rejected token changes nothing.
    assert_eq!(code(client.authenticate("guess").await), ErrorCode::BadToken);
    client.publish("t", &2).await.unwrap();
    client.authenticate("all-token").await.unwrap();
    subscribe(&client).await.unwrap();
    let mut replay = client.replay("t").stream::<u64>().unwrap();
    assert_eq!(replay.next().await.unwrap().unwrap().payload, 1);
}

/// The new token counts from the next connection on.
#[tokio::test]
async fn ends_a_subscription_that_the_new_token_does_not_allow() {
    let server = start(&[TOKENS]).await;
    let proxy = Proxy::to(server.ws()).await;
    let client = client_builder(&proxy.ws()).token("all-token").connect().await.unwrap();
    let subscription = subscribe(&client).await.unwrap();
    client.authenticate("publisher-token").await.unwrap();
    proxy.cut();
    let ended = within(subscription.ended()).await.unwrap();
    assert_eq!(code(ended), ErrorCode::Forbidden);
    client.publish("t", &1).await.unwrap();
}

#[tokio::test]
async fn a_rejected_token_ends_the_client() {
    let server = start(&[TOKENS]).await;
    assert_eq!(code(server.builder().token("guess").connect().await), ErrorCode::BadToken);
    let client = server.builder().token("guess").connect_in_background().unwrap();
    let receipt = client.enqueue("t", &1).await;
    let mut state = client.state();
    let ended = state.wait_for(|state| matches!(state, ConnectionState::Ended(_)));
    let ended = within(ended).await.unwrap().unwrap().clone();
    let ConnectionState::Ended(error) = ended else { panic!("{ended:?}") };
    assert_eq!(error.code(), Some(ErrorCode::BadToken));
    if let Ok(receipt) = receipt {
        assert_eq!(receipt.await.unwrap_err(), error);
    }
    assert_eq!(client.publish("t", &1).await.unwrap_err(), error);
    assert_eq!(subscribe(&client).await.unwrap_err(), error);
}

#[tokio::test]
async fn a_client_at_the_address_of_an_attacker_waits_for_its_turn() {
    let guarded = ["limits.enabled=true", "limits.logins.capacity=1"];
    let server = start(&[&[TOKENS][..], &guarded].concat()).await;
    let throttled = loop {
        let refused = code(server.builder().token("guess").connect().await);
        if refused != ErrorCode::BadToken {
            break refused;
        }
    };
    assert_eq!(throttled, ErrorCode::RateLimited);
    let client = server.builder().token("all-token").connect_in_background().unwrap();
    within(client.publish("t", &1)).await.unwrap().unwrap();
}

#[tokio::test]
async fn without_a_token_requests_fail_and_then_the_client_ends() {
    let server = start(&[TOKENS, "gateway.auth_timeout_ms=200"]).await;
    let client = server.connect().await;
    assert_eq!(code(client.publish("t", &1).await), ErrorCode::Unauthorized);
    let mut state = client.state();
    let ended = state.wait_for(|state| matches!(state, ConnectionState::Ended(_)));
    let ended = within(ended).await.unwrap().unwrap().clone();
    let ConnectionState::Ended(Error::Closed { code: 4401, .. }) = ended else {
        panic!("{ended:?}")
    };
}

#[tokio::test]
async fn never_shows_a_token() {
    let server = start(&[TOKENS]).await;
    let client = server.builder().token("all-token").connect().await.unwrap();
    assert!(!format!("{client:?}").contains("all-token"));
    let error = server.builder().token("guess-7").connect().await.unwrap_err();
    assert!(!format!("{error:?} {error}").contains("guess-7"));
}
