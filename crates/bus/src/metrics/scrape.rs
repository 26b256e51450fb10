//! Renders the metrics, including those read from the store on demand.

use prombus_engine::{Bounds, Engine, StateEntry};
use prombus_proto::{ErrorCode, Group, Topic};
use prometheus::core::Collector;
use prometheus::proto::MetricFamily;
use prometheus::{GaugeVec, IntCounterVec, IntGauge, IntGaugeVec, Opts, TextEncoder};

use super::{Metrics, OTHER, pairs_note, process, store};
use crate::error::Refusal;
use crate::inspect::open_events;
use crate::memory::Memory;
use crate::stored::StatePages;
use crate::stored::cursor::Cursor;

/// Renders all metrics in the Prometheus text format 0.0.4.
pub(crate) async fn text(
    metrics: &Metrics,
    engine: &dyn Engine,
    memory: &Memory,
) -> Result<String, Refusal> {
    let topics =
        valid(IntGauge::new("prombus_topics", "Topics that have ever contained an event."));
    let count = engine.topics().await?.len();
    topics.set(i64::try_from(count).unwrap_or(i64::MAX));
    let lag = lag(metrics, engine).await?;
    let mut families = metrics.registry.gather();
    families.extend(topics.collect());
    families.extend(buffers(memory));
    families.extend(store::families(engine).await);
    families.extend(process::families());
    families.extend(oldest_unacked(metrics).collect().into_iter().filter(has_series));
    families.extend(lag.collect().into_iter().filter(has_series));
    families.sort_by(|one, other| one.name().cmp(other.name()));
    TextEncoder::new().encode_to_string(&families).map_err(|error| {
        Refusal::new(ErrorCode::Internal, format!("cannot render metrics: {error}"))
    })
}

/// Returns what the budgets of buffers say now.
fn buffers(memory: &Memory) -> Vec<MetricFamily> {
    let gauge = |name, help| valid(IntGaugeVec::new(Opts::new(name, help), &["kind"]));
    let in_use = gauge("prombus_buffer_bytes", "Bytes in buffers of this kind.");
    let limit = gauge("prombus_buffer_limit_bytes", "The budget of all buffers of this kind.");
    let help = "How often a buffer got no room in the budget of its kind, or gave way to others.";
    let opts = Opts::new("prombus_buffer_refusals_total", help);
    let refusals = valid(IntCounterVec::new(opts, &["kind"]));
    let signed = |bytes: usize| i64::try_from(bytes).unwrap_or(i64::MAX);
    for (kind, budget) in memory.kinds() {
        in_use.with_label_values(&[kind]).set(signed(budget.in_use()));
        limit.with_label_values(&[kind]).set(signed(budget.limit()));
        refusals.with_label_values(&[kind]).inc_by(budget.refusals());
    }
    [in_use.collect(), limit.collect(), refusals.collect()].concat()
}

fn has_series(family: &MetricFamily) -> bool {
    !family.get_metric().is_empty()
}

/// Returns how long the oldest delivered event of each group in memory is open.
fn oldest_unacked(metrics: &Metrics) -> GaugeVec {
    let help = format!(
        "Time since the first delivery of the oldest event that was delivered and is not finished. {}",
        pairs_note()
    );
    let opts = Opts::new("prombus_oldest_unacked_seconds", help);
    let ages = valid(GaugeVec::new(opts, &["topic", "group"]));
    for (pair, age) in metrics.open_groups.ages() {
        let labels = match &pair {
            Some((topic, group)) => [topic.as_str(), group.as_str()],
            None => [OTHER, OTHER],
        };
        let gauge = ages.with_label_values(&labels);
        // A topic and a group may be named like the label of all others.
        gauge.set(gauge.get().max(age.as_secs_f64()));
    }
    ages
}

/// Computes the lag of each group with a stored cursor. A new gauge each time, so that deleted groups disappear.
async fn lag(metrics: &Metrics, engine: &dyn Engine) -> Result<IntGaugeVec, Refusal> {
    let help = format!("Events the group has not processed. {}", pairs_note());
    let lag = valid(IntGaugeVec::new(Opts::new("prombus_lag_events", help), &["topic", "group"]));
    // Cursors are ordered by topic: remember the bounds of the current one.
    let mut current: Option<(Topic, Bounds)> = None;
    let mut pages = StatePages::new(engine, Cursor::prefix());
    loop {
        let page = pages.next().await?;
        if page.is_empty() {
            return Ok(lag);
        }
        for entry in &page {
            let Some((pair, cursor)) = parse(entry) else { continue };
            let bounds = match &current {
                Some((topic, bounds)) if *topic == pair.0 => *bounds,
                _ => engine.bounds(&pair.0).await?,
            };
            let events = i64::try_from(open_events(&cursor, &bounds).0).unwrap_or(i64::MAX);
            lag.with_label_values(&metrics.pair_labels(&pair)).add(events);
            current = Some((pair.0, bounds));
        }
    }
}

/// Returns `None` for an unreadable cursor, which the group reports at the next subscribe.
fn parse(entry: &StateEntry) -> Option<((Topic, Group), Cursor)> {
    let pair = Cursor::names_at(&entry.key)?;
    Some((pair, Cursor::decode(&entry.value).ok()?))
}

pub(super) fn valid<C>(family: prometheus::Result<C>) -> C {
    family.expect("names and labels in this file are valid")
}
