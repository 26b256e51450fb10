//! Headers that every request needs and every response has.

use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::gateway::running::{Running, started};

/// Sends a request as it is, and returns the response of the port.
async fn answer(running: &Running, is_http: bool, request: &str) -> String {
    let address = if is_http { running.server.http() } else { running.server.ws() };
    let mut stream = TcpStream::connect(address).await.unwrap();
    let request = request.replacen("\r\n\r\n", "\r\nConnection: close\r\n\r\n", 1);
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut read = Vec::new();
    let reading = timeout(Duration::from_secs(20), stream.read_to_end(&mut read)).await;
    reading.expect("the server does not respond").unwrap();
    String::from_utf8(read).unwrap()
}

#[tokio::test]
async fn a_request_has_exactly_one_host() {
    let running = started(&[]).await;
    for is_http in [true, false] {
        for (version, hosts, is_refused) in [
            ("1.1", &[][..], true),
            ("1.1", &["localhost"], false),
            ("1.1", &["localhost", "localhost"], true),
            ("1.1", &["localhost", "evil.example"], true),
            ("1.0", &[], false),
            ("1.0", &["localhost", "evil.example"], true),
        ] {
            let headers: String = hosts.iter().map(|host| format!("Host: {host}\r\n")).collect();
            let request = format!("GET /healthz HTTP/{version}\r\n{headers}\r\n");
            let answer = answer(&running, is_http, &request).await;
            let status = &answer["HTTP/1.1 ".len()..][..3];
            let expected = if is_http { "200" } else { "404" };
            assert_eq!(status, if is_refused { "400" } else { expected }, "{hosts:?}: {answer}");
            if is_refused {
                assert!(answer.contains("Host header"), "{answer}");
                assert_eq!(answer.contains(r#""code":"bad_frame""#), is_http, "{answer}");
            }
        }
    }
}

#[tokio::test]
async fn every_response_forbids_guessing_its_type() {
    let running = started(&[]).await;
    for (is_http, request) in [
        (true, "GET /healthz HTTP/1.1\r\nHost: localhost"),
        (true, "GET /docs HTTP/1.1\r\nHost: localhost"),
        (true, "GET /nowhere HTTP/1.1\r\nHost: localhost"),
        (true, "GET /replay?topic=T HTTP/1.1\r\nHost: localhost"),
        (true, "GET /healthz HTTP/1.1\r\nHost: evil.example"),
        (true, "PUT /healthz HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0"),
        (true, "GET /healthz HTTP/1.1"),
        (false, "GET / HTTP/1.1\r\nHost: localhost"),
        (false, "GET /nowhere HTTP/1.1\r\nHost: localhost"),
    ] {
        let answer = answer(&running, is_http, &format!("{request}\r\n\r\n")).await;
        let (head, _) = answer.split_once("\r\n\r\n").unwrap();
        let header = "x-content-type-options: nosniff";
        assert_eq!(head.matches(header).count(), 1, "{request}: {answer}");
    }
}
