//! What the engine says about itself.

use prombus_engine::{Condition, Durations, Engine, Figures, WalBacklog};
use prometheus::core::Collector;
use prometheus::proto::{Bucket, Histogram, Metric, MetricFamily, MetricType};
use prometheus::{IntGauge, IntGaugeVec, Opts};

use super::scrape::valid;

/// Returns the families of the store. What the engine does not know has none.
pub(super) async fn families(engine: &dyn Engine) -> Vec<MetricFamily> {
    let health = engine.health();
    let Figures { stored_bytes, free_bytes, wal_backlog, checkpoints, open_files } =
        engine.figures().await;
    let is_writable = u64::from(health.condition == Condition::Healthy);
    let mut families = vec![
        gauge("prombus_store_writable", "Whether the store accepts events.", is_writable),
        gauge(
            "prombus_store_incidents",
            "Damage that was found or repaired since the store was opened.",
            health.incidents.len() as u64,
        ),
    ];
    if !stored_bytes.is_empty() {
        let opts = Opts::new("prombus_store_bytes", "Bytes that the store takes.");
        let bytes = valid(IntGaugeVec::new(opts, &["kind"]));
        for (kind, count) in stored_bytes {
            bytes.with_label_values(&[kind]).set(signed(count));
        }
        families.extend(bytes.collect());
    }
    families.extend(free_bytes.map(|bytes| {
        gauge("prombus_store_free_bytes", "Bytes that are free where the store is.", bytes)
    }));
    families.extend(open_files.map(|files| {
        gauge("prombus_store_open_files", "Files of the store that are kept open.", files)
    }));
    if let Some(WalBacklog { full_files, max_full_files, bytes }) = wal_backlog {
        families.extend([
            gauge(
                "prombus_wal_backlog_bytes",
                "Bytes of the write-ahead log that are not checkpointed.",
                bytes,
            ),
            gauge(
                "prombus_wal_backlog_files",
                "Full files of the write-ahead log that wait for their checkpoint.",
                full_files,
            ),
            gauge(
                "prombus_wal_backlog_limit_files",
                "The number of such files from which on commits wait.",
                max_full_files,
            ),
        ]);
    }
    let help = "Duration of a checkpoint.";
    families.extend(checkpoints.map(|times| histogram("prombus_checkpoint_seconds", help, &times)));
    families
}

fn gauge(name: &str, help: &str, value: u64) -> MetricFamily {
    let gauge = valid(IntGauge::new(name, help));
    gauge.set(signed(value));
    gauge.collect().remove(0)
}

fn signed(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}

/// Builds the family of a histogram that somebody else counts.
fn histogram(name: &str, help: &str, times: &Durations) -> MetricFamily {
    let buckets = times.buckets.iter().map(|(bound, count)| {
        let mut bucket = Bucket::default();
        bucket.set_upper_bound(bound.as_secs_f64());
        bucket.set_cumulative_count(*count);
        bucket
    });
    let mut histogram = Histogram::default();
    histogram.set_bucket(buckets.collect());
    histogram.set_sample_count(times.count);
    histogram.set_sample_sum(times.sum.as_secs_f64());
    let mut metric = Metric::default();
    metric.set_histogram(histogram);
    let mut family = MetricFamily::default();
    family.set_name(name.to_owned());
    family.set_help(help.to_owned());
    family.set_field_type(MetricType::HISTOGRAM);
    family.set_metric(vec![metric]);
    family
}
