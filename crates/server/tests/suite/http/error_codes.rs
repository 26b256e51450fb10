//! Every error code that HTTP can return.

use std::future::Future;
use std::pin::Pin;

use prombus_proto::ErrorCode;

use crate::gateway::running::{started, started_with_faults, started_with_unreadable_cursor};
use crate::http::client::{HttpClient, Raw, Reply};

type Response = Pin<Box<dyn Future<Output = Reply>>>;

const TOKENS: &str = r#"auth.tokens=[{token="one",scopes=["subscribe:t"]}]"#;

fn requests() -> Vec<(ErrorCode, Response)> {
    let few = &[
        "limits.enabled=true",
        "limits.connection.capacity=1",
        "limits.connection.refill_per_sec=1",
    ];
    vec![
        (ErrorCode::BadJson, last_of(&[], None, &[("POST", "/publish/t", "nonsense")])),
        (ErrorCode::BadFrame, last_of(&[], None, &[("GET", "/groups", "")])),
        (ErrorCode::BadTopic, last_of(&[], None, &[("GET", "/topics/T", "")])),
        (ErrorCode::BadGroup, last_of(&[], None, &[("GET", "/lag?topic=t&group=G", "")])),
        (
            ErrorCode::PayloadTooLarge,
            last_of(&["gateway.max_frame_bytes=1024"], None, &[("POST", "/publish/t", LARGE)]),
        ),
        (ErrorCode::Unauthorized, last_of(&[TOKENS], None, &[("GET", "/topics", "")])),
        (ErrorCode::BadToken, last_of(&[TOKENS], Some("two"), &[("GET", "/topics", "")])),
        (ErrorCode::Forbidden, last_of(&[TOKENS], Some("one"), &[("POST", "/publish/t", "1")])),
        (ErrorCode::RateLimited, last_of(few, None, &[("POST", "/publish/t", "1"); 2])),
        (
            ErrorCode::LimitExceeded,
            last_of(
                &["limits.enabled=true", "limits.max_topics=1"],
                None,
                &[("POST", "/publish/t", "1"), ("PUT", "/topics/u", "{}")],
            ),
        ),
        (
            ErrorCode::UnknownId,
            last_of(
                &[],
                None,
                &[("POST", "/publish/t", "1"), ("GET", "/latest-by-key?topic=t&key=k", "")],
            ),
        ),
        (ErrorCode::UnknownTopic, last_of(&[], None, &[("GET", "/topics/t", "")])),
        (
            ErrorCode::UnknownGroup,
            last_of(&[], None, &[("POST", "/publish/t", "1"), ("GET", "/lag?topic=t&group=g", "")]),
        ),
        (ErrorCode::StorageUnavailable, Box::pin(storage_unavailable())),
        (ErrorCode::Internal, Box::pin(internal())),
    ]
}

const LARGE: &str = {
    const BYTES: [u8; 2000] = [b'1'; 2000];
    match std::str::from_utf8(&BYTES) {
        Ok(text) => text,
        Err(_) => unreachable!(),
    }
};

/// Covered by tests of their own.
const COVERED_ELSEWHERE: [ErrorCode; 2] = [ErrorCode::UnknownOp, ErrorCode::ShuttingDown];

/// Codes that HTTP never returns, and why.
const NEVER: [(ErrorCode, &str); 5] = [
    (ErrorCode::AlreadySubscribed, "HTTP has no subscriptions"),
    (ErrorCode::NotSubscribed, "HTTP has no subscriptions"),
    (ErrorCode::LeaseLost, "HTTP has no leases"),
    (ErrorCode::SchemaViolation, "topics have no schemas yet"),
    (ErrorCode::Conflict, "no request has a precondition"),
];

/// The response to the last of these requests.
fn last_of(
    set: &'static [&'static str],
    token: Option<&'static str>,
    requests: &[(&'static str, &'static str, &'static str)],
) -> Response {
    let requests = requests.to_vec();
    Box::pin(async move {
        let running = started(set).await;
        let mut client = HttpClient::connect(&running).await;
        if let Some(token) = token {
            client = client.with_token(token);
        }
        let mut last = None;
        for (method, path, body) in requests {
            last = Some(client.ask(method, path, &[], body).await);
        }
        last.unwrap()
    })
}

async fn storage_unavailable() -> Reply {
    let (running, faults) = started_with_faults(&[]).await;
    let mut client = HttpClient::connect(&running).await;
    client.post("/publish/t", "1").await.ok();
    faults.fail_commits_before(1);
    let reply = client.post("/publish/t", "1").await;
    for path in ["/topics", "/topics/t", "/groups?topic=t", "/latest-by-key?topic=t&key=k"] {
        // Not a single one: retention reads, too.
        faults.fail_reads(usize::MAX);
        client.get(path).await.refused(503, "storage_unavailable");
    }
    faults.fail_reads(0);
    faults.fail_commits_before(1);
    client.put("/topics/t", "{\"retention_ms\":1}").await.refused(503, "storage_unavailable");
    assert_eq!(client.get("/topics/t").await.ok()["own"], serde_json::json!({}));
    reply
}

async fn internal() -> Reply {
    let running = started_with_unreadable_cursor().await;
    let mut client = HttpClient::connect(&running).await;
    client.post("/publish/t", "1").await.ok();
    client.get("/lag?topic=t&group=g").await
}

#[tokio::test]
async fn covers_every_code() {
    let mut known: Vec<_> =
        NEVER.map(|(code, _)| code).into_iter().chain(COVERED_ELSEWHERE).collect();
    for (code, response) in requests() {
        let reply = response.await;
        let message = reply.refused(code.http_status(), code.as_str());
        assert!(!message.is_empty());
        let has_delay = reply.header("retry-after").is_some();
        assert_eq!(has_delay, code == ErrorCode::RateLimited, "{code}");
        known.push(code);
    }
    for code in ErrorCode::ALL {
        let times = known.iter().filter(|known| *known == code).count();
        assert_eq!(times, 1, "{code} must be in exactly one of the lists");
    }
}

#[tokio::test]
async fn a_publish_completed_during_shutdown_is_rejected() {
    let running = started(&[]).await;
    let mut raw = Raw::post_started(&running, "/publish/t", "content-length: 2\r\n", "1").await;
    let stopped = tokio::spawn(running.server.stop());
    tokio::task::yield_now().await;
    raw.send("2").await;
    let (status, error) = raw.answer().await;
    assert_eq!((status, error["code"].as_str()), (503, Some("shutting_down")), "{error}");
    drop(raw);
    stopped.await.unwrap().unwrap();
}
