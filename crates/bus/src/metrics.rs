//! What the bus counts, for those who watch it.
//!
//! Handles are kept where an event passes anyway, in its topic and its group: counting looks
//! nothing up, and takes no lock that connections share.
//!
//! | idea | file |
//! |---|---|
//! | all families, by their names | here |
//! | who has series of its own | `admitted` |
//! | what a topic counts, and what a group does | `topic_series`, `group_series` |
//! | what the committer counts | `commit_meter` |
//! | connections and their bytes | `transport` |
//! | the text, with what is read only for it | `scrape` |

mod admitted;
mod commit_meter;
mod group_series;
mod scrape;
mod topic_series;
mod transport;

use prombus_proto::{Group, Topic};
use prometheus::core::Collector;
use prometheus::{
    Histogram, HistogramOpts, IntCounter, IntCounterVec, IntGauge, IntGaugeVec, Opts, Registry,
};

use self::admitted::Admitted;
use crate::limits::LimitScope;

pub(crate) use self::commit_meter::CommitMeter;
pub(crate) use self::group_series::{GroupSeries, InFlight};
pub(crate) use self::scrape::text;
pub(crate) use self::topic_series::TopicSeries;
pub use self::transport::{OpenConnection, Traffic, Transport};

/// So many topics have series of their own.
const MOST_TOPICS: usize = 1000;
/// So many groups, each on its topic, have series of their own.
const MOST_PAIRS: usize = 2000;
/// The name under which all others are counted.
const OTHER: &str = "other";

/// In seconds.
const TIMES: [f64; 17] = [
    0.000_05, 0.000_1, 0.000_25, 0.000_5, 0.001, 0.002_5, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5,
    1.0, 2.5, 5.0, 10.0,
];
const SIZES: [f64; 15] = [
    1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0, 500.0, 1000.0, 2000.0, 5000.0, 10_000.0,
    20_000.0, 50_000.0,
];

/// What one bus counts.
#[derive(Debug)]
pub struct Metrics {
    registry: Registry,
    topics: Admitted<Topic>,
    pairs: Admitted<(Topic, Group)>,
    published: IntCounterVec,
    duplicates: IntCounterVec,
    delivered: IntCounterVec,
    acked: IntCounterVec,
    nacked: IntCounterVec,
    dead_lettered: IntCounterVec,
    in_flight: IntGaugeVec,
    limited_connections: IntCounter,
    limited_topics: IntCounter,
    connections: IntGaugeVec,
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
        let limited = counters(
            &registry,
            "prombus_events_rate_limited_total",
            "Events that were refused for a limit of rate, by whose limit it was.",
            &["scope"],
        );
        let metrics = Self {
            topics: Admitted::at_most(MOST_TOPICS),
            pairs: Admitted::at_most(MOST_PAIRS),
            published: by_topic("prombus_events_published_total", "Events that were stored."),
            duplicates: by_topic(
                "prombus_duplicates_total",
                "Events that were not stored, for their topic held their ids.",
            ),
            delivered: by_group("prombus_events_delivered_total", "Deliveries that left."),
            acked: by_group(
                "prombus_events_acked_total",
                "Events whose acknowledgement was stored.",
            ),
            nacked: by_group("prombus_events_nacked_total", "Deliveries that were refused."),
            dead_lettered: by_group(
                "prombus_events_dead_lettered_total",
                "Dead letters that were stored.",
            ),
            in_flight: registered(
                &registry,
                IntGaugeVec::new(
                    Opts::new(
                        "prombus_inflight",
                        format!("Events that are lent to consumers. {}", pairs_note()),
                    ),
                    &["topic", "group"],
                ),
            ),
            limited_connections: limited.with_label_values(&["connection"]),
            limited_topics: limited.with_label_values(&["topic"]),
            connections: registered(
                &registry,
                IntGaugeVec::new(
                    Opts::new("prombus_connections", "Connections that are open."),
                    &["transport"],
                ),
            ),
            received_bytes: counters(
                &registry,
                "prombus_received_bytes_total",
                "Bytes that were read from clients, of WebSocket frames or of HTTP bodies.",
                &["transport"],
            ),
            sent_bytes: counters(
                &registry,
                "prombus_sent_bytes_total",
                "Bytes that were written to clients, of WebSocket frames or of HTTP bodies.",
                &["transport"],
            ),
            publish_to_commit: seconds(
                "prombus_publish_to_commit_seconds",
                "From the moment an event was taken to the moment it was stored.",
            ),
            publish_to_deliver: seconds(
                "prombus_publish_to_deliver_seconds",
                "From the moment an event was taken to the moment its first delivery left. \
                 Events that were read back from the store are not observed.",
            ),
            deliver_to_ack: seconds(
                "prombus_deliver_to_ack_seconds",
                "From the moment an event was lent to the moment its acknowledgement came.",
            ),
            commit_batch: histogram(
                &registry,
                "prombus_commit_batch_events",
                "Events of a commit. Commits without any are not observed.",
                &SIZES,
            ),
            sync: seconds(
                "prombus_fsync_seconds",
                "How long the sync of a commit took. Commits without one are not observed.",
            ),
            registry,
        };
        metrics.say_version();
        for transport in Transport::ALL {
            // Seen from the first scrape on, also where nobody came yet.
            drop((metrics.traffic(transport), metrics.connection(transport)));
        }
        metrics
    }

    fn say_version(&self) {
        let opts = Opts::new("prombus_build_info", "The version that runs; its value is 1.")
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

    pub(crate) fn group(&self, topic: &Topic, group: &Group) -> GroupSeries {
        let pair = (topic.clone(), group.clone());
        let labels = self.pair_labels(&pair);
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

    fn pair_labels<'a>(&self, pair: &'a (Topic, Group)) -> [&'a str; 2] {
        if self.pairs.admit(pair) { [pair.0.as_str(), pair.1.as_str()] } else { [OTHER, OTHER] }
    }

    pub(crate) fn commit_meter(&self) -> CommitMeter {
        CommitMeter::new(&self.publish_to_commit, &self.commit_batch, &self.sync)
    }

    pub(crate) fn rate_limited(&self, scope: LimitScope, events: u64) {
        match scope {
            LimitScope::Connection => self.limited_connections.inc_by(events),
            LimitScope::Topic => self.limited_topics.inc_by(events),
        }
    }

    /// Counts a connection as open until what this answers is dropped.
    #[must_use]
    pub fn connection(&self, transport: Transport) -> OpenConnection {
        OpenConnection::new(self.connections.with_label_values(&[transport.name()]))
    }

    /// Where the bytes of connections of this kind are counted.
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
    format!("All topics beyond the first {MOST_TOPICS} are \"{OTHER}\".")
}

fn pairs_note() -> String {
    format!("All groups beyond the first {MOST_PAIRS} are \"{OTHER}\" on the topic \"{OTHER}\".")
}

fn counters(registry: &Registry, name: &str, help: &str, labels: &[&str]) -> IntCounterVec {
    registered(registry, IntCounterVec::new(Opts::new(name, help), labels))
}

fn histogram(registry: &Registry, name: &str, help: &str, bounds: &[f64]) -> Histogram {
    let opts = HistogramOpts::new(name, help).buckets(bounds.to_vec());
    registered(registry, Histogram::with_opts(opts))
}

fn registered<C: Collector + Clone + 'static>(
    registry: &Registry,
    made: prometheus::Result<C>,
) -> C {
    let family = made.expect("the names, labels and bounds of this file are valid");
    registry.register(Box::new(family.clone())).expect("each family of this file has its own name");
    family
}
