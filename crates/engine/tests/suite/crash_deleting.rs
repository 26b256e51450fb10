//! Kills a process with SIGKILL while it publishes to a topic and deletes it, again and again.
//!
//! Each generation of the topic has events that name it, and the commit that deletes it stores its number. After
//! a restart, the topic has only events of later generations than the stored number, all that were
//! acknowledged are there, and once it is deleted for good nothing of it is left on disk.

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use libtest_mimic::Trial;
use prombus_engine::{
    Batch, Bounds, DiskEngine, DiskOptions, Durability, Engine, Expect, Incident, ReadBudget,
    StateKey, StateOp,
};
use prombus_proto::{
    EncodedEvent, Event, EventId, Headers, Payload, Seq, SystemClock, Timestamp, Topic,
};

const CHILD_FOLDER: &str = "PROMBUS_CRASH_DELETING_FOLDER";
const ROUNDS: u64 = 25;
const GENERATION: &str = "deleted generation";

pub(crate) fn trials() -> Vec<Trial> {
    vec![Trial::test("disk::crash_deleting::a_deletion_is_all_or_nothing", || {
        let folder = tempfile::tempdir().unwrap();
        for round in 0..ROUNDS {
            let acknowledged = run_and_kill(folder.path(), round);
            runtime().block_on(check(folder.path(), &acknowledged));
        }
        runtime().block_on(delete_for_good(folder.path()));
        Ok(())
    })]
}

/// In the child process, publishes and deletes until it is killed. In the parent, does nothing.
pub(crate) fn run_as_child() {
    if let Some(folder) = std::env::var_os(CHILD_FOLDER) {
        runtime().block_on(work_until_killed(&PathBuf::from(folder)));
    }
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap()
}

fn options(folder: &Path) -> DiskOptions {
    DiskOptions {
        wal_file_bytes: 16 << 10,
        segment_bytes: 32 << 10,
        min_adopted_extent_bytes: 1,
        clock: Arc::new(SystemClock),
        ..DiskOptions::at(folder)
    }
}

fn topic(name: &str) -> Topic {
    Topic::new(name).unwrap()
}

fn key() -> StateKey {
    StateKey::new(GENERATION).unwrap()
}

fn event(name: &str, generation: u64, number: u64) -> EncodedEvent {
    let filler = "x".repeat(usize::try_from((generation * 31 + number * 7) % 600).unwrap());
    // Every generation has the same ids, of two kinds.
    let id = match number % 2 {
        0 => format!("event {number}"),
        _ => format!("018bcfe5-6800-7000-8000-{number:012x}"),
    };
    Event {
        id: EventId::new(&id).unwrap(),
        ts: Timestamp(1_700_000_000_000 + number),
        topic: topic(name),
        key: None,
        headers: Headers::default(),
        payload: Payload::parse(Bytes::from(format!(r#"[{generation},{number},"{filler}"]"#)))
            .unwrap(),
        caused_by: vec![],
        tags: vec![],
        sid: None,
    }
    .encode()
}

async fn deleted_generation(engine: &DiskEngine) -> u64 {
    let entry = engine.get(&key()).await.unwrap();
    entry.map_or(0, |entry| std::str::from_utf8(&entry.value).unwrap().parse().unwrap())
}

fn deletion(generation: u64) -> Batch {
    let put = StateOp::Put {
        key: key(),
        value: Bytes::from(generation.to_string()),
        expires_at: None,
        expect: Expect::Any,
    };
    Batch::of_deletion(topic("deleted"), vec![put])
}

async fn work_until_killed(folder: &Path) {
    let engine = DiskEngine::open(&options(folder)).unwrap();
    let say = |line: String| {
        // One write per line: a complete line is an acknowledgement.
        std::io::stdout().write_all(line.as_bytes()).unwrap();
        std::io::stdout().flush().unwrap();
    };
    say("started\n".to_owned());
    // An earlier process may have begun the next generation.
    let begun = deleted_generation(&engine).await + 1;
    engine.commit(deletion(begun)).await.unwrap();
    say(format!("deleted {begun}\n"));
    for generation in begun + 1.. {
        for number in 0..generation * 7 % 40 {
            let events =
                vec![event("deleted", generation, number), event("kept", generation, number)];
            let durability = if number % 3 == 0 { Durability::Buffered } else { Durability::Fsync };
            let positions =
                engine.commit(Batch::of_events(events, durability)).await.unwrap().positions;
            assert!(!positions[0].duplicate, "an id of an earlier generation");
            say(format!("published {generation} {number}\n"));
        }
        engine.commit(deletion(generation)).await.unwrap();
        say(format!("deleted {generation}\n"));
    }
}

#[derive(Default)]
struct Acknowledged {
    deleted: u64,
    published: BTreeSet<(u64, u64)>,
}

fn run_and_kill(folder: &Path, round: u64) -> Acknowledged {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .env(CHILD_FOLDER, folder)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    assert_eq!(lines.next().unwrap().unwrap(), "started");
    let killer = std::thread::spawn(move || {
        let random = std::hash::BuildHasher::hash_one(&std::hash::RandomState::new(), round);
        std::thread::sleep(Duration::from_micros(random % 150_000));
        child.kill().unwrap();
        child.wait().unwrap()
    });
    let mut acknowledged = Acknowledged::default();
    for line in lines.map_while(Result::ok) {
        let words: Vec<_> = line.split(' ').collect();
        let number = |word: &str| word.parse::<u64>().unwrap();
        match words[..] {
            ["deleted", generation] => acknowledged.deleted = number(generation),
            ["published", generation, n] => {
                acknowledged.published.insert((number(generation), number(n)));
            }
            _ => panic!("{line}"),
        }
    }
    assert!(!killer.join().unwrap().success(), "the child exited before it was killed");
    acknowledged
}

async fn check(folder: &Path, acknowledged: &Acknowledged) {
    let engine = DiskEngine::open(&options(folder)).unwrap();
    for incident in engine.health().incidents {
        assert!(matches!(incident, Incident::TornTail { .. }), "{incident:?}");
    }
    let deleted = deleted_generation(&engine).await;
    assert!(deleted >= acknowledged.deleted, "an acknowledged deletion is lost");
    let mut found = BTreeSet::new();
    let bounds = engine.bounds(&topic("deleted")).await.unwrap();
    let mut expected = bounds.first;
    loop {
        let page =
            engine.read(&topic("deleted"), expected, ReadBudget::of_events(100)).await.unwrap();
        let Some(last) = page.events.last() else { break };
        let next = last.seq.next();
        for stored in page.events {
            assert_eq!(stored.seq, expected);
            expected = expected.next();
            let (_, event) = Event::decode(&stored.json).unwrap();
            let (generation, number, _): (u64, u64, String) =
                serde_json::from_slice(event.payload.as_bytes()).unwrap();
            assert!(generation > deleted, "{generation} was deleted with {deleted}");
            found.insert((generation, number));
        }
        assert_eq!(expected, next);
    }
    assert_eq!(bounds.next, expected);
    let is_listed = engine.topics().await.unwrap().contains(&topic("deleted"));
    assert_eq!(is_listed, !found.is_empty());
    for published in acknowledged.published.iter().filter(|(generation, _)| *generation > deleted) {
        assert!(found.contains(published), "lost {published:?} after {deleted} was deleted");
    }
    engine.close().await.unwrap();
}

async fn delete_for_good(folder: &Path) {
    for _ in 0..2 {
        let engine = DiskEngine::open(&options(folder)).unwrap();
        for name in ["deleted", "kept"] {
            engine.commit(Batch::of_deletion(topic(name), vec![])).await.unwrap();
            assert_eq!(engine.bounds(&topic(name)).await.unwrap(), Bounds::EMPTY);
        }
        engine.close().await.unwrap();
    }
    for part in ["topics", "packs", "wal"] {
        let left: Vec<_> = std::fs::read_dir(folder.join(part)).unwrap().collect();
        assert!(left.is_empty(), "{left:?}");
    }
    // In an empty store, the numbering begins again.
    let engine = DiskEngine::open(&options(folder)).unwrap();
    let again = Batch::of_events(vec![event("deleted", 1, 1)], Durability::Fsync);
    assert_eq!(engine.commit(again).await.unwrap().positions[0].seq, Seq::FIRST);
    engine.close().await.unwrap();
}
