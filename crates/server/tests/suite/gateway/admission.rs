//! Paths, origins, the connection limit, and public addresses.

use std::time::Duration;

use prombus_server::config::Config;
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::timeout;
use tokio_tungstenite::tungstenite::client::IntoClientRequest;
use tokio_tungstenite::tungstenite::handshake::client::Request;
use tokio_tungstenite::tungstenite::http::HeaderValue;
use tokio_tungstenite::{client_async, tungstenite};

use crate::gateway::running::{Running, sources, started};

fn request(running: &Running, path: &str, headers: &[(&'static str, &str)]) -> Request {
    let url = format!("ws://{}{path}", running.address());
    let mut request = url.into_client_request().unwrap();
    for (name, value) in headers {
        request.headers_mut().insert(*name, HeaderValue::from_str(value).unwrap());
    }
    request
}

/// Returns the status of the response.
async fn status(running: &Running, path: &str, headers: &[(&'static str, &str)]) -> u16 {
    match client_async(request(running, path, headers), running.tcp().await).await {
        Ok((_, response)) => response.status().as_u16(),
        Err(tungstenite::Error::Http(response)) => response.status().as_u16(),
        Err(error) => panic!("{error}"),
    }
}

#[tokio::test]
async fn serves_two_paths() {
    let running = started(&[]).await;
    for (path, expected) in
        [("/", 101), ("/ws", 101), ("/?a=b", 101), ("/ws/", 404), ("/x", 404), ("//", 404)]
    {
        assert_eq!(status(&running, path, &[]).await, expected, "{path}");
    }
}

#[tokio::test]
async fn refuses_other_origins() {
    let running = started(&[r#"auth.allowed_origins=["https://app.example"]"#]).await;
    let own = format!("http://{}", running.address());
    for (origin, expected) in [
        (own.as_str(), 101),
        ("https://app.example", 101),
        ("https://APP.example", 101),
        ("http://app.example", 403),
        ("https://app.example.evil", 403),
        ("http://127.0.0.1", 403),
        ("null", 403),
        ("nonsense", 403),
    ] {
        assert_eq!(status(&running, "/", &[("origin", origin)]).await, expected, "{origin}");
    }
}

async fn plain(running: &Running, request: &str) -> String {
    let mut stream = running.tcp().await;
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = vec![0; 4096];
    let count = timeout(Duration::from_secs(20), stream.read(&mut answer)).await.unwrap().unwrap();
    String::from_utf8(answer[..count].to_vec()).unwrap()
}

#[tokio::test]
async fn explains_itself_to_clients_without_websocket() {
    let running = started(&[]).await;
    let answer = plain(&running, "GET / HTTP/1.1\r\nHost: x\r\n\r\n").await;
    assert!(answer.starts_with("HTTP/1.1 426 "), "{answer}");
    assert!(answer.contains("upgrade: websocket\r\n"), "{answer}");
    assert!(answer.contains("sec-websocket-version: 13\r\n"), "{answer}");
    let answer = plain(&running, "POST / HTTP/1.1\r\nHost: x\r\ncontent-length: 0\r\n\r\n").await;
    assert!(answer.starts_with("HTTP/1.1 405 "), "{answer}");
    let answer = plain(&running, "nonsense\r\n\r\n").await;
    assert!(answer.starts_with("HTTP/1.1 400 "), "{answer}");
    let old = [("sec-websocket-version", "8")];
    assert_eq!(status(&running, "/", &old).await, 426);
}

#[tokio::test]
async fn answers_503_above_the_connection_limit() {
    let running = started(&["gateway.max_connections=2"]).await;
    let mut first = running.connect().await;
    let second = running.connect().await;
    assert_eq!(status(&running, "/", &[]).await, 503);
    first.assert_lives().await;
    drop(second);
    // There is room again once the server has noticed that the connection is closed.
    let free = async {
        while status(&running, "/", &[]).await == 503 {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    timeout(Duration::from_secs(20), free).await.unwrap();
}

#[tokio::test]
async fn a_public_address_requires_tokens() {
    let public = |more: &[&str]| {
        let set = [&["server.ws=0.0.0.0:0"], more].concat();
        Config::load(&sources(&set)).map(drop).map_err(|error| error.to_string())
    };
    let refused = public(&[]).unwrap_err();
    assert!(refused.contains("server.ws"), "{refused}");
    public(&["server.insecure=true"]).unwrap();
    public(&[r#"auth.tokens=[{token="x",scopes=[]}]"#]).unwrap();
    public(&["auth.jwt.secret=0123456789abcdef0123456789abcdef"]).unwrap();
    let set = [r#"auth.tokens=[{token="x",scopes=["publish:**"]}]"#];
    let running = started(&set).await;
    let mut client = running.connect().await;
    client.ok(json!({"op": "AUTH", "token": "x"})).await;
}
