//! Tokens and what they allow.

use serde_json::json;

use crate::gateway::running::started;
use crate::http::client::HttpClient;

const TOKENS: &str = r#"auth.tokens=[
    {token="writer",scopes=["publish:a.*"]},
    {token="reader",scopes=["read:a.*"]},
    {token="consumer",scopes=["consume:a.*/g"]},
    {token="subscriber",scopes=["subscribe:a.*"]},
    {token="manager",scopes=["manage:a.*"]},
    {token="admin",scopes=["admin"]},
    {token="nobody",scopes=[]},
]"#;

/// A valid request for every path that requires a token.
const REQUESTS: [(&str, &str); 17] = [
    ("POST", "/publish/a.b"),
    ("GET", "/topics"),
    ("GET", "/topics/a.b"),
    ("PUT", "/topics/a.b"),
    ("GET", "/groups?topic=a.b"),
    ("GET", "/cursors?topic=a.b"),
    ("GET", "/lag?topic=a.b&group=g"),
    ("GET", "/groups/a.b/g"),
    ("GET", "/dlq/a.b"),
    ("POST", "/dlq/a.b/redrive"),
    ("GET", "/latest-by-key?topic=a.b&key=k"),
    ("GET", "/replay?topic=a.b"),
    ("GET", "/export?topic=a.b"),
    ("HEAD", "/stream?topic=a.b"),
    ("GET", "/metrics"),
    ("HEAD", "/backup"),
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
    consumer.ok(json!({"op": "AUTH", "token": "consumer"})).await;
    consumer.subscribe("a.b", "g", json!({})).await;
    let reading = [
        "GET /topics/a.b",
        "GET /dlq/a.b",
        "GET /latest-by-key?topic=a.b&key=k",
        "GET /replay?topic=a.b",
        "GET /export?topic=a.b",
        "HEAD /stream?topic=a.b",
    ];
    let groups = [
        "GET /groups?topic=a.b",
        "GET /groups/a.b/g",
        "GET /cursors?topic=a.b",
        "GET /lag?topic=a.b&group=g",
    ];
    let managing = ["GET /topics/a.b", "PUT /topics/a.b", "GET /dlq/a.b", "POST /dlq/a.b/redrive"];
    let all = REQUESTS.map(|(method, path)| format!("{method} {path}"));
    let all: Vec<_> = all.iter().map(String::as_str).collect();
    for (token, allowed) in [
        ("writer", vec!["POST /publish/a.b"]),
        ("reader", reading.to_vec()),
        ("consumer", groups.to_vec()),
        ("subscriber", [&reading[..], &groups].concat()),
        ("manager", [&managing[..], &groups].concat()),
        ("admin", all),
        ("nobody", vec![]),
    ] {
        let allowed = [allowed, vec!["GET /topics", "HEAD /topics"]].concat();
        let mut client = HttpClient::connect(&running).await.with_token(token);
        for (method, path) in REQUESTS {
            let reply = client.ask(method, path, &[], "{}").await;
            if allowed.contains(&format!("{method} {path}").as_str()) {
                assert_eq!(reply.status, 200, "{token}: {method} {path}: {reply:?}");
            } else {
                assert_eq!(reply.status, 403, "{token}: {method} {path}: {reply:?}");
            }
        }
    }
}

#[tokio::test]
async fn lists_only_the_groups_that_a_token_may_consume_as() {
    let running = started(&[TOKENS]).await;
    let mut member = running.connect().await;
    member.ok(json!({"op": "AUTH", "token": "subscriber"})).await;
    let mut writer = HttpClient::connect(&running).await.with_token("writer");
    writer.post("/publish/a.b", "1").await.ok();
    for group in ["g", "h"] {
        member.subscribe("a.b", group, json!({})).await;
    }
    for (token, expected) in
        [("consumer", &["g"][..]), ("subscriber", &["g", "h"]), ("manager", &["g", "h"])]
    {
        let mut client = HttpClient::connect(&running).await.with_token(token);
        for list in ["groups", "cursors"] {
            let listed = client.get(&format!("/{list}?topic=a.b")).await.ok();
            let names: Vec<_> =
                listed[list].as_array().unwrap().iter().map(|entry| &entry["group"]).collect();
            assert_eq!(names, expected, "{token}");
        }
        let lag = client.get("/lag?topic=a.b&group=h").await;
        assert_eq!(lag.status == 200, expected.contains(&"h"), "{token}: {lag:?}");
    }
}

#[tokio::test]
async fn reveals_nothing_about_inaccessible_topics() {
    let running = started(&[TOKENS]).await;
    let mut admin = HttpClient::connect(&running).await.with_token("admin");
    admin.put("/topics/secret", "{}").await.ok();
    let mut writer = HttpClient::connect(&running).await.with_token("writer");
    writer.post("/publish/a.b", "1").await.ok();
    for token in ["reader", "writer", "consumer", "manager", "nobody"] {
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
        ("consumer", &["a.b"]),
        ("manager", &["a.b"]),
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
