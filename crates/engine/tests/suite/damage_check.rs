//! Checks that a damaged store is honest: reads everything back and compares it with what was
//! committed.

use std::collections::{BTreeMap, HashSet};
use std::future::Future;
use std::panic;
use std::sync::{Mutex, Once};
use std::time::Duration;

use libtest_mimic::{Failed, Trial};
use prombus_engine::{
    Batch, CommitError, Committed, Damaged, DiskEngine, DiskOptions, Durability, Engine, Incident,
    OpenError, ReadBudget, ReadError, StateEntry, StateKey, Unavailable,
};
use prombus_proto::{EventId, Seq, Topic};

use crate::damage_store::{Written, event, put};

/// The result of a check; the error describes what the store got wrong.
pub(crate) type Checked<T> = Result<T, String>;

pub(crate) fn ensure(holds: bool, otherwise: impl FnOnce() -> String) -> Checked<()> {
    if holds { Ok(()) } else { Err(otherwise()) }
}

/// Far longer than any case takes.
const TIMEOUT: Duration = Duration::from_secs(20);

static PANICS: Mutex<Vec<String>> = Mutex::new(Vec::new());

/// Creates a trial that also fails if an engine thread panics or a case hangs.
pub(crate) fn trial<F: Future<Output = Checked<()>>>(
    name: &str,
    run: impl FnOnce() -> F + Send + 'static,
) -> Trial {
    Trial::test(format!("damage::{name}"), move || run_checked(run).map_err(Failed::from))
}

/// Runs a case, and fails if an engine thread panicked meanwhile.
pub(crate) fn run_checked<F: Future<Output = Checked<()>>>(run: impl FnOnce() -> F) -> Checked<()> {
    record_panics();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .thread_name("damage-engine")
        .enable_all()
        .build()
        .expect("a runtime");
    let result = runtime.block_on(run());
    // A case that hangs must not hang the shutdown as well.
    runtime.shutdown_background();
    result?;
    let panics = PANICS.lock().expect("not poisoned").clone();
    ensure(panics.is_empty(), || panics.join("\n"))
}

fn record_panics() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let before = panic::take_hook();
        panic::set_hook(Box::new(move |info| {
            let thread = std::thread::current();
            let name = thread.name().unwrap_or_default();
            if name.starts_with("prombus-") || name.starts_with("damage-engine") {
                PANICS.lock().expect("not poisoned").push(format!("{name}: {info}"));
            }
            before(info);
        }));
    });
}

/// Exits the process if `work` times out: an engine that hangs cannot be dropped.
pub(crate) async fn in_time<T>(case: &str, work: impl Future<Output = Checked<T>>) -> Checked<T> {
    let mut work = std::pin::pin!(work);
    match tokio::time::timeout(TIMEOUT, work.as_mut()).await {
        Ok(result) => result.map_err(|detail| format!("{case}: {detail}")),
        Err(_) => {
            eprintln!("{case}: timed out");
            std::process::exit(101)
        }
    }
}

/// Opens a store on a thread that may block.
pub(crate) async fn open(options: &DiskOptions) -> Result<DiskEngine, OpenError> {
    let options = options.clone();
    tokio::task::spawn_blocking(move || DiskEngine::open(&options)).await.expect("no panic")
}

/// What a store lost, and what it reported.
#[derive(Debug, Default)]
pub(crate) struct Findings {
    pub(crate) lost: BTreeMap<Topic, Vec<Seq>>,
    /// Some state could not be read, or is older than it should be.
    pub(crate) lost_state: bool,
    pub(crate) incidents: Vec<Incident>,
}

impl Findings {
    pub(crate) fn lost_events(&self) -> usize {
        self.lost.values().map(Vec::len).sum()
    }

    /// Returns the number of lost bytes of JSON.
    pub(crate) fn lost_bytes(&self, written: &Written) -> usize {
        let events = self.lost.iter().flat_map(|(topic, lost)| {
            lost.iter().map(|seq| written.topics[topic][index_of(*seq)].json.len())
        });
        events.sum()
    }

    pub(crate) fn nothing_lost(&self) -> Checked<()> {
        ensure(self.lost_events() == 0 && !self.lost_state, || format!("lost: {self:?}"))
    }
}

fn index_of(seq: Seq) -> usize {
    usize::try_from(seq.0 - 1).expect("a small position")
}

/// Reads everything back. Fails if anything is wrong, duplicated, or missing without a report.
pub(crate) async fn read_back(engine: &DiskEngine, written: &Written) -> Checked<Findings> {
    let mut findings = Findings::default();
    let topics = engine.topics().await.map_err(|error| error.to_string())?;
    let expected: Vec<_> = written.topics.keys().cloned().collect();
    ensure(topics == expected, || format!("topics are {topics:?}"))?;
    for topic in &expected {
        let lost = read_topic(engine, written, topic).await?;
        check_ids(engine, written, topic, &lost).await?;
        if !lost.is_empty() {
            findings.lost.insert(topic.clone(), lost);
        }
    }
    findings.lost_state = read_state(engine, written).await?;
    findings.incidents = engine.health().incidents;
    let reported = !findings.incidents.is_empty();
    ensure(reported || findings.nothing_lost().is_ok(), || format!("unreported: {findings:?}"))?;
    Ok(findings)
}

/// Reads all of `topic`, continuing after damage, and returns the damaged events.
async fn read_topic(engine: &DiskEngine, written: &Written, topic: &Topic) -> Checked<Vec<Seq>> {
    let expected = &written.topics[topic];
    let next = written.next_seq(topic);
    let bounds = engine.bounds(topic).await.map_err(|error| error.to_string())?;
    ensure(bounds.next == next && bounds.first == Seq::FIRST, || {
        format!("{topic} has {bounds:?}, not up to {next}")
    })?;
    let mut lost = Vec::new();
    let mut from = Seq::FIRST;
    let mut ids = HashSet::new();
    while from < next {
        match engine.read(topic, from, ReadBudget::of_events(7)).await {
            Ok(page) => {
                ensure(!page.events.is_empty(), || {
                    format!("{topic} ends at {from} without an error")
                })?;
                for event in &page.events {
                    let wanted = &expected[index_of(from)];
                    ensure(event == wanted, || format!("{event:?} is not {wanted:?}"))?;
                    ensure(ids.insert(event.id.clone()), || {
                        format!("{} is stored twice", event.id)
                    })?;
                    from = from.next();
                }
            }
            Err(ReadError::Damaged(Damaged::Events { topic: named, first, last, .. })) => {
                ensure(named == *topic && first == from && last >= from && last < next, || {
                    format!(
                        "damage reported for {named} {first} to {last}, found at {from} of {topic}"
                    )
                })?;
                lost.extend((first.0..=last.0).map(Seq));
                from = last.next();
            }
            Err(error) => return Err(format!("{topic} from {from}: {error}")),
        }
    }
    Ok(lost)
}

/// Checks that every id is found at its position, unless its event is lost.
async fn check_ids(
    engine: &DiskEngine,
    written: &Written,
    topic: &Topic,
    lost: &[Seq],
) -> Checked<()> {
    for event in &written.topics[topic] {
        let found = engine.seek_id(topic, &event.id).await.map_err(|error| error.to_string())?;
        // A lost event may have been stored again later.
        let again = |found: Option<Seq>| {
            let ids = written.topics[topic].iter().filter(|other| other.id == event.id);
            found.is_none() || ids.map(|other| Some(other.seq)).any(|seq| seq == found)
        };
        let right = found == Some(event.seq) || lost.contains(&event.seq) && again(found);
        ensure(right, || format!("{} of {topic} is at {found:?}", event.id))?;
    }
    let unknown = EventId::new("never stored").expect("a valid id");
    let found = engine.seek_id(topic, &unknown).await.map_err(|error| error.to_string())?;
    ensure(found.is_none(), || format!("an id that was never stored is found at {found:?}"))
}

/// Reads the state by key and with a scan. Returns `true` if some of it is damaged.
async fn read_state(engine: &DiskEngine, written: &Written) -> Checked<bool> {
    let mut lost = false;
    let keys: HashSet<_> = written.past_state.iter().map(|entry| &entry.key).collect();
    for key in keys {
        match engine.get(key).await {
            Ok(found) => {
                lost |= check_entry(engine, written, key, found.as_ref())?;
            }
            Err(ReadError::Damaged(Damaged::State(_))) => lost = true,
            Err(error) => return Err(format!("{key:?}: {error}")),
        }
    }
    match engine.scan(b"", None, usize::MAX).await {
        Ok(entries) => {
            for entry in &entries {
                lost |= check_entry(engine, written, &entry.key, Some(entry))?;
            }
            let same = entries.iter().eq(written.state.values());
            ensure(same || reports_damaged_state(engine), || {
                "a scan is wrong without a report".to_owned()
            })?;
            lost |= !same;
        }
        Err(ReadError::Damaged(Damaged::State(_))) => lost = true,
        Err(error) => return Err(format!("scan: {error}")),
    }
    Ok(lost)
}

/// Checks that an entry is current, or an older one of a store that reports damage. Returns `true` for
/// an older one.
fn check_entry(
    engine: &DiskEngine,
    written: &Written,
    key: &StateKey,
    found: Option<&StateEntry>,
) -> Checked<bool> {
    if found == written.state.get(key) {
        return Ok(false);
    }
    let was_there = found.is_none_or(|entry| written.past_state.contains(entry));
    ensure(was_there && reports_damaged_state(engine), || format!("{key:?} is {found:?}"))?;
    Ok(true)
}

fn reports_damaged_state(engine: &DiskEngine) -> bool {
    let damages = |incident: &Incident| {
        matches!(incident, Incident::DamagedState { .. } | Incident::DamagedLog { .. })
    };
    engine.health().incidents.iter().any(damages)
}

/// Commits every event again, and some new ones: only lost and new events are stored.
pub(crate) async fn commit_again(
    engine: &DiskEngine,
    written: &mut Written,
    findings: &Findings,
) -> Checked<()> {
    let batch = Batch::of_events(written.events.clone(), Durability::Fsync);
    let committed = commit_when_indexed(engine, &batch).await?;
    for (event, position) in batch.events.iter().zip(&committed.positions) {
        let events = &written.topics[event.topic()];
        let first = events.iter().find(|e| e.id == *event.id()).expect("it was written").seq;
        let lost = findings.lost.get(event.topic()).is_some_and(|lost| lost.contains(&first));
        let known = position.duplicate && position.seq == first;
        ensure(known || lost && !position.duplicate, || {
            format!("{} of {} was at {first}, is at {position:?}", event.id(), event.topic())
        })?;
    }
    // Lost events are now stored again, at the end of their topic.
    written.remember(&batch, &committed);
    let topics: Vec<_> = written.topics.keys().cloned().collect();
    let new = topics.iter().zip(2_000_000..).map(|(topic, n)| event(topic.as_str(), n, 50));
    let batch = Batch {
        state: vec![put("new", "value")],
        ..Batch::of_events(new.collect(), Durability::Fsync)
    };
    let committed = commit_when_indexed(engine, &batch).await?;
    ensure(committed.positions.iter().all(|p| !p.duplicate), || {
        "a new event was taken for a duplicate".to_owned()
    })?;
    written.remember(&batch, &committed);
    Ok(())
}

/// Commits `batch`, which is refused while the index of ids is being rebuilt.
pub(crate) async fn commit_when_indexed(engine: &DiskEngine, batch: &Batch) -> Checked<Committed> {
    in_time("rebuilding the index of ids", async {
        loop {
            match engine.commit(batch.clone()).await {
                Err(CommitError::Unavailable(Unavailable::Io { .. })) => {
                    tokio::time::sleep(Duration::from_millis(5)).await;
                }
                committed => return committed.map_err(|error| error.to_string()),
            }
        }
    })
    .await
}

/// Closes the store and opens it again.
pub(crate) async fn reopen(engine: DiskEngine, options: &DiskOptions) -> Checked<DiskEngine> {
    engine.close().await.map_err(|error| format!("close: {error}"))?;
    drop(engine);
    open(options).await.map_err(|error| format!("open again: {error}"))
}
