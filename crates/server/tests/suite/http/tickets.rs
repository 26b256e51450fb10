//! `POST /ticket`, and what its tickets open.

use prombus_server::config::Config;
use serde_json::{Value, json};

use crate::gateway::auditing::Log;
use crate::gateway::authorising::{SECRET, token_with_seconds_left};
use crate::gateway::authority::Mutual;
use crate::gateway::client::{Client, parsed};
use crate::gateway::running::{Running, sources, started};
use crate::http::client::HttpClient;
use crate::http::stream::Listener;

const READER: &str = r#"{name="reader",token="reader-secret",scopes=["read:t","consume:t/g"]}"#;
const OTHER: &str = r#"{name="other",token="other-secret",scopes=["publish:t"]}"#;

fn tokens(entries: &[&str]) -> String {
    format!("auth.tokens=[{}]", entries.join(","))
}

async fn ticket_for(running: &Running, token: &str) -> String {
    let mut client = HttpClient::connect(running).await;
    let authorization = format!("Bearer {token}");
    let headers = [("authorization", authorization.as_str())];
    let reply = client.ask("POST", "/ticket", &headers, "").await;
    assert_eq!(reply.header("cache-control"), Some("no-store"));
    let issued = reply.ok();
    assert_eq!(issued["expires_ms"], 30_000);
    issued["ticket"].as_str().unwrap().to_owned()
}

/// Opens a WebSocket with a ticket, on the port of the gateway or on that of HTTP.
async fn connect(running: &Running, ticket: &str, over_http: bool) -> Client {
    let (address, path) = match over_http {
        true => (running.server.http(), "ws"),
        false => (running.server.ws(), ""),
    };
    let stream = tokio::net::TcpStream::connect(address).await.unwrap();
    Client::over(stream, &format!("ws://{address}/{path}?ticket={ticket}")).await
}

/// Returns the status of the answer to an upgrade with a ticket.
async fn upgraded(running: &Running, ticket: &str) -> u16 {
    let mut client = HttpClient::connect(running).await;
    let headers = [
        ("connection", "upgrade"),
        ("upgrade", "websocket"),
        ("sec-websocket-version", "13"),
        ("sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ=="),
    ];
    client.open("GET", &format!("/ws?ticket={ticket}"), &headers, "").await.status().as_u16()
}

fn publish() -> Value {
    json!({"op": "PUBLISH", "topic": "t", "payload": 1})
}

async fn code(client: &mut Client, frame: Value) -> Value {
    parsed(&client.ask(frame).await)["code"].clone()
}

async fn published(running: &Running, token: &'static str) {
    HttpClient::connect(running).await.with_token(token).post("/publish/t", "1").await.ok();
}

fn reload(running: &Running, entries: &[&str]) {
    let auth = Config::load(&sources(&[&tokens(entries)])).unwrap().auth;
    assert!(running.server.reload(&auth).access.is_ok());
}

#[tokio::test]
async fn a_ticket_opens_a_stream_once_with_the_rights_of_its_token() {
    let running = started(&[&tokens(&[READER, OTHER])]).await;
    published(&running, "other-secret").await;
    let ticket = ticket_for(&running, "reader-secret").await;
    let path = format!("/stream?topic=t&from=earliest&ticket={ticket}");
    let mut listener = Listener::open(&running, &path, &[]).await;
    assert_eq!(listener.seq().await, 1);
    let mut client = HttpClient::connect(&running).await;
    client.get(&path).await.refused(401, "bad_token");
    let ticket = ticket_for(&running, "other-secret").await;
    let forbidden = client.get(&format!("/stream?topic=t&ticket={ticket}")).await;
    forbidden.refused(403, "forbidden");
    // No other path takes one, and it is not a token.
    let ticket = ticket_for(&running, "reader-secret").await;
    for path in ["/replay?topic=t&", "/topics?", "/export?topic=t&"] {
        client.get(&format!("{path}ticket={ticket}")).await.refused(401, "unauthorized");
    }
    client.post(&format!("/ticket?ticket={ticket}"), "").await.refused(401, "unauthorized");
    let bearer = format!("Bearer {ticket}");
    let as_token = client.ask("GET", "/topics", &[("authorization", bearer.as_str())], "").await;
    as_token.refused(401, "bad_token");
    // A token counts instead of it, and does not use it up.
    let path = format!("/stream?topic=t&ticket={ticket}");
    let reader = [("authorization", "Bearer reader-secret")];
    drop(Listener::open(&running, &path, &reader).await);
    drop(Listener::open(&running, &path, &[]).await);
}

#[tokio::test]
async fn a_ticket_opens_a_websocket_once_with_the_rights_of_its_token() {
    let running = started(&[&tokens(&[READER, OTHER])]).await;
    for over_http in [false, true] {
        let ticket = ticket_for(&running, "reader-secret").await;
        let mut client = connect(&running, &ticket, over_http).await;
        client.subscribe("t", "g", json!({})).await;
        assert_eq!(code(&mut client, publish()).await, "forbidden");
        assert_eq!(upgraded(&running, &ticket).await, 401, "it was used");
        // AUTH replaces it.
        client.ok(json!({"op": "AUTH", "token": "other-secret"})).await;
        client.ok(publish()).await;
        assert_eq!(
            code(&mut client, json!({"op": "PAUSE", "topic": "t", "group": "g"})).await,
            "forbidden"
        );
    }
    for wrong in ["", "x", "reader-secret"] {
        assert_eq!(upgraded(&running, wrong).await, 401, "{wrong}");
    }
    // A plain request does not use one up.
    let ticket = ticket_for(&running, "reader-secret").await;
    let mut plain = HttpClient::connect(&running).await;
    plain.get(&format!("/ws?ticket={ticket}")).await.refused(426, "bad_frame");
    assert_eq!(upgraded(&running, &ticket).await, 101);
}

#[tokio::test]
async fn what_a_ticket_opened_ends_with_its_token() {
    let running = started(&[&tokens(&[READER, OTHER])]).await;
    published(&running, "other-secret").await;
    let unused = ticket_for(&running, "reader-secret").await;
    let ticket = ticket_for(&running, "reader-secret").await;
    let mut client = connect(&running, &ticket, false).await;
    client.subscribe("t", "g", json!({"from": "earliest"})).await;
    client.event().await;
    let ticket = ticket_for(&running, "reader-secret").await;
    let path = format!("/stream?topic=t&from=earliest&ticket={ticket}");
    let mut listener = Listener::open(&running, &path, &[]).await;
    assert_eq!(listener.seq().await, 1);
    reload(&running, &[OTHER]);
    assert_eq!(listener.block().await, None);
    let pause = json!({"op": "PAUSE", "topic": "t", "group": "g"});
    assert_eq!(code(&mut client, pause).await, "unauthorized");
    assert_eq!(upgraded(&running, &unused).await, 401, "its token is gone");
}

#[tokio::test(start_paused = true)]
async fn what_a_ticket_opened_ends_when_its_token_expires() {
    let running = started(&[&format!("auth.jwt.secret={SECRET}")]).await;
    let token = token_with_seconds_left(8);
    let authorization = format!("Bearer {token}");
    let headers = [("authorization", authorization.as_str())];
    let mut publisher = HttpClient::connect(&running).await;
    publisher.ask("POST", "/publish/t", &headers, "1").await.ok();
    let ticket = ticket_for(&running, &token).await;
    let path = format!("/stream?topic=t&from=earliest&ticket={ticket}");
    let mut listener = Listener::open(&running, &path, &[]).await;
    assert_eq!(listener.seq().await, 1);
    assert_eq!(listener.block().await, None);
}

#[tokio::test(start_paused = true)]
async fn a_ticket_ends_after_thirty_seconds() {
    let running = started(&[&tokens(&[READER])]).await;
    let ticket = ticket_for(&running, "reader-secret").await;
    tokio::time::advance(std::time::Duration::from_secs(30)).await;
    assert_eq!(upgraded(&running, &ticket).await, 401);
}

#[tokio::test]
async fn a_client_gets_a_limited_number_of_tickets() {
    let running = started(&[&tokens(&[READER, OTHER])]).await;
    for _ in 0..100 {
        ticket_for(&running, "reader-secret").await;
    }
    let mut client = HttpClient::connect(&running).await.with_token("reader-secret");
    let reply = client.post("/ticket", "").await;
    assert!(reply.header("retry-after").is_some());
    assert!(reply.refused(429, "limit_exceeded").contains("100 in 30 s"));
    ticket_for(&running, "other-secret").await;
}

#[tokio::test]
async fn a_server_without_tokens_accepts_any_ticket() {
    let running = started(&[]).await;
    let mut client = HttpClient::connect(&running).await;
    client.post("/publish/t", "1").await.ok();
    let issued = client.post("/ticket", "").await.ok();
    let ticket = issued["ticket"].as_str().unwrap();
    for ticket in [ticket, ticket, "any"] {
        let path = format!("/stream?topic=t&from=earliest&ticket={ticket}");
        assert_eq!(Listener::open(&running, &path, &[]).await.seq().await, 1);
        connect(&running, ticket, false).await.ok(publish()).await;
    }
}

#[tokio::test]
async fn a_ticket_for_a_certificate_has_its_rights() {
    let rules = r#"auth.certificates=[{subject="CN=billing",scopes=["publish:t"]}]"#;
    let mutual = Mutual::start("optional", &[rules]).await;
    let billing = mutual.authority.client("billing");
    let mut client = mutual.http(Some(&billing)).await;
    let issued = client.post("/ticket", "").await.ok();
    let stream = mutual.handshake(mutual.running.tcp().await, None).await.unwrap();
    let url = format!("wss://localhost/?ticket={}", issued["ticket"].as_str().unwrap());
    let mut client = Client::over(stream, &url).await;
    client.ok(publish()).await;
}

#[tokio::test]
async fn no_log_contains_a_ticket() {
    let log = Log::default();
    let _logging = log.start();
    let running = started(&[&tokens(&[READER])]).await;
    let ticket = ticket_for(&running, "reader-secret").await;
    let mut client = connect(&running, &ticket, false).await;
    client.subscribe("t", "g", json!({})).await;
    assert_eq!(upgraded(&running, &ticket).await, 401);
    let mut http = HttpClient::connect(&running).await;
    http.get(&format!("/stream?topic=t&ticket={ticket}")).await.refused(401, "bad_token");
    let text = log.text();
    assert!(!text.contains(&ticket) && !text.contains("reader-secret"), "{text}");
    let mut messages: Vec<_> = log.lines().iter().map(|line| line["message"].clone()).collect();
    // More than one a second are counted in one line.
    messages.dedup();
    assert_eq!(messages, ["login", "login refused"]);
    assert_eq!(log.lines()[0]["principal"], "reader");
}
