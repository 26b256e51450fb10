//! How fast a topic can be exported.

use std::sync::Arc;
use std::time::{Duration, Instant};

use prombus_client::transport::{HttpClient, Query};
use prombus_proto::Topic;
use serde::Serialize;

use crate::BenchError;
use crate::measure::tally::Tally;
use crate::report::{ms, per_second};

#[derive(Clone, Copy, Debug, Serialize)]
pub struct ExportReport {
    /// Events, one per line.
    pub exported: u64,
    /// Bytes, including line breaks.
    pub bytes: u64,
    /// From the request to the last byte, in milliseconds.
    pub ms: f64,
    /// Events per second.
    pub mps: f64,
    /// Megabytes (of a million bytes) per second.
    pub mb_per_sec: f64,
    /// From the request to the first byte, in milliseconds.
    pub first_byte_ms: f64,
}

/// Reads all events of `topic` from `/export` and discards them.
pub async fn bench_export(
    http: &mut HttpClient,
    topic: &Topic,
    tally: &Arc<Tally>,
) -> Result<ExportReport, BenchError> {
    let started = Instant::now();
    // By default, the server leaves out events with timestamps in the future.
    let query = Query::of("/export").with("topic", Some(topic)).with("toTs", Some(u64::MAX));
    let mut response = http.get(query.as_str()).await?;
    let (mut exported, mut bytes, mut first_byte) = (0, 0, None);
    while let Some(chunk) = response.next().await? {
        let took = started.elapsed();
        first_byte.get_or_insert(took);
        let lines = memchr::memchr_iter(b'\n', &chunk).count() as u64;
        exported += lines;
        bytes += chunk.len() as u64;
        tally.add(took, chunk.len() as u64, &[(Duration::ZERO, lines)]);
    }
    let took = started.elapsed();
    Ok(ExportReport {
        exported,
        bytes,
        ms: ms(took),
        mps: per_second(exported, took),
        mb_per_sec: per_second(bytes, took * 1_000_000),
        first_byte_ms: ms(first_byte.unwrap_or(took)),
    })
}
