//! How fast a topic is exported.

use std::sync::Arc;
use std::time::{Duration, Instant};

use prombus_client::transport::{HttpClient, Query};
use prombus_proto::Topic;
use serde::Serialize;

use crate::BenchError;
use crate::measure::tally::Tally;
use crate::report::{ms, per_second};

/// What an export came to.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct ExportReport {
    /// How many events, one a line.
    pub exported: u64,
    /// How many bytes, line breaks included.
    pub bytes: u64,
    /// From the request to the last byte, in milliseconds.
    pub ms: f64,
    /// Events a second.
    pub mps: f64,
    /// Megabytes, of a million bytes, a second.
    pub mb_per_sec: f64,
    /// From the request to the first byte, in milliseconds.
    pub first_byte_ms: f64,
}

/// Reads all events of `topic` by `/export` and throws them away.
pub async fn bench_export(
    http: &mut HttpClient,
    topic: &Topic,
    tally: &Arc<Tally>,
) -> Result<ExportReport, BenchError> {
    let began = Instant::now();
    // The server would leave out what has a time to come.
    let query = Query::of("/export").with("topic", Some(topic)).with("toTs", Some(u64::MAX));
    let mut answer = http.get(query.as_str()).await?;
    let (mut exported, mut bytes, mut first_byte) = (0, 0, None);
    while let Some(some) = answer.next().await? {
        let took = began.elapsed();
        first_byte.get_or_insert(took);
        let lines = memchr::memchr_iter(b'\n', &some).count() as u64;
        exported += lines;
        bytes += some.len() as u64;
        tally.add(took, some.len() as u64, &[(Duration::ZERO, lines)]);
    }
    let took = began.elapsed();
    Ok(ExportReport {
        exported,
        bytes,
        ms: ms(took),
        mps: per_second(exported, took),
        mb_per_sec: per_second(bytes, took * 1_000_000),
        first_byte_ms: ms(first_byte.unwrap_or(took)),
    })
}
