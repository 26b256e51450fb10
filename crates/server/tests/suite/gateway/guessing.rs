//! Guessed tokens.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tokio::net::TcpSocket;

use crate::gateway::authorising::authenticated;
use crate::gateway::client::{Client, parsed};
use crate::gateway::running::{Running, started};
use crate::http::client::HttpClient;

const TOKENS: &str = r#"auth.tokens=[
    {token="known",scopes=["publish:**"]},
    {token="other",scopes=["publish:**"]},
]"#;

async fn guarded() -> Running {
    let limits =
        ["limits.enabled=true", "limits.logins.capacity=3", "limits.logins.refill_per_sec=1"];
    started(&[&[TOKENS][..], &limits].concat()).await
}

async fn auth(client: &mut Client, token: &str) -> Value {
    parsed(&client.ask(json!({"op": "AUTH", "token": token})).await)
}

/// Guesses until the server no longer looks.
async fn guess_until_refused(running: &Running) {
    let mut client = running.connect().await;
    while auth(&mut client, "guess").await["code"] == "bad_token" {}
}

async fn connect_from(running: &Running, source: &str) -> Client {
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind(SocketAddr::new(source.parse().unwrap(), 0)).unwrap();
    let stream = socket.connect(running.address()).await.unwrap();
    Client::over(stream, &format!("ws://{}/", running.address())).await
}

#[tokio::test]
async fn few_guesses_are_looked_at_however_many_connections_make_them() {
    let running = guarded().await;
    let mut clients = Vec::new();
    for _ in 0..5 {
        clients.push(running.connect().await);
    }
    let mut web = HttpClient::connect(&running).await;
    let (start, mut looked_at) = (Instant::now(), 0);
    for round in 0..20 {
        for client in &mut clients {
            let answer = auth(client, &format!("guess {round}")).await;
            if answer["code"] == "bad_token" {
                looked_at += 1;
                continue;
            }
            assert_eq!(answer["code"], "rate_limited");
            assert_eq!(answer["msg"], "too many failed logins from this address");
            assert!((1..=1000).contains(&answer["retry_after_ms"].as_u64().unwrap()), "{answer}");
        }
        let reply = web.ask("GET", "/topics", &[("authorization", "Bearer guess")], "").await;
        if reply.status == 401 {
            looked_at += 1;
        } else {
            reply.refused(429, "rate_limited");
            assert_eq!(reply.header("retry-after"), Some("1"));
        }
    }
    let allowed = 3 + start.elapsed().as_secs();
    assert!((3..=allowed).contains(&looked_at), "{looked_at} of 120, {allowed} are allowed");
    let text = running.server.bus().metrics_text().await.unwrap();
    assert!(text.contains("\nprombus_failed_logins_total 120\n"), "{text}");
    let mut elsewhere = connect_from(&running, "127.0.0.2").await;
    assert_eq!(auth(&mut elsewhere, "guess").await["code"], "bad_token");
    assert_eq!(auth(&mut elsewhere, "other").await["op"], "OK");
}

#[tokio::test]
async fn clients_at_the_address_of_an_attacker_keep_working() {
    let running = guarded().await;
    let mut client = authenticated(&running, "known").await;
    guess_until_refused(&running).await;
    // It may renew its token, and return with one that was accepted before, on either port.
    assert_eq!(auth(&mut client, "other").await["op"], "OK");
    client.assert_lives().await;
    authenticated(&running, "known").await;
    let mut web = HttpClient::connect(&running).await.with_token("known");
    web.post("/publish/t", "1").await.ok();
    // None of that lets the attacker guess on.
    guess_until_refused(&running).await;
    let (start, mut looked_at) = (Instant::now(), 0);
    let mut attacker = running.connect().await;
    for _ in 0..20 {
        authenticated(&running, "known").await;
        looked_at += u64::from(auth(&mut attacker, "guess").await["code"] == "bad_token");
    }
    let allowed = 1 + start.elapsed().as_secs();
    assert!(looked_at <= allowed, "{looked_at} of 20, {allowed} are allowed");
}

#[tokio::test]
async fn a_new_client_at_the_address_of_an_attacker_gets_in_when_there_is_a_token() {
    let running = guarded().await;
    guess_until_refused(&running).await;
    let mut client = running.connect().await;
    let mut answer = auth(&mut client, "known").await;
    assert_eq!(answer["code"], "rate_limited", "the bucket is empty");
    while answer["code"] == "rate_limited" {
        let wait = answer["retry_after_ms"].as_u64().unwrap();
        tokio::time::sleep(Duration::from_millis(wait)).await;
        answer = auth(&mut client, "known").await;
    }
    assert_eq!(answer["op"], "OK");
}

#[tokio::test]
async fn a_client_that_has_logged_in_cannot_guess_faster_for_that() {
    let running = guarded().await;
    authenticated(&running, "known").await;
    guess_until_refused(&running).await;
    let (start, mut looked_at) = (Instant::now(), 0);
    for _ in 0..10 {
        let mut client = authenticated(&running, "known").await;
        for _ in 0..3 {
            looked_at += u64::from(auth(&mut client, "guess").await["code"] == "bad_token");
            // Neither a right token nor a new connection makes up for it.
            assert_eq!(auth(&mut client, "known").await["op"], "OK");
        }
    }
    let allowed = 3 + start.elapsed().as_secs();
    assert!((3..=allowed).contains(&looked_at), "{looked_at} of 30, {allowed} are allowed");
}

#[tokio::test]
async fn an_expired_token_is_not_a_guess() {
    let secret = crate::gateway::authorising::SECRET;
    let jwt = format!("auth.jwt.secret={secret}");
    let running = started(&[&jwt, "limits.enabled=true", "limits.logins.capacity=3"]).await;
    let expired = crate::gateway::authorising::token_with_seconds_left(0);
    let mut client = running.connect().await;
    for _ in 0..10 {
        assert_eq!(auth(&mut client, &expired).await["msg"], "the token has expired");
    }
}
