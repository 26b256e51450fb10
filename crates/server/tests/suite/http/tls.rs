//! HTTP over TLS.

use rustls_pki_types::ServerName;
use tokio::net::TcpStream;

use crate::gateway::encryption::encrypted;
use crate::http::client::HttpClient;

#[tokio::test]
async fn serves_requests_over_tls() {
    let encrypted = encrypted(&[]).await;
    let server = &encrypted.running.server;
    assert_eq!(server.http_url(), format!("https://{}", server.http()));
    let name = ServerName::try_from("localhost").unwrap();
    let stream = TcpStream::connect(server.http()).await.unwrap();
    let stream = encrypted.trusting.connect(name, stream).await.unwrap();
    let mut client = HttpClient::over(stream, "localhost").await;
    let large = format!("\"{}\"", "x".repeat(1_000_000));
    client.post("/publish/t?key=k", large.clone()).await.ok();
    let event = client.get("/latest-by-key?topic=t&key=k").await;
    assert!(std::str::from_utf8(&event.body).unwrap().contains(&large));
}
