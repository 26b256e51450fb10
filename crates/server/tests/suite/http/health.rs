//! Health checks, and the gateway on the HTTP port.

use std::sync::Arc;

use prombus_engine::{DiskEngine, DiskOptions};
use serde_json::json;

use crate::gateway::client::Client;
use crate::gateway::running::{started, started_over};
use crate::http::client::HttpClient;

#[tokio::test]
async fn health_checks_need_no_token() {
    let running = started(&[r#"auth.tokens=[{token="x",scopes=[]}]"#]).await;
    let mut client = HttpClient::connect(&running).await;
    for path in ["/healthz", "/readyz"] {
        assert_eq!(client.get(path).await.ok(), json!({"status": "ok"}));
        let head = client.ask("HEAD", path, &[], "").await;
        assert_eq!((head.status.as_u16(), head.body.len()), (200, 0));
    }
}

#[tokio::test]
async fn ws_upgrades_to_the_gateway() {
    let running = started(&[]).await;
    let address = running.server.http();
    let stream = tokio::net::TcpStream::connect(address).await.unwrap();
    let mut socket = Client::over(stream, &format!("ws://{address}/ws")).await;
    socket.subscribe("t", "g", json!({})).await;
    socket.publish("t", json!(1)).await;
    assert_eq!(socket.event().await["event"]["payload"], 1);
    let mut client = HttpClient::connect(&running).await;
    let reply = client.get("/ws").await;
    assert!(reply.refused(426, "bad_frame").contains("WebSocket"));
    assert_eq!(reply.header("upgrade"), Some("websocket"));
    let stopped = tokio::spawn(running.server.stop());
    assert_eq!(socket.close_code().await, 1001);
    drop(socket);
    stopped.await.unwrap().unwrap();
}

#[tokio::test]
async fn is_not_ready_while_storage_fails() {
    let folder = tempfile::tempdir().unwrap();
    let options = DiskOptions::at(folder.path());
    let faults = Arc::clone(&options.faults);
    let engine = Arc::new(DiskEngine::open(&options).unwrap());
    let running = started_over(engine, &[]).await;
    let mut client = HttpClient::connect(&running).await;
    faults.leave_room(0);
    client.post("/publish/t", "1").await.refused(503, "storage_unavailable");
    let message = client.get("/readyz").await.refused(503, "storage_unavailable");
    assert!(message.starts_with("the storage is full: "), "{message}");
    faults.make_room();
    client.post("/publish/t", "1").await.ok();
    client.get("/readyz").await.ok();
    faults.fail_syncs(true);
    client.post("/publish/t", "1").await.refused(503, "storage_unavailable");
    let message = client.get("/readyz").await.refused(503, "storage_unavailable");
    assert!(message.starts_with("the storage failed; restart the server: "), "{message}");
    client.get("/healthz").await.ok();
}

#[tokio::test]
async fn is_not_ready_after_the_store_is_closed() {
    let running = started(&[]).await;
    let mut client = HttpClient::connect(&running).await;
    running.server.engine().close().await.unwrap();
    let message = client.get("/readyz").await.refused(503, "storage_unavailable");
    assert_eq!(message, "the storage is closed");
}
