//! Kills a process with SIGKILL at random moments, again and again, and reopens its store each time.
//!
//! A child process commits from several writers and prints what was acknowledged. Afterwards,
//! everything that it printed is stored at the printed position; batches are complete, over topics
//! and state; positions have no gaps and ids are unique.
//!
//! `PROMBUS_CRASH_ROUNDS` sets the number of rounds (`make crash ROUNDS=1000`).

use std::collections::{BTreeMap, HashMap, HashSet};
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use libtest_mimic::Trial;
use prombus_engine::{
    Batch, DiskEngine, DiskOptions, Durability, Engine, Expect, Incident, ReadBudget, StateKey,
    StateOp,
};
use prombus_proto::{
    EncodedEvent, Event, EventId, Headers, Payload, Seq, SystemClock, Timestamp, Topic,
};

const CHILD_FOLDER: &str = "PROMBUS_CRASH_CHILD_FOLDER";
const CHILD_ROUND: &str = "PROMBUS_CRASH_CHILD_ROUND";
const ROUNDS: &str = "PROMBUS_CRASH_ROUNDS";
const DEFAULT_ROUNDS: u64 = 60;
/// Rounds on one store before a new one is created.
const ROUNDS_PER_STORE: u64 = 15;
const WRITERS: u64 = 4;
const TOPICS: u64 = 3;

pub(crate) fn trials() -> Vec<Trial> {
    vec![Trial::test("disk::crash::nothing_acknowledged_is_lost", || {
        let rounds = std::env::var(ROUNDS).ok().and_then(|rounds| rounds.parse().ok());
        crash_and_reopen(rounds.unwrap_or(DEFAULT_ROUNDS));
        Ok(())
    })]
}

/// In the child process, commits until it is killed. In the parent, does nothing.
pub(crate) fn run_as_child() {
    let Some(folder) = std::env::var_os(CHILD_FOLDER) else { return };
    let round: u64 = std::env::var(CHILD_ROUND).unwrap().parse().unwrap();
    runtime().block_on(commit_until_killed(PathBuf::from(folder), round));
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap()
}

/// Files so small that a kill often hits a checkpoint, a merge or a new segment; WAL files that
/// mostly contain one topic are adopted as its segments.
fn options(folder: &Path) -> DiskOptions {
    DiskOptions {
        wal_file_bytes: 48 << 10,
        segment_bytes: 128 << 10,
        min_adopted_extent_bytes: 1,
        clock: Arc::new(SystemClock),
        ..DiskOptions::at(folder)
    }
}

fn topic(number: u64) -> Topic {
    Topic::new(&format!("crash.topic-{number}")).unwrap()
}

fn writer_key(writer: u64) -> StateKey {
    StateKey::new(format!("writer/{writer}")).unwrap()
}

/// Creates event `index` of a batch of `size`. Its payload identifies it when it is read back.
fn event(writer: u64, batch: u64, index: u64, size: u64) -> EncodedEvent {
    let filler = "x".repeat(usize::try_from((batch * 31 + index * 7) % 400).unwrap());
    let payload = format!(r#"[{writer},{batch},{index},{size},"{filler}"]"#);
    Event {
        id: event_id(writer, batch, index),
        ts: Timestamp(1_700_000_000_000 + batch),
        // Most events go to one topic.
        topic: topic(((batch + index) % 7).saturating_sub(7 - TOPICS)),
        key: None,
        headers: Headers::default(),
        payload: Payload::parse(Bytes::from(payload)).unwrap(),
        caused_by: vec![],
        tags: vec![],
        sid: None,
    }
    .encode()
}

/// UUIDs of version 7, other UUIDs and text: each kind is indexed differently.
fn event_id(writer: u64, batch: u64, index: u64) -> EventId {
    let (writer_and_index, batch_bits) = (writer << 32 | index, u128::from(batch));
    match batch % 3 {
        0 => EventId::new(&format!("{writer}/{batch}/{index}")).unwrap(),
        1 => uuid_of(batch_bits << 80 | 0x7 << 76 | 0b10 << 62 | u128::from(writer_and_index)),
        _ => uuid_of(u128::from(writer_and_index.reverse_bits()) << 64 | batch_bits),
    }
}

fn uuid_of(bits: u128) -> EventId {
    EventId::from_uuid(uuid::Uuid::from_u128(bits))
}

async fn commit_until_killed(folder: PathBuf, round: u64) {
    let engine = Arc::new(DiskEngine::open(&options(&folder)).unwrap());
    let writers: Vec<_> = (0..WRITERS)
        .map(|writer| tokio::spawn(write(Arc::clone(&engine), writer, round * 1_000_000)))
        .collect();
    for writer in writers {
        writer.await.unwrap();
    }
}

async fn write(engine: Arc<DiskEngine>, writer: u64, first_batch: u64) {
    for batch in first_batch.. {
        let size = 1 + (batch * 13 + writer) % 20;
        let events: Vec<_> = (0..size).map(|index| event(writer, batch, index, size)).collect();
        let topics: Vec<_> = events.iter().map(|event| event.topic().clone()).collect();
        let durability = if (batch + writer).is_multiple_of(3) {
            Durability::Buffered
        } else {
            Durability::Fsync
        };
        let state = vec![StateOp::Put {
            key: writer_key(writer),
            value: Bytes::from(batch.to_string()),
            expires_at: None,
            expect: Expect::Any,
        }];
        let batch_of = Batch { state, ..Batch::of_events(events, durability) };
        let committed = engine.commit(batch_of).await.unwrap();
        let mut line = format!("{writer} {batch}");
        for (topic, position) in topics.iter().zip(&committed.positions) {
            line += &format!(" {topic} {}", position.seq);
        }
        line.push('\n');
        // One write per line: a complete line is an acknowledged commit.
        std::io::stdout().write_all(line.as_bytes()).unwrap();
        std::io::stdout().flush().unwrap();
    }
}

#[derive(Default)]
struct Acknowledged {
    /// The event that must be at each position.
    positions: HashMap<(Topic, Seq), (u64, u64, u64)>,
    last_batch: BTreeMap<u64, u64>,
}

impl Acknowledged {
    fn add(&mut self, line: &str) {
        let mut words = line.split(' ');
        let mut number = || words.next().unwrap().parse::<u64>().unwrap();
        let (writer, batch) = (number(), number());
        let words: Vec<_> = words.collect();
        for (words, index) in words.chunks_exact(2).zip(0..) {
            let position = (Topic::new(words[0]).unwrap(), Seq(words[1].parse().unwrap()));
            self.positions.insert(position, (writer, batch, index));
        }
        self.last_batch.insert(writer, batch);
    }
}

fn crash_and_reopen(rounds: u64) {
    let mut folder = tempfile::tempdir().unwrap();
    let mut acknowledged = Acknowledged::default();
    for round in 1..=rounds {
        if round % ROUNDS_PER_STORE == 0 {
            folder = tempfile::tempdir().unwrap();
            acknowledged = Acknowledged::default();
        }
        run_and_kill(folder.path(), round, &mut acknowledged);
        runtime().block_on(check(folder.path(), round, &acknowledged));
    }
}

fn run_and_kill(folder: &Path, round: u64, acknowledged: &mut Acknowledged) {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .env(CHILD_FOLDER, folder)
        .env(CHILD_ROUND, round.to_string())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    // Waits for the first acknowledgement, so that a slow start does not waste the round.
    acknowledged.add(&lines.next().unwrap().unwrap());
    let killer = std::thread::spawn(move || {
        let random = std::hash::BuildHasher::hash_one(&std::hash::RandomState::new(), round);
        std::thread::sleep(Duration::from_micros(random % 150_000));
        child.kill().unwrap();
        child.wait().unwrap()
    });
    // The pipe still has everything printed before the kill; the last line may be incomplete.
    let mut rest = String::new();
    for line in lines.map_while(Result::ok) {
        rest = line;
        if is_complete(&rest) {
            acknowledged.add(&rest);
        }
    }
    assert!(!killer.join().unwrap().success(), "the child exited before it was killed: {rest}");
}

/// Returns `true` if a line has a position for every event of its batch.
fn is_complete(line: &str) -> bool {
    let words: Vec<_> = line.split(' ').collect();
    let (Some(Ok(writer)), Some(Ok(batch))) = (
        words.first().map(|word| word.parse::<u64>()),
        words.get(1).map(|word| word.parse::<u64>()),
    ) else {
        return false;
    };
    words.len() as u64 == 2 + 2 * (1 + (batch * 13 + writer) % 20)
}

async fn check(folder: &Path, round: u64, acknowledged: &Acknowledged) {
    let engine = DiskEngine::open(&options(folder)).unwrap();
    for incident in engine.health().incidents {
        assert!(matches!(incident, Incident::TornTail { .. }), "round {round}: {incident:?}");
    }
    let mut found = HashMap::new();
    let mut ids = HashSet::new();
    let mut batches: BTreeMap<(u64, u64), (u64, u64)> = BTreeMap::new();
    for number in 0..TOPICS {
        let topic = topic(number);
        let mut expected = Seq::FIRST;
        loop {
            let page = engine.read(&topic, expected, ReadBudget::of_events(1000)).await.unwrap();
            let Some(last) = page.events.last() else { break };
            let next = last.seq.next();
            for stored in &page.events {
                assert_eq!(stored.seq, expected, "round {round}: a gap in {topic}");
                expected = expected.next();
                let (seq, event) = Event::decode(&stored.json).unwrap();
                assert_eq!((seq, &event.id), (stored.seq, &stored.id));
                let (writer, batch, index, size, _): (u64, u64, u64, u64, String) =
                    serde_json::from_slice(event.payload.as_bytes()).unwrap();
                assert!(ids.insert((topic.clone(), stored.id.clone())), "an id was stored twice");
                found.insert((topic.clone(), stored.seq), (writer, batch, index));
                let (count, _) = batches.entry((writer, batch)).or_insert((0, size));
                *count += 1;
            }
            assert_eq!(expected, next);
        }
        assert_eq!(engine.bounds(&topic).await.unwrap().next, expected);
    }
    for ((writer, batch), (count, size)) in &batches {
        assert_eq!(count, size, "round {round}: batch {batch} of writer {writer} is incomplete");
    }
    for (position, event) in &acknowledged.positions {
        assert_eq!(found.get(position), Some(event), "round {round}: lost {position:?}");
    }
    for (writer, acknowledged) in &acknowledged.last_batch {
        let entry = engine.get(&writer_key(*writer)).await.unwrap().unwrap();
        let state: u64 = std::str::from_utf8(&entry.value).unwrap().parse().unwrap();
        let newest = batches.range((*writer, 0)..=(*writer, u64::MAX)).next_back();
        assert_eq!(Some(state), newest.map(|((_, batch), _)| *batch), "state and log differ");
        assert!(state >= *acknowledged);
    }
    check_ids(&engine, acknowledged).await;
    engine.close().await.unwrap();
}

/// Publishes acknowledged events again, like a publisher that never got the answer: nothing is stored
/// twice.
async fn check_ids(engine: &DiskEngine, acknowledged: &Acknowledged) {
    for ((topic, seq), (writer, batch, index)) in acknowledged.positions.iter().take(200) {
        let size = 1 + (batch * 13 + writer) % 20;
        let again =
            Batch::of_events(vec![event(*writer, *batch, *index, size)], Durability::Buffered);
        let position = engine.commit(again).await.unwrap().positions[0];
        assert!(position.duplicate && position.seq == *seq, "{topic} {seq}: {position:?}");
    }
}
