//! The server itself: alive, ready, and the gateway on this port.

use serde_json::json;

use crate::gateway::client::Client;
use crate::gateway::running::started;
use crate::http::client::HttpClient;

#[tokio::test]
async fn alive_and_ready_need_no_token() {
    let running = started(&[r#"auth.tokens=[{token="x",scopes=[]}]"#]).await;
    let mut client = HttpClient::connect(&running).await;
    for path in ["/healthz", "/readyz"] {
        assert_eq!(client.get(path).await.ok(), json!({"status": "ok"}));
        let head = client.ask("HEAD", path, &[], "").await;
        assert_eq!((head.status.as_u16(), head.body.len()), (200, 0));
    }
}

#[tokio::test]
async fn the_gateway_is_on_this_port_too() {
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
