//! Tokens and what they allow.

use serde_json::json;

use crate::gateway::running::started;
use crate::http::client::HttpClient;

const TOKENS: &str = r#"auth.tokens=[
    {token="writer",scopes=["publish:a.*"]},
    {token="reader",scopes=["subscribe:a.*"]},
    {token="admin",scopes=["admin"]},
    {token="nobody",scopes=[]},
]"#;

/// A valid request for every path that requires a token.
const REQUESTS: [(&str, &str); 9] = [
    ("POST", "/publish/a.b"),
    ("GET", "/topics"),
    ("GET", "/topics/a.b"),
    ("PUT", "/topics/a.b"),
    ("GET", "/groups?topic=a.b"),
    ("GET", "/cursors?topic=a.b"),
    ("GET", "/lag?topic=a.b&group=g"),
    ("GET", "/latest-by-key?topic=a.b&key=k"),
    ("HEAD", "/topics"),
];

#[tokio::test]
async fn rejects_missing_and_unknown_tokens() {
    let running = started(&[TOKENS]).await;
    let mut client = HttpClient::connect(&running).await;
    for (method, path) in REQUESTS {
        for (header, code) in [
            (None, "unauthorized"),
            (Some("Basic d3JpdGVyOg=="), "unauthorized"),
            (Some("Bearer"), "unauthorized"),
            (Some("Bearer  "), "unauthorized"),
            (Some("writer"), "unauthorized"),
            (Some("Bearer wrong"), "bad_token"),
            (Some("bearer é"), "bad_token"),
        ] {
            let header = header.map(|value| ("authorization", value));
            let reply = client.ask(method, path, header.as_slice(), "{}").await;
            assert_eq!(reply.header("www-authenticate"), Some("Bearer"));
            if method != "HEAD" {
                let message = reply.refused(401, code);
                assert!(!message.contains("wrong"), "{message}");
            }
        }
    }
    client.get("/nowhere").await.refused(404, "unknown_op");
}

#[tokio::test]
async fn each_path_requires_its_scope() {
    let running = started(&[TOKENS]).await;
    let mut writer = HttpClient::connect(&running).await.with_token("writer");
    assert_eq!(writer.post("/publish/a.b?key=k", "1").await.ok()["seq"], 1);
    let mut consumer = running.connect().await;
    consumer.ok(json!({"op": "AUTH", "token": "reader"})).await;
    consumer.subscribe("a.b", "g", json!({})).await;
    for (token, allowed) in [
        ("writer", &["POST /publish/a.b", "GET /topics", "HEAD /topics"][..]),
        (
            "reader",
            &[
                "GET /topics",
                "HEAD /topics",
                "GET /topics/a.b",
                "GET /groups?topic=a.b",
                "GET /cursors?topic=a.b",
                "GET /lag?topic=a.b&group=g",
                "GET /latest-by-key?topic=a.b&key=k",
            ],
        ),
        ("admin", &["GET /topics", "HEAD /topics", "PUT /topics/a.b"]),
        ("nobody", &["GET /topics", "HEAD /topics"]),
    ] {
        let mut client = HttpClient::connect(&running).await.with_token(token);
        for (method, path) in REQUESTS {
            let reply = client.ask(method, path, &[], "{}").await;
            if allowed.contains(&format!("{method} {path}").as_str()) {
                assert_eq!(reply.status, 200, "{token}: {method} {path}: {reply:?}");
            } else {
                reply.refused(403, "forbidden");
            }
        }
    }
}

#[tokio::test]
async fn reveals_nothing_about_inaccessible_topics() {
    let running = started(&[TOKENS]).await;
    let mut admin = HttpClient::connect(&running).await.with_token("admin");
    admin.put("/topics/secret", "{}").await.ok();
    let mut writer = HttpClient::connect(&running).await.with_token("writer");
    writer.post("/publish/a.b", "1").await.ok();
    for token in ["reader", "writer", "nobody"] {
        let mut client = HttpClient::connect(&running).await.with_token(token);
        let existing = client.get("/topics/secret").await;
        let absent = client.get("/topics/absent").await;
        let (existing, absent) =
            (existing.refused(403, "forbidden"), absent.refused(403, "forbidden"));
        assert_eq!(existing.replace("secret", ""), absent.replace("absent", ""));
    }
    for (token, expected) in [
        ("reader", &["a.b"][..]),
        ("writer", &["a.b"]),
        ("admin", &["a.b", "secret"]),
        ("nobody", &[]),
    ] {
        let mut client = HttpClient::connect(&running).await.with_token(token);
        let listed = client.get("/topics").await.ok();
        let names: Vec<_> =
            listed["topics"].as_array().unwrap().iter().map(|topic| &topic["topic"]).collect();
        assert_eq!(names, expected, "{token}");
    }
}

#[tokio::test]
async fn an_open_server_accepts_any_token() {
    let running = started(&[]).await;
    let mut client = HttpClient::connect(&running).await.with_token("whatever");
    client.put("/topics/t", "{}").await.ok();
}
