//! The client of these tests: one connection, one request at a time.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper::header::{HOST, HeaderMap};
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};
use tokio::time::timeout;

use crate::gateway::client::Stream;
use crate::gateway::running::Running;

/// Only a server that hangs takes this long.
const HANG_TIMEOUT: Duration = Duration::from_secs(20);

pub(crate) struct HttpClient {
    sender: SendRequest<Full<Bytes>>,
    host: String,
    /// The address to reconnect to after a rejected request.
    address: Option<SocketAddr>,
    was_refused: bool,
    /// Sent with every request.
    token: Option<&'static str>,
}

#[derive(Debug)]
pub(crate) struct Reply {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
}

impl HttpClient {
    pub(crate) async fn connect(running: &Running) -> Self {
        Self::connect_to(running.server.http()).await
    }

    pub(crate) async fn connect_to(address: SocketAddr) -> Self {
        let stream = TcpStream::connect(address).await.unwrap();
        Self { address: Some(address), ..Self::over(stream, &address.to_string()).await }
    }

    /// Connects from another loopback address, such as 127.0.0.2.
    pub(crate) async fn connect_from(running: &Running, from: Ipv4Addr) -> Self {
        let address = running.server.http();
        Self::over(connect_from(address, from).await, &address.to_string()).await
    }

    pub(crate) async fn over(stream: impl Stream + 'static, host: &str) -> Self {
        let (sender, connection) = handshake(TokioIo::new(stream)).await.unwrap();
        tokio::spawn(connection);
        Self { sender, host: host.to_owned(), address: None, was_refused: false, token: None }
    }

    pub(crate) fn with_token(self, token: &'static str) -> Self {
        Self { token: Some(token), ..self }
    }

    pub(crate) async fn ask(
        &mut self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: impl Into<Bytes>,
    ) -> Reply {
        let response = async {
            let (head, body) = self.open(method, path, headers, body).await.into_parts();
            let body = body.collect().await.unwrap().to_bytes();
            Reply { status: head.status, headers: head.headers, body }
        };
        timeout(HANG_TIMEOUT, response).await.expect("the server does not respond")
    }

    /// Like [`HttpClient::ask`], but returns before the body has arrived.
    pub(crate) async fn open(
        &mut self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: impl Into<Bytes>,
    ) -> Response<Incoming> {
        let mut request = Request::builder().method(method).uri(path);
        if !headers.iter().any(|(name, _)| name.eq_ignore_ascii_case("host")) {
            request = request.header(HOST, &self.host);
        }
        if let Some(token) = self.token {
            request = request.header("authorization", format!("Bearer {token}"));
        }
        for (name, value) in headers {
            request = request.header(*name, value.as_bytes());
        }
        let request = request.body(Full::new(body.into())).unwrap();
        // The server may close a connection after rejecting a request whose body it did not read.
        match (self.sender.ready().await, self.address) {
            (Err(_), Some(address)) if self.was_refused => {
                self.sender = Self::connect_to(address).await.sender;
            }
            (ready, _) => ready.unwrap(),
        }
        let response = timeout(HANG_TIMEOUT, self.sender.send_request(request)).await;
        let response = response.expect("the server does not respond").unwrap();
        self.was_refused = !response.status().is_success();
        response
    }

    pub(crate) async fn get(&mut self, path: &str) -> Reply {
        self.ask("GET", path, &[], "").await
    }

    pub(crate) async fn post(&mut self, path: &str, body: impl Into<Bytes>) -> Reply {
        self.ask("POST", path, &[], body).await
    }

    pub(crate) async fn put(&mut self, path: &str, body: impl Into<Bytes>) -> Reply {
        self.ask("PUT", path, &[], body).await
    }

    pub(crate) async fn ndjson(&mut self, path: &str, body: impl Into<Bytes>) -> Reply {
        self.ask("POST", path, &[("content-type", "application/x-ndjson")], body).await
    }
}

impl Reply {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).map(|value| value.to_str().unwrap())
    }

    pub(crate) fn json(&self) -> Value {
        assert_eq!(self.header("content-type"), Some("application/json"), "{self:?}");
        serde_json::from_slice(&self.body).unwrap_or_else(|error| panic!("{self:?}: {error}"))
    }

    /// Asserts success and returns the body.
    #[track_caller]
    pub(crate) fn ok(&self) -> Value {
        assert_eq!(self.status, 200, "{self:?}");
        self.json()
    }

    /// Asserts an error with this status and code, and returns its message.
    #[track_caller]
    pub(crate) fn refused(&self, status: u16, code: &str) -> String {
        assert_eq!(self.status, status, "{self:?}");
        let error = self.json();
        let members: Vec<_> = error.as_object().unwrap().keys().collect();
        assert_eq!(members, ["code", "error"]);
        assert_eq!(error["code"], code, "{error}");
        error["error"].as_str().unwrap().to_owned()
    }
}

pub(crate) async fn connect_from(to: SocketAddr, from: Ipv4Addr) -> TcpStream {
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind((from, 0).into()).unwrap();
    socket.connect(to).await.unwrap()
}

/// A request written byte by byte, for malformed and unfinished requests.
pub(crate) struct Raw(pub(crate) TcpStream);

impl Raw {
    /// Sends a POST with these headers and the start of its body.
    pub(crate) async fn post(running: &Running, path: &str, headers: &str, body: &str) -> Self {
        let mut raw = Self(TcpStream::connect(running.server.http()).await.unwrap());
        let host = running.server.http();
        raw.send(&format!("POST {path} HTTP/1.1\r\nhost: {host}\r\n{headers}\r\n{body}")).await;
        raw
    }

    /// Sends these bytes, with a small receive buffer: the server soon notices that nobody reads.
    pub(crate) async fn narrow(to: SocketAddr, request: &str) -> Self {
        let socket = TcpSocket::new_v4().unwrap();
        socket.set_recv_buffer_size(16 << 10).unwrap();
        let mut raw = Self(socket.connect(to).await.unwrap());
        raw.send(request).await;
        raw
    }

    pub(crate) async fn send(&mut self, text: &str) {
        self.0.write_all(text.as_bytes()).await.unwrap();
    }

    /// Like [`Raw::post`], but waits until the server reads the body.
    pub(crate) async fn post_started(
        running: &Running,
        path: &str,
        headers: &str,
        body: &str,
    ) -> Self {
        let headers = format!("expect: 100-continue\r\n{headers}");
        let mut raw = Self::post(running, path, &headers, "").await;
        let mut interim = [0; 25];
        raw.0.read_exact(&mut interim).await.unwrap();
        assert_eq!(&interim, b"HTTP/1.1 100 Continue\r\n\r\n");
        raw.send(body).await;
        raw
    }

    /// The status and JSON body of the response. Has no timeout, for tests with a paused clock.
    pub(crate) async fn answer(&mut self) -> (u16, Value) {
        let mut read = Vec::new();
        loop {
            let text = String::from_utf8_lossy(&read);
            if let Some((head, body)) = text.split_once("\r\n\r\n") {
                let status = head[9..12].parse().unwrap();
                let length = head.split("content-length: ").nth(1).unwrap();
                if body.len() == length.lines().next().unwrap().parse::<usize>().unwrap() {
                    return (status, serde_json::from_str(body).unwrap());
                }
            }
            assert_ne!(
                self.0.read_buf(&mut read).await.unwrap(),
                0,
                "incomplete response: {read:?}"
            );
        }
    }
}
