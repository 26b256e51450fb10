//! An OpenTelemetry collector: a real HTTP server that keeps the spans it receives.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use serde_json::Value;
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tokio::time::timeout;

/// Only an exporter that hangs takes this long.
const HANG: Duration = Duration::from_secs(60);

pub(crate) struct Collector {
    pub(crate) address: SocketAddr,
    received: mpsc::UnboundedReceiver<Value>,
    refuses: Arc<AtomicBool>,
}

/// A received span, and the attributes of its resource.
#[derive(Clone, Debug)]
pub(crate) struct Span {
    pub(crate) json: Value,
    resource: Value,
}

impl Collector {
    pub(crate) async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (requests, received) = mpsc::unbounded_channel();
        let refuses = Arc::new(AtomicBool::new(false));
        let refused = Arc::clone(&refuses);
        tokio::spawn(async move {
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                let (requests, refused) = (requests.clone(), Arc::clone(&refused));
                let service = service_fn(move |request: Request<Incoming>| {
                    respond(request, requests.clone(), Arc::clone(&refused))
                });
                tokio::spawn(http1::Builder::new().serve_connection(TokioIo::new(stream), service));
            }
        });
        Self { address, received, refuses }
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Answers 503 from now on.
    pub(crate) fn refuse(&self, refuses: bool) {
        self.refuses.store(refuses, Ordering::SeqCst);
    }

    /// Waits for `count` spans.
    pub(crate) async fn spans(&mut self, count: usize) -> Vec<Span> {
        let mut spans = Vec::new();
        while spans.len() < count {
            spans.extend(self.next_request().await);
        }
        assert_eq!(spans.len(), count, "{spans:?}");
        spans
    }

    /// Waits for a request, and returns its spans.
    pub(crate) async fn next_request(&mut self) -> Vec<Span> {
        let request = timeout(HANG, self.received.recv()).await;
        parse(&request.expect("the exporter sends nothing").unwrap())
    }
}

async fn respond(
    request: Request<Incoming>,
    requests: mpsc::UnboundedSender<Value>,
    refuses: Arc<AtomicBool>,
) -> Result<Response<Full<Bytes>>, Infallible> {
    assert_eq!((request.method().as_str(), request.uri().path()), ("POST", "/v1/traces"));
    assert_eq!(request.headers()["content-type"], "application/json");
    let body = request.into_body().collect().await.unwrap().to_bytes();
    let mut response = Response::new(Full::from("{}"));
    if refuses.load(Ordering::SeqCst) {
        *response.status_mut() = StatusCode::SERVICE_UNAVAILABLE;
    } else {
        let _ = requests.send(serde_json::from_slice(&body).unwrap());
    }
    Ok(response)
}

/// Parses a request as strictly as the definition of OTLP is, as far as Prombus uses it.
fn parse(request: &Value) -> Vec<Span> {
    let mut spans = Vec::new();
    for of_resource in request["resourceSpans"].as_array().unwrap() {
        let resource = of_resource["resource"]["attributes"].clone();
        for of_scope in of_resource["scopeSpans"].as_array().unwrap() {
            assert_eq!(of_scope["scope"]["name"], "prombus");
            for json in of_scope["spans"].as_array().unwrap() {
                let span = Span { json: json.clone(), resource: resource.clone() };
                span.check();
                spans.push(span);
            }
        }
    }
    assert!(!spans.is_empty(), "an empty request");
    spans
}

impl Span {
    fn check(&self) {
        let is_hex = |key: &str, digits: usize| {
            let text = self.json[key].as_str().unwrap();
            let is_digit = |c: char| matches!(c, '0'..='9' | 'a'..='f');
            assert!(text.len() == digits && text.chars().all(is_digit), "{key} of {self:?}");
            assert!(text.chars().any(|digit| digit != '0'), "{key} of {self:?}");
        };
        is_hex("traceId", 32);
        is_hex("spanId", 16);
        assert!(self.start() > 1_700_000_000_000_000_000 && self.start() <= self.end(), "{self:?}");
    }

    pub(crate) fn start(&self) -> u64 {
        self.json["startTimeUnixNano"].as_str().unwrap().parse().unwrap()
    }

    pub(crate) fn end(&self) -> u64 {
        self.json["endTimeUnixNano"].as_str().unwrap().parse().unwrap()
    }

    pub(crate) fn name(&self) -> &str {
        self.json["name"].as_str().unwrap()
    }

    /// Returns the value of an attribute, whatever its type.
    pub(crate) fn attribute(&self, key: &str) -> Option<String> {
        attribute(&self.json["attributes"], key)
    }

    pub(crate) fn of_resource(&self, key: &str) -> Option<String> {
        attribute(&self.resource, key)
    }
}

fn attribute(attributes: &Value, key: &str) -> Option<String> {
    let found = attributes.as_array()?.iter().find(|attribute| attribute["key"] == key)?;
    let (kind, value) = found["value"].as_object()?.iter().next()?;
    match (kind.as_str(), value) {
        // 64-bit integers are strings in JSON.
        ("stringValue" | "intValue", Value::String(text)) => Some(text.clone()),
        ("boolValue", Value::Bool(truth)) => Some(truth.to_string()),
        other => panic!("not OTLP: {other:?}"),
    }
}
