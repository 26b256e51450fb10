//! TLS, with a self-signed certificate.

use std::sync::Arc;
use std::time::Duration;

use rustls_pki_types::ServerName;
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::{ClientConfig, RootCertStore};

use crate::gateway::client::Client;
use crate::gateway::running::{Running, started};

pub(crate) struct Encrypted {
    pub(crate) running: Running,
    pub(crate) trusting: TlsConnector,
    _files: tempfile::TempDir,
}

pub(crate) async fn encrypted(set: &[&str]) -> Encrypted {
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let files = tempfile::tempdir().unwrap();
    let (cert, key) = (files.path().join("cert.pem"), files.path().join("key.pem"));
    std::fs::write(&cert, made.cert.pem()).unwrap();
    std::fs::write(&key, made.signing_key.serialize_pem()).unwrap();
    let cert = format!("server.tls.cert_file={}", cert.display());
    let key = format!("server.tls.key_file={}", key.display());
    let running = started(&[&[cert.as_str(), key.as_str()], set].concat()).await;
    let mut roots = RootCertStore::empty();
    roots.add(made.cert.der().clone()).unwrap();
    let config = ClientConfig::builder().with_root_certificates(roots).with_no_client_auth();
    Encrypted { running, trusting: TlsConnector::from(Arc::new(config)), _files: files }
}

impl Encrypted {
    async fn connect(&self) -> Client {
        let name = ServerName::try_from("localhost").unwrap();
        let stream = self.trusting.connect(name, self.running.tcp().await).await.unwrap();
        Client::over(stream, "wss://localhost/").await
    }
}

#[tokio::test]
async fn serves_frames_of_all_sizes_over_tls() {
    let encrypted = encrypted(&[]).await;
    assert!(encrypted.running.server.ws_url().starts_with("wss://127.0.0.1:"));
    let mut client = encrypted.connect().await;
    client.subscribe("t", "g", json!({})).await;
    for size in [1, 1000, 100_000, 1_000_000] {
        client.publish("t", json!("x".repeat(size))).await;
        let event = client.event().await;
        assert_eq!(crate::gateway::client::payload(&event).as_str().unwrap().len(), size);
        client.ack(&event).await;
    }
}

#[tokio::test]
async fn the_close_frame_of_a_shutdown_arrives_over_tls() {
    let encrypted = encrypted(&[]).await;
    let mut client = encrypted.connect().await;
    client.assert_lives().await;
    let stopped = tokio::spawn(encrypted.running.server.stop());
    assert_eq!(client.close_code().await, 1001);
    drop(client);
    stopped.await.unwrap().unwrap();
}

#[tokio::test]
async fn detects_a_slow_consumer_over_tls() {
    let set = ["gateway.slow_consumer_timeout_ms=300", "gateway.max_frame_bytes=16777216"];
    let encrypted = encrypted(&set).await;
    let mut client = encrypted.connect().await;
    client.subscribe("t", "g", json!({})).await;
    let mut publisher = encrypted.connect().await;
    publisher.publish("t", json!("x".repeat(12 << 20))).await;
    tokio::time::sleep(Duration::from_millis(1500)).await;
    assert_eq!(client.close_code().await, 4008);
}

#[tokio::test]
async fn drops_a_connection_without_tls() {
    let encrypted = encrypted(&[]).await;
    let mut stream = encrypted.running.tcp().await;
    stream.write_all(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n").await.unwrap();
    let mut answer = Vec::new();
    let ended = timeout(Duration::from_secs(20), stream.read_to_end(&mut answer)).await;
    // It may end in any way, but not with HTTP.
    let _ = ended.expect("the server drops it");
    assert!(!answer.starts_with(b"HTTP"));
}
