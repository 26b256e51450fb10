//! Invalid requests.

use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;

use crate::gateway::running::started;
use crate::http::client::{HttpClient, Raw};

#[tokio::test]
async fn rejects_unknown_paths_and_methods() {
    let running = started(&[]).await;
    let mut client = HttpClient::connect(&running).await;
    for path in ["/nothing", "/publish", "/publish/", "/publish/a/b", "/healthz/", "//healthz"] {
        let message = client.get(path).await.refused(404, "unknown_op");
        assert!(message.contains(path), "{message}");
    }
    for (method, path, allow) in [
        ("GET", "/publish/t", "POST"),
        ("PUT", "/publish/t", "POST"),
        ("POST", "/healthz", "GET,HEAD"),
        ("BREW", "/readyz", "GET,HEAD"),
        ("OPTIONS", "/readyz", "GET,HEAD"),
    ] {
        let reply = client.ask(method, path, &[], "").await;
        assert!(reply.refused(405, "unknown_op").contains(method));
        assert_eq!(reply.header("allow"), Some(allow), "{method} {path}");
    }
}

#[tokio::test]
async fn rejects_invalid_publishes() {
    let running = started(&["gateway.max_frame_bytes=1024"]).await;
    let mut client = HttpClient::connect(&running).await;
    let nested = |depth| format!("{}{}", "[".repeat(depth), "]".repeat(depth));
    let (deep, deeper) = (nested(101), nested(200));
    for (path, body, status, code, reason) in [
        (
            "/publish/Orders",
            "1",
            400,
            "bad_topic",
            "the topic in the path: a name may only contain",
        ),
        ("/publish/a%20b", "1", 400, "bad_topic", "not ' '"),
        ("/publish/a%2fb", "1", 400, "bad_topic", "not '/'"),
        ("/publish/%ff", "1", 400, "bad_frame", "the path is not UTF-8"),
        ("/nothing/%ff", "1", 400, "bad_frame", "the path is not UTF-8"),
        ("/publish/t?kye=1", "1", 400, "bad_frame", "unknown parameter \"kye\""),
        ("/publish/t?key=1&key=1", "1", 400, "bad_frame", "the parameter key is given more"),
        ("/publish/t?key=", "1", 400, "bad_frame", "the parameter key is invalid: a key must be"),
        ("/publish/t?key=%ff", "1", 400, "bad_frame", "the parameter key is not"),
        ("/publish/t?id=a%00b", "1", 400, "bad_frame", "the parameter id is invalid"),
        ("/publish/t?ts=now", "1", 400, "bad_frame", "the parameter ts must be a whole number"),
        ("/publish/t?ts=-1", "1", 400, "bad_frame", "the parameter ts must be a whole number"),
        ("/publish/t", "", 400, "bad_json", "the body: not JSON: expected a value at byte 0"),
        ("/publish/t", "{\"a\":1", 400, "bad_json", "the body: not JSON: "),
        ("/publish/t", "1 2", 400, "bad_json", "unexpected text after the value"),
        ("/publish/t", "order=1", 400, "bad_json", "the body: not JSON: "),
        ("/publish/t", &deep, 400, "bad_frame", "payload nests 101 levels; the limit is 100"),
        ("/publish/t", &deeper, 400, "bad_frame", "nested deeper than 128 levels at byte 128"),
        ("/healthz?verbose", "", 405, "unknown_op", "does not support POST"),
    ] {
        let message = client.post(path, body.to_owned()).await.refused(status, code);
        assert!(message.contains(reason), "{path} {body}: {message}");
    }
    for payload in [&deep, &deeper] {
        let lines = format!("{{\"payload\":1}}\n{{\"payload\":{payload}}}\n");
        let message = client.ndjson("/publish/t", lines).await.refused(400, "bad_frame");
        assert!(message.starts_with("line 2: "), "{message}");
    }
    let message = client.get("/healthz?verbose").await.refused(400, "bad_frame");
    assert!(message.contains("\"verbose\"; this path takes none"), "{message}");
    assert_eq!(client.post("/publish/t", nested(100)).await.ok()["seq"], 1, "nothing was stored");
}

#[tokio::test]
async fn rejects_invalid_event_headers() {
    let running = started(&[]).await;
    let mut client = HttpClient::connect(&running).await;
    let names: Vec<_> = (0..65).map(|n| format!("x-event-h{n}")).collect();
    let many: Vec<_> = names.iter().map(|name| (name.as_str(), "v")).collect();
    for (headers, reason) in [
        (&[("x-event-", "v")][..], "the header x-event- has no name"),
        (&[("x-event-a", "v"), ("X-Event-A", "w")], "the header x-event-a is given more than once"),
        (&many, "an event has at most 64 headers"),
    ] {
        let reply = client.ask("POST", "/publish/t", headers, "1").await;
        let message = reply.refused(400, "bad_frame");
        assert!(message.contains(reason), "{message}");
    }
    assert_eq!(client.ask("POST", "/publish/t", &many[1..], "1").await.ok()["seq"], 1);
}

#[tokio::test]
async fn rejects_an_event_header_that_is_not_utf8() {
    let running = started(&[]).await;
    let head = "content-length: 1\r\nx-event-a: ";
    let mut raw = Raw(TcpStream::connect(running.server.http()).await.unwrap());
    raw.send(&format!("POST /publish/t HTTP/1.1\r\nhost: localhost\r\n{head}")).await;
    raw.0.write_all(b"\xff\r\n\r\n1").await.unwrap();
    let (status, error) = raw.answer().await;
    assert_eq!((status, error["code"].as_str()), (400, Some("bad_frame")));
    assert_eq!(error["error"], "the header x-event-a is not UTF-8");
}
