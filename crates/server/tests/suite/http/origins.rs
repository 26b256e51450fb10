//! Requests from web pages.

use crate::gateway::running::started;
use crate::http::client::HttpClient;

const LISTED: &str = r#"auth.allowed_origins=["https://app.example"]"#;

#[tokio::test]
async fn rejects_foreign_pages_on_every_path() {
    let running = started(&[LISTED]).await;
    let mut client = HttpClient::connect(&running).await;
    let ask_preflight = ("access-control-request-method", "POST");
    for origin in ["https://evil.example", "null", "http://127.0.0.1", "nonsense"] {
        for (method, path) in [
            ("GET", "/healthz"),
            ("GET", "/topics"),
            ("POST", "/publish/t"),
            ("GET", "/nowhere"),
            ("OPTIONS", "/publish/t"),
        ] {
            let headers = [("origin", origin), ask_preflight];
            let reply = client.ask(method, path, &headers, "1").await;
            reply.refused(403, "forbidden");
            assert_eq!(reply.header("access-control-allow-origin"), None);
        }
    }
    client.get("/topics/t").await.refused(404, "unknown_topic");
}

#[tokio::test]
async fn allowed_pages_may_read_every_response() {
    let running = started(&[LISTED]).await;
    let own = format!("http://{}", running.server.http());
    let mut client = HttpClient::connect(&running).await;
    for origin in ["https://app.example", &own] {
        for (path, status) in [("/healthz", 200), ("/nowhere", 404), ("/topics/T", 400)] {
            let reply = client.ask("GET", path, &[("origin", origin)], "").await;
            assert_eq!(reply.status, status);
            assert_eq!(reply.header("access-control-allow-origin"), Some(origin));
            let exposed = reply.header("access-control-expose-headers");
            assert_eq!(exposed, Some("RateLimit, RateLimit-Policy, Retry-After"));
            assert_eq!(reply.header("vary"), Some("Origin"));
        }
    }
    let reply = client.get("/healthz").await;
    assert_eq!(reply.header("access-control-allow-origin"), None, "the request is not from a page");
}

#[tokio::test]
async fn null_and_all_origins_can_be_allowed() {
    for (list, is_allowed) in [("null", [true, false]), ("*", [true, true])] {
        let running = started(&[&format!(r#"auth.allowed_origins=["{list}"]"#)]).await;
        let mut client = HttpClient::connect(&running).await;
        for (origin, is_allowed) in ["null", "https://evil.example"].into_iter().zip(is_allowed) {
            let reply = client.ask("GET", "/healthz", &[("origin", origin)], "").await;
            assert_eq!(reply.status == 200, is_allowed, "{origin} with {list}");
        }
    }
}

#[tokio::test]
async fn answers_preflight_requests() {
    let set = [LISTED, r#"auth.tokens=[{token="x",scopes=[]}]"#];
    let running = started(&set).await;
    let mut client = HttpClient::connect(&running).await;
    let headers = [
        ("origin", "https://app.example"),
        ("access-control-request-method", "PUT"),
        ("access-control-request-headers", "authorization,x-event-trace"),
    ];
    let reply = client.ask("OPTIONS", "/topics/t", &headers, "").await;
    assert_eq!((reply.status.as_u16(), reply.body.len()), (204, 0), "a preflight carries no token");
    for (name, value) in [
        ("access-control-allow-origin", "https://app.example"),
        ("access-control-allow-methods", "DELETE, GET, HEAD, POST, PUT"),
        ("access-control-allow-headers", "authorization,x-event-trace"),
        ("access-control-max-age", "600"),
    ] {
        assert_eq!(reply.header(name), Some(value));
    }
    // Without Access-Control-Request-Method it is an ordinary request.
    let reply = client.ask("OPTIONS", "/topics/t", &headers[..1], "").await;
    reply.refused(405, "unknown_op");
    assert_eq!(reply.header("allow"), Some("GET,HEAD,PUT,DELETE"));
}

/// With DNS rebinding, a page reaches this server as its own host and sends no origin.
#[tokio::test]
async fn without_tokens_the_host_must_be_an_address() {
    let running = started(&[LISTED]).await;
    let mut client = HttpClient::connect(&running).await;
    for (host, status) in [
        ("127.0.0.1:8083", 200),
        ("localhost:1", 200),
        ("[::1]:8083", 200),
        ("app.example", 200),
        ("evil.example:8083", 403),
        ("", 403),
    ] {
        let reply = client.ask("GET", "/topics", &[("host", host)], "").await;
        assert_eq!(reply.status, status, "{host}");
    }
    let running = started(&[r#"auth.tokens=[{token="x",scopes=[]}]"#]).await;
    let mut client = HttpClient::connect(&running).await.with_token("x");
    client.ask("GET", "/topics", &[("host", "bus.example")], "").await.ok();
}

#[tokio::test]
async fn rejects_connections_over_the_limit() {
    let running = started(&["gateway.max_connections=1"]).await;
    let mut first = HttpClient::connect(&running).await;
    first.get("/topics").await.ok();
    let mut second = HttpClient::connect(&running).await;
    let reply = second.get("/topics").await;
    assert_eq!(reply.refused(503, "rate_limited"), "too many connections");
    assert_eq!(reply.header("connection"), Some("close"));
    first.get("/topics").await.ok();
}
