//! Sends the finished spans of the bus to an OpenTelemetry collector: OTLP over HTTP, as JSON.
//!
//! Spans wait in the bounded queue of the bus, which drops what finds no room. A batch that the collector does not
//! accept is tried again a few times and then given up. Nothing else of the server ever waits for this.

mod otlp;

use std::time::Duration;

use bytes::Bytes;
use hyper::Method;
use prombus_bus::{Bus, FinishedSpan, SpanCounters, SpanQueue};
use prombus_client::transport::{HttpClient, Protocol, ServerAddress};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, timeout};

use crate::config::TracingConfig;

/// Spans of one request.
const MAX_BATCH: usize = 512;
/// How long spans wait for others to be sent with them.
const GATHERING_TIME: Duration = Duration::from_secs(1);
/// How long the collector may take to answer.
const ANSWER_TIME: Duration = Duration::from_secs(10);
/// The waits before a batch is tried again. After the last one it is given up.
const RETRY_AFTER: [Duration; 3] =
    [Duration::from_secs(1), Duration::from_secs(2), Duration::from_secs(4)];
/// How long a stopping server waits for the collector.
const LAST_CHANCE: Duration = Duration::from_secs(2);
/// How often failures are logged.
const LOG_INTERVAL: Duration = Duration::from_secs(60);
const PATH: &str = "/v1/traces";

/// The task that exports spans.
pub(crate) struct SpanExport {
    stop: oneshot::Sender<()>,
    task: JoinHandle<()>,
}

struct Exporter {
    collector: HttpClient,
    url: String,
    resource: otlp::Resource,
    spans: SpanQueue,
    counters: SpanCounters,
    /// When a failure was logged, and how many spans were given up since then.
    logged_at: Option<Instant>,
    unlogged: usize,
}

impl SpanExport {
    /// Starts the export of the spans of `bus`. Returns `None` if it is not configured.
    pub(crate) fn start(config: &TracingConfig, bus: &Bus) -> Option<Self> {
        let url = config.otlp_endpoint.clone()?;
        // The configuration was checked when it was read.
        let address = ServerAddress::new(&url, Protocol::Http, None).ok()?;
        let exporter = Exporter {
            collector: HttpClient::new(address, None).ok()?,
            url,
            resource: otlp::Resource::of(&config.service_name),
            spans: bus.take_finished_spans()?,
            counters: bus.metrics().spans(),
            logged_at: None,
            unlogged: 0,
        };
        tracing::info!(
            "sending spans to {}{PATH}; sample ratio {}",
            exporter.url.trim_end_matches('/'),
            config.sample_ratio
        );
        let (stop, stopped) = oneshot::channel();
        Some(Self { stop, task: tokio::spawn(exporter.run(stopped)) })
    }

    /// Sends what is left, if the collector is quick, and ends.
    pub(crate) async fn stop(self) {
        drop(self.stop);
        // A panic was reported by the task itself.
        let _ = self.task.await;
    }
}

impl Exporter {
    async fn run(mut self, mut stopped: oneshot::Receiver<()>) {
        let mut batch = Vec::with_capacity(MAX_BATCH);
        loop {
            let is_stopping = tokio::select! {
                biased;
                _ = &mut stopped => true,
                is_open = self.gather(&mut batch) => !is_open,
            };
            if is_stopping {
                let _ = timeout(LAST_CHANCE, self.export_rest(&mut batch)).await;
                return;
            }
            tokio::select! {
                biased;
                _ = &mut stopped => {
                    let _ = timeout(LAST_CHANCE, self.export_rest(&mut batch)).await;
                    return;
                }
                () = self.export(&batch) => batch.clear(),
            }
        }
    }

    /// Adds spans to `batch` until it is full, or none has followed for a while. Returns `false` if there will be
    /// no more. Cancel-safe: what it has added stays.
    async fn gather(&mut self, batch: &mut Vec<FinishedSpan>) -> bool {
        if self.spans.recv_many(batch, MAX_BATCH).await == 0 {
            return false;
        }
        let until = Instant::now() + GATHERING_TIME;
        while batch.len() < MAX_BATCH {
            let room = MAX_BATCH - batch.len();
            let more = tokio::time::timeout_at(until, self.spans.recv_many(batch, room));
            if !matches!(more.await, Ok(1..)) {
                break;
            }
        }
        true
    }

    /// Exports `batch` and what is queued, without trying anything again.
    async fn export_rest(&mut self, batch: &mut Vec<FinishedSpan>) {
        self.spans.close();
        loop {
            while batch.len() < MAX_BATCH
                && let Ok(span) = self.spans.try_recv()
            {
                batch.push(span);
            }
            if batch.is_empty() {
                return;
            }
            match self.send(otlp::request(&self.resource, batch)).await {
                Ok(()) => self.counters.exported(batch.len()),
                Err(reason) => self.given_up(batch.len(), &reason),
            }
            batch.clear();
        }
    }

    /// Exports a batch, or gives it up.
    async fn export(&mut self, batch: &[FinishedSpan]) {
        let body = otlp::request(&self.resource, batch);
        let mut waits = RETRY_AFTER.into_iter();
        loop {
            match self.send(body.clone()).await {
                Ok(()) => return self.counters.exported(batch.len()),
                Err(reason) => match waits.next() {
                    Some(wait) => sleep(wait).await,
                    None => return self.given_up(batch.len(), &reason),
                },
            }
        }
    }

    async fn send(&mut self, body: Bytes) -> Result<(), String> {
        let collector = &mut self.collector;
        let exchange = async {
            let response = collector.send(Method::POST, PATH, "application/json", body).await;
            // Read to its end, so that the connection can be used again.
            response
                .map_err(|failure| failure.to_string())?
                .bytes()
                .await
                .map_err(|e| e.to_string())
        };
        match timeout(ANSWER_TIME, exchange).await {
            Ok(answered) => answered.map(drop),
            Err(_) => Err(format!("no answer within {ANSWER_TIME:?}")),
        }
    }

    fn given_up(&mut self, spans: usize, reason: &str) {
        self.counters.failed(spans);
        self.unlogged += spans;
        let now = Instant::now();
        if self.logged_at.is_some_and(|at| now < at + LOG_INTERVAL) {
            return;
        }
        self.logged_at = Some(now);
        tracing::warn!(
            spans = std::mem::take(&mut self.unlogged),
            "cannot send spans to {}: {reason}; they are lost, everything else goes on; look at the collector \
             and at tracing.otlp_endpoint",
            self.url
        );
    }
}
