//! The built binary under limits of the operating system: few descriptors, small files.

use std::net::SocketAddr;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::cli::server::{Ran, Server, limited, run};
use crate::http::client::HttpClient;

const HANG_TIMEOUT: Duration = Duration::from_secs(20);

fn address(server: &Server) -> SocketAddr {
    server.http.strip_prefix("http://").expect("plain HTTP").parse().expect("an address")
}

/// Returns the start of the response, which is empty if the server has closed the connection.
async fn response(stream: &mut TcpStream) -> String {
    let mut bytes = [0; 12];
    // A connection that was closed may refuse the request already.
    let _ = stream.write_all(b"GET /topics HTTP/1.1\r\nhost: localhost\r\n\r\n").await;
    let read = timeout(HANG_TIMEOUT, stream.read_exact(&mut bytes)).await.expect("no response");
    read.map_or(String::new(), |_| String::from_utf8_lossy(&bytes).into_owned())
}

#[tokio::test]
async fn connections_leave_enough_descriptors_to_the_store() {
    let folder = tempfile::tempdir().unwrap();
    let mut server = Server::limited("ulimit -n 200", folder.path(), &["server.threads=1"]);
    let address = address(&server);
    let mut client = HttpClient::connect_to(address).await;
    client.post("/publish/t", "1").await.ok();
    let mut connections = Vec::new();
    for _ in 0..250 {
        connections.push(TcpStream::connect(address).await.unwrap());
    }
    // The first connection and the store work on.
    for number in 2..50 {
        assert_eq!(client.post("/publish/t", "1").await.ok()["seq"], number);
    }
    assert_eq!(client.get("/replay?topic=t").await.ok()["count"], 49);
    HttpClient::connect_to(address).await.get("/healthz").await.ok();
    let (mut served, mut refused, mut closed) = (0, 0, 0);
    for connection in &mut connections {
        match response(connection).await.as_str() {
            "HTTP/1.1 200" => served += 1,
            "HTTP/1.1 503" => refused += 1,
            "" => closed += 1,
            other => panic!("{other}"),
        }
    }
    // One address gets half of the connections that the limit allows.
    assert!((15..30).contains(&served), "{served} served, {refused} refused, {closed} closed");
    assert!(closed > 100, "{served} served, {refused} refused, {closed} closed");
    drop(connections);
    // There is room again as soon as the server has noticed.
    let is_served = async {
        while response(&mut TcpStream::connect(address).await.unwrap()).await != "HTTP/1.1 200" {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    timeout(HANG_TIMEOUT, is_served).await.expect("no connection is served any more");
    assert!(server.is_running());
}

#[test]
fn a_start_with_too_few_descriptors_is_an_error() {
    let folder = tempfile::tempdir().unwrap();
    let ran: Ran = run(limited("ulimit -n 100", folder.path(), &["server.threads=1"]), "");
    ran.failed_with("the limit of open files is 100, but the server needs at least 164");
    ran.failed_with("ulimit -n");
}

#[tokio::test]
async fn a_limit_of_the_file_size_is_a_full_disk() {
    let folder = tempfile::tempdir().unwrap();
    let mut server = Server::limited("ulimit -f 8192", folder.path(), &[]);
    let mut client = HttpClient::connect_to(address(&server)).await;
    let payload = format!("\"{}\"", "x".repeat(200_000));
    let mut stored = 0;
    let refused = loop {
        let reply = client.post("/publish/t", payload.clone()).await;
        if reply.status != 200 {
            break reply;
        }
        stored += 1;
        assert!(stored < 1000, "the limit has no effect");
    };
    refused.refused(503, "storage_unavailable");
    assert!(stored > 0 && server.is_running());
    let mut client = HttpClient::connect_to(address(&server)).await;
    let export = client.get("/export?topic=t").await;
    assert_eq!(export.body.iter().filter(|byte| **byte == b'\n').count(), stored);
    client.get("/readyz").await.refused(503, "storage_unavailable");
    assert!(server.is_running());
}
