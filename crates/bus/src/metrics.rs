//! Prometheus metrics of the bus. This file defines all metric families.
//!
//! Topics and groups keep handles to their series, so that counting needs no lookup and no lock that connections
//! share.
//!
//! - `topic_series`, `group_series`: the series of a topic and of a group
//! - `commit_meter`: what the committer measures
//! - `transport`: connections and their bytes
//! - `memory_gauge`: bounded memory
//! - `refusals`: what clients were refused, and those that were closed
//! - `oldest_unacked`: how long the oldest delivered event of each group is open
//! - `span_counters`: OpenTelemetry spans, exported or not
//! - `store`, `process`: what the engine and the operating system say
//! - `cardinality`: bounds the number of label values
//! - `scrape`: renders the metrics, with those read from the store on demand

mod cardinality;
mod commit_meter;
mod group_series;
mod memory_gauge;
mod oldest_unacked;
mod process;
mod refusals;
mod scrape;
mod span_counters;
mod store;
mod topic_series;
mod transport;

use std::sync::{Arc, LazyLock};

use prombus_proto::{Group, Topic};
use prometheus::core::Collector;
use prometheus::{
    Histogram, HistogramOpts, IntCounter, IntCounterVec, IntGauge, IntGaugeVec, Opts, Registry,
};

use self::cardinality::CardinalityLimit;
use self::oldest_unacked::OpenGroups;
use self::refusals::Refusals;

pub(crate) use self::commit_meter::CommitMeter;
pub(crate) use self::group_series::{GroupSeries, InFlight, LazySeries};
pub use self::memory_gauge::MemoryGauge;
pub(crate) use self::oldest_unacked::OldestUnacked;
pub(crate) use self::refusals::{CountLimit, CountRefusals};
pub(crate) use self::scrape::text;
pub use self::span_counters::SpanCounters;
pub(crate) use self::topic_series::TopicSeries;
pub use self::transport::{NdjsonStage, OpenConnection, PlaceLimit, Traffic, Transport};

/// Topics with series of their own.
const MAX_TOPICS: usize = 1000;
/// Pairs of topic and group with series of their own.
const MAX_PAIRS: usize = 2000;
/// The label of all others.
const OTHER: &str = "other";

/// Histogram buckets, in seconds.
const TIMES: [f64; 17] = [
    0.000_05, 0.000_1, 0.000_25, 0.000_5, 0.001, 0.002_5, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5,
    1.0, 2.5, 5.0, 10.0,
];
/// Histogram buckets, in events.
const SIZES: [f64; 15] = [
    1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0, 500.0, 1000.0, 2000.0, 5000.0, 10_000.0,
    20_000.0, 50_000.0,
];

/// The metrics of one bus: a field per metric family.
#[derive(Debug)]
pub struct Metrics {
    registry: Registry,
    topics: CardinalityLimit<Topic>,
    pairs: CardinalityLimit<(Topic, Group)>,
    published: IntCounterVec,
    duplicates: IntCounterVec,
    delivered: IntCounterVec,
    acked: IntCounterVec,
    nacked: IntCounterVec,
    dead_lettered: IntCounterVec,
    lost_to_retention: IntCounterVec,
    in_flight: IntGaugeVec,
    open_groups: OpenGroups,
    refusals: Refusals,
    spans: SpanCounters,
    connections: IntGaugeVec,
    ndjson_memory: IntGaugeVec,
    received_bytes: IntCounterVec,
    sent_bytes: IntCounterVec,
    publish_to_commit: Histogram,
    publish_to_deliver: Histogram,
    deliver_to_ack: Histogram,
    commit_batch: Histogram,
    sync: Histogram,
}

impl Metrics {
    pub(crate) fn new() -> Self {
        let registry = Registry::new();
        let by_topic = |name: &str, help: &str| {
            counters(&registry, name, &format!("{help} {}", topics_note()), &["topic"])
        };
        let by_group = |name: &str, help: &str| {
            let help = format!("{help} {}", pairs_note());
            counters(&registry, name, &help, &["topic", "group"])
        };
        let seconds = |name: &str, help: &str| histogram(&registry, name, help, &TIMES);
        let metrics = Self {
            topics: CardinalityLimit::new(MAX_TOPICS),
            pairs: CardinalityLimit::new(MAX_PAIRS),
            published: by_topic("prombus_events_published_total", "Events stored."),
            duplicates: by_topic(
                "prombus_duplicates_total",
                "Events not stored because the topic already contained their id.",
            ),
            delivered: by_group("prombus_events_delivered_total", "Deliveries sent to consumers."),
            acked: by_group(
                "prombus_events_acked_total",
                "Events whose acknowledgement was stored.",
            ),
            nacked: by_group("prombus_events_nacked_total", "Deliveries answered with NACK."),
            dead_lettered: by_group("prombus_events_dead_lettered_total", "Dead letters stored."),
            lost_to_retention: by_group(
                "prombus_events_lost_to_retention_total",
                "Events that retention removed before the group had finished them.",
            ),
            in_flight: gauges(
                &registry,
                "prombus_inflight",
                &format!("Events delivered and not acknowledged. {}", pairs_note()),
                &["topic", "group"],
            ),
            open_groups: OpenGroups::default(),
            refusals: Refusals::new(&registry),
            spans: SpanCounters::new(&registry),
            connections: gauges(
                &registry,
                "prombus_connections",
                "Open connections.",
                &["transport"],
            ),
            ndjson_memory: gauges(
                &registry,
                "prombus_ndjson_memory_bytes",
                "Memory held by NDJSON publishes.",
                &["stage"],
            ),
            received_bytes: counters(
                &registry,
                "prombus_received_bytes_total",
                "Bytes received from clients in WebSocket frames or HTTP bodies.",
                &["transport"],
            ),
            sent_bytes: counters(
                &registry,
                "prombus_sent_bytes_total",
                "Bytes sent to clients in WebSocket frames or HTTP bodies.",
                &["transport"],
            ),
            publish_to_commit: seconds(
                "prombus_publish_to_commit_seconds",
                "Time from receiving an event to storing it.",
            ),
            publish_to_deliver: seconds(
                "prombus_publish_to_deliver_seconds",
                "Time from receiving an event to sending its first delivery. Excludes events read back \
                 from the store.",
            ),
            deliver_to_ack: seconds(
                "prombus_deliver_to_ack_seconds",
                "Time from delivering an event to receiving its acknowledgement.",
            ),
            commit_batch: histogram(
                &registry,
                "prombus_commit_batch_events",
                "Events per write to the store. Excludes writes without events.",
                &SIZES,
            ),
            sync: seconds(
                "prombus_fsync_seconds",
                "Duration of the fsync of a write. Excludes writes without fsync.",
            ),
            registry,
        };
        metrics.set_build_info();
        for stage in NdjsonStage::ALL {
            drop(metrics.ndjson_memory(stage));
        }
        for transport in Transport::ALL {
            // Creates the series, so that the first scrape shows zeros.
            drop((metrics.traffic(transport), metrics.connection(transport)));
        }
        metrics
    }

    fn set_build_info(&self) {
        let opts = Opts::new("prombus_build_info", "Version of the server; the value is always 1.")
            .const_label("version", env!("CARGO_PKG_VERSION"));
        registered(&self.registry, IntGauge::with_opts(opts)).set(1);
    }

    pub(crate) fn topic(&self, topic: &Topic) -> TopicSeries {
        let label = if self.topics.admit(topic) { topic.as_str() } else { OTHER };
        TopicSeries {
            published: self.published.with_label_values(&[label]),
            duplicates: self.duplicates.with_label_values(&[label]),
        }
    }

    /// Returns the series of a group, which are registered when they are used first.
    pub(crate) fn group(self: &Arc<Self>, topic: &Topic, group: &Group) -> LazySeries {
        let (metrics, pair) = (Arc::clone(self), (topic.clone(), group.clone()));
        LazyLock::new(Box::new(move || Arc::new(metrics.group_series(&pair))))
    }

    fn group_series(&self, pair: &(Topic, Group)) -> GroupSeries {
        let labels = self.pair_labels(pair);
        // Creates the series, so that the first loss shows as an increase.
        drop(self.lost_to_retention.with_label_values(&labels));
        GroupSeries {
            delivered: self.delivered.with_label_values(&labels),
            acked: self.acked.with_label_values(&labels),
            nacked: self.nacked.with_label_values(&labels),
            dead_lettered: self.dead_lettered.with_label_values(&labels),
            in_flight: self.in_flight.with_label_values(&labels),
            publish_to_deliver: self.publish_to_deliver.clone(),
            deliver_to_ack: self.deliver_to_ack.clone(),
        }
    }

    /// Removes the series of a topic that was deleted, and of its groups.
    pub(crate) fn forget_topic(&self, topic: &Topic) {
        if !self.topics.take(|admitted| admitted == topic).is_empty() {
            for family in [&self.published, &self.duplicates] {
                // A topic may lack a series.
                let _ = family.remove_label_values(&[topic.as_str()]);
            }
        }
        self.forget_pairs(|(of, _)| of == topic);
    }

    /// Removes the series of a group that was deleted.
    pub(crate) fn forget_group(&self, topic: &Topic, group: &Group) {
        self.forget_pairs(|(of, name)| of == topic && name == group);
    }

    fn forget_pairs(&self, is_gone: impl Fn(&(Topic, Group)) -> bool) {
        for (topic, group) in self.pairs.take(is_gone) {
            let labels = [topic.as_str(), group.as_str()];
            for family in [
                &self.delivered,
                &self.acked,
                &self.nacked,
                &self.dead_lettered,
                &self.lost_to_retention,
            ] {
                let _ = family.remove_label_values(&labels);
            }
            let _ = self.in_flight.remove_label_values(&labels);
        }
    }

    /// Counts events that retention removed before the group had finished them.
    pub(crate) fn lost_to_retention(&self, topic: &Topic, group: &Group, events: u64) {
        let pair = (topic.clone(), group.clone());
        let labels = self.pair_labels(&pair);
        self.lost_to_retention.with_label_values(&labels).inc_by(events);
    }

    /// Returns what tells how long the oldest delivered event of a group is open.
    pub(crate) fn oldest_unacked(&self, topic: &Topic, group: &Group) -> OldestUnacked {
        let pair = (topic.clone(), group.clone());
        let has_series = self.pairs.admit(&pair);
        self.open_groups.add(has_series.then_some(pair))
    }

    fn pair_labels<'a>(&self, pair: &'a (Topic, Group)) -> [&'a str; 2] {
        if self.pairs.admit(pair) { [pair.0.as_str(), pair.1.as_str()] } else { [OTHER, OTHER] }
    }

    pub(crate) fn commit_meter(&self) -> CommitMeter {
        CommitMeter::new(&self.publish_to_commit, &self.commit_batch, &self.sync)
    }

    /// Counts a connection as open until the guard is dropped.
    #[must_use]
    pub fn connection(&self, transport: Transport) -> OpenConnection {
        OpenConnection::new(self.connections.with_label_values(&[transport.name()]))
    }

    #[must_use]
    pub fn ndjson_memory(&self, stage: NdjsonStage) -> MemoryGauge {
        MemoryGauge::new(self.ndjson_memory.with_label_values(&[stage.name()]))
    }

    /// Returns the byte counters of a transport.
    #[must_use]
    pub fn traffic(&self, transport: Transport) -> Traffic {
        let label = [transport.name()];
        Traffic::new(
            self.received_bytes.with_label_values(&label),
            self.sent_bytes.with_label_values(&label),
        )
    }
}

fn topics_note() -> String {
    format!("Topics beyond the first {MAX_TOPICS} are counted as \"{OTHER}\".")
}

fn pairs_note() -> String {
    format!("Groups beyond the first {MAX_PAIRS} are counted as \"{OTHER}\" on topic \"{OTHER}\".")
}

fn counter(registry: &Registry, name: &str, help: &str) -> IntCounter {
    registered(registry, IntCounter::with_opts(Opts::new(name, help)))
}

fn counters(registry: &Registry, name: &str, help: &str, labels: &[&str]) -> IntCounterVec {
    registered(registry, IntCounterVec::new(Opts::new(name, help), labels))
}

fn gauges(registry: &Registry, name: &str, help: &str, labels: &[&str]) -> IntGaugeVec {
    registered(registry, IntGaugeVec::new(Opts::new(name, help), labels))
}

fn histogram(registry: &Registry, name: &str, help: &str, bounds: &[f64]) -> Histogram {
    let opts = HistogramOpts::new(name, help).buckets(bounds.to_vec());
    registered(registry, Histogram::with_opts(opts))
}

fn registered<C: Collector + Clone + 'static>(
    registry: &Registry,
    family: prometheus::Result<C>,
) -> C {
    let family = family.expect("names, labels and buckets in this file are valid");
    registry
        .register(Box::new(family.clone()))
        .expect("each family in this file has a unique name");
    family
}
