//! `GET /latest-by-key`.

use crate::gateway::running::started;
use crate::http::client::HttpClient;

#[tokio::test]
async fn returns_the_last_event_byte_for_byte() {
    let running = started(&[]).await;
    let mut client = HttpClient::connect(&running).await;
    // No JSON writer would print it like this.
    let payload = r#"{"b":1.50,  "a":1e2,"é":"\u00e9"}"#;
    for (path, body) in [
        ("/publish/t?key=k%2F1&id=a&ts=1", "1"),
        ("/publish/t?key=k%2F1&id=b&ts=2", payload),
        ("/publish/t?key=other&id=c&ts=3", "3"),
        ("/publish/t?id=d&ts=4", "4"),
    ] {
        client.post(path, body).await.ok();
    }
    let reply = client.get("/latest-by-key?topic=t&key=k/1").await;
    assert_eq!(reply.ok()["event"]["seq"], 2);
    let body = std::str::from_utf8(&reply.body).unwrap();
    assert!(body.contains(&format!("\"payload\":{payload}")), "{body}");
    let message = client.get("/latest-by-key?topic=t&key=none").await.refused(404, "unknown_id");
    assert_eq!(message, "t holds no event with the key \"none\"");
}
