//! Shutdown.

use std::time::Duration;

use serde_json::json;
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::gateway::running::{started, started_with_faults};
use crate::http::client::{HttpClient, Raw};

const STOP_TIMEOUT: Duration = Duration::from_secs(10);

#[tokio::test]
async fn answers_requests_in_progress() {
    let (running, faults) = started_with_faults(&[]).await;
    let address = running.server.http();
    faults.shut_gate();
    let publishing = tokio::spawn(async move {
        let mut client = HttpClient::connect_to(address).await;
        client.post("/publish/t", "1").await.ok()["seq"].clone()
    });
    faults.until_waiting(1).await;
    let stopped = tokio::spawn(running.server.stop());
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert!(TcpStream::connect(address).await.is_err(), "the listener is closed");
    faults.open_gate();
    assert_eq!(publishing.await.unwrap(), json!(1));
    timeout(STOP_TIMEOUT, stopped).await.unwrap().unwrap().unwrap();
}

#[tokio::test]
async fn idle_and_stalled_clients_do_not_delay_it() {
    let running = started(&[]).await;
    let mut idle = HttpClient::connect(&running).await;
    idle.get("/healthz").await.ok();
    let silent = TcpStream::connect(running.server.http()).await.unwrap();
    let in_head = Raw::post(&running, "/publish/t", "content-length: 10\r\nx-more", "").await;
    let in_body = Raw::post(&running, "/publish/t", "content-length: 10\r\n", "1").await;
    let ndjson = "content-type: application/x-ndjson\r\ncontent-length: 100\r\n";
    let in_lines = Raw::post(&running, "/publish/t", ndjson, "{").await;
    timeout(STOP_TIMEOUT, running.server.stop()).await.expect("it stops in time").unwrap();
    drop((idle, silent, in_head, in_body, in_lines));
}
