//! The text of a scrape, with what is read from the store only for it.

use prombus_engine::{Bounds, Engine, StateEntry};
use prombus_proto::{ErrorCode, Group, Topic};
use prometheus::core::Collector;
use prometheus::{IntGauge, IntGaugeVec, Opts, TextEncoder};

use super::{Metrics, pairs_note};
use crate::error::Refusal;
use crate::inspect::open_events;
use crate::stored::StatePages;
use crate::stored::cursor::Cursor;

/// All that is counted, as Prometheus text 0.0.4.
pub(crate) async fn text(metrics: &Metrics, engine: &dyn Engine) -> Result<String, Refusal> {
    let topics = made(IntGauge::new("prombus_topics", "Topics that ever had an event."));
    let count = engine.topics().await?.len();
    topics.set(i64::try_from(count).unwrap_or(i64::MAX));
    let lag = lag(metrics, engine).await?;
    let mut families = metrics.registry.gather();
    families.extend(topics.collect());
    families.extend(lag.collect().into_iter().filter(|family| !family.get_metric().is_empty()));
    families.sort_by(|one, other| one.name().cmp(other.name()));
    TextEncoder::new()
        .encode_to_string(&families)
        .map_err(|error| Refusal::new(ErrorCode::Internal, format!("no text of metrics: {error}")))
}

/// How far each group with a stored cursor is behind. Made anew each time, so that a group that is
/// gone leaves nothing behind.
async fn lag(metrics: &Metrics, engine: &dyn Engine) -> Result<IntGaugeVec, Refusal> {
    let help = format!("Events that the group has not done. {}", pairs_note());
    let lag = made(IntGaugeVec::new(Opts::new("prombus_lag_events", help), &["topic", "group"]));
    // Cursors stand in the order of their topics.
    let mut latest: Option<(Topic, Bounds)> = None;
    let mut pages = StatePages::new(engine, Cursor::prefix());
    loop {
        let page = pages.next().await?;
        if page.is_empty() {
            return Ok(lag);
        }
        for entry in &page {
            let Some((pair, cursor)) = read(entry) else { continue };
            let bounds = match &latest {
                Some((topic, bounds)) if *topic == pair.0 => *bounds,
                _ => engine.bounds(&pair.0).await?,
            };
            let events = i64::try_from(open_events(&cursor, &bounds).0).unwrap_or(i64::MAX);
            lag.with_label_values(&metrics.pair_labels(&pair)).add(events);
            latest = Some((pair.0, bounds));
        }
    }
}

/// Whose cursor it is, and what it says. One that cannot be read is left out: the group says so
/// itself when somebody subscribes.
fn read(entry: &StateEntry) -> Option<((Topic, Group), Cursor)> {
    let whose = Cursor::names_at(&entry.key)?;
    Some((whose, Cursor::decode(&entry.value).ok()?))
}

fn made<C>(made: prometheus::Result<C>) -> C {
    made.expect("the names and labels of this file are valid")
}
