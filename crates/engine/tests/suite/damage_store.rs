//! Stores to be damaged: their files as a killed process leaves them, and what was committed.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use prombus_engine::{
    Batch, Committed, DiskEngine, DiskOptions, Durability, Engine, Expect, StateEntry, StateKey,
    StateOp, StoredEvent,
};
use prombus_proto::{
    EncodedEvent, Event, EventId, Headers, Key, ManualClock, Payload, Seq, Timestamp, Topic,
};
use tempfile::TempDir;

const NOW: Timestamp = Timestamp(1_700_000_000_000);
pub(crate) const TOPICS: [&str; 3] = ["audit.log", "orders", "payments"];
const BUSY: &str = TOPICS[1];

/// Everything that was committed, and so everything that must be readable.
#[derive(Clone, Default)]
pub(crate) struct Written {
    /// The event `seq` is at index `seq - 1`.
    pub(crate) topics: BTreeMap<Topic, Vec<StoredEvent>>,
    pub(crate) events: Vec<EncodedEvent>,
    pub(crate) state: BTreeMap<StateKey, StateEntry>,
    /// Every value that any key ever had.
    pub(crate) past_state: Vec<StateEntry>,
    batches: u64,
}

impl Written {
    /// Commits `batch` and remembers it.
    pub(crate) async fn commit(&mut self, engine: &DiskEngine, batch: Batch) -> Committed {
        let committed = engine.commit(batch.clone()).await.expect("the batch is stored");
        self.remember(&batch, &committed);
        committed
    }

    pub(crate) fn remember(&mut self, batch: &Batch, committed: &Committed) {
        self.batches += 1;
        for (event, position) in batch.events.iter().zip(&committed.positions) {
            if !position.duplicate {
                let stored = as_stored(event, position.seq);
                let topic = self.topics.entry(event.topic().clone()).or_default();
                assert_eq!(topic.len() as u64 + 1, position.seq.0, "positions have a gap");
                topic.push(stored);
                self.events.push(event.clone());
            }
        }
        for op in &batch.state {
            match op {
                StateOp::Put { key, value, expires_at, .. } => {
                    let (key, value, expires_at) = (key.clone(), value.clone(), *expires_at);
                    let entry = StateEntry {
                        key: key.clone(),
                        value,
                        version: committed.version,
                        expires_at,
                    };
                    self.past_state.push(entry.clone());
                    self.state.insert(key, entry);
                }
                StateOp::Delete { key, .. } => {
                    self.state.remove(key);
                }
            }
        }
    }

    /// Creates a new batch with events of all topics and state changes.
    pub(crate) fn next_batch(&self, payload_bytes: usize) -> Batch {
        let n = self.batches;
        let events = TOPICS.iter().enumerate().flat_map(|(index, topic)| {
            // The topics get different numbers of events.
            let count = (n + index as u64) % 3 + u64::from(n.is_multiple_of(5));
            (0..count).map(move |i| event(topic, n * 100 + index as u64 * 10 + i, payload_bytes))
        });
        let mut state = vec![
            put(&format!("cursor/{:02}", n % 7), &format!("at {n}")),
            put(&format!("seen/{n:04}"), &"s".repeat(payload_bytes / 4)),
        ];
        if n % 4 == 3 {
            state.push(StateOp::Delete {
                key: key(&format!("seen/{:04}", n - 1)),
                expect: Expect::Any,
            });
        }
        let events = events.collect();
        Batch {
            events,
            expected_last: Vec::new(),
            deleted_topics: Vec::new(),
            state,
            durability: Durability::Fsync,
        }
    }

    pub(crate) fn next_seq(&self, topic: &Topic) -> Seq {
        Seq(self.topics.get(topic).map_or(0, |events| events.len() as u64) + 1)
    }
}

fn as_stored(event: &EncodedEvent, seq: Seq) -> StoredEvent {
    let mut json = Vec::new();
    event.write_json(seq, &mut json);
    let (id, key) = (event.id().clone(), event.key().cloned());
    StoredEvent { seq, ts: event.ts(), id, key, json: json.into() }
}

pub(crate) fn topic(name: &str) -> Topic {
    Topic::new(name).expect("a valid name")
}

pub(crate) fn key(text: &str) -> StateKey {
    StateKey::new(text.to_owned()).expect("a valid key")
}

pub(crate) fn put(name: &str, value: &str) -> StateOp {
    let value = Bytes::from(value.to_owned());
    StateOp::Put { key: key(name), value, expires_at: None, expect: Expect::Any }
}

/// Creates event `n`. Ids are of every kind: ordered by time, random, plain text.
pub(crate) fn event(name: &str, n: u64, payload_bytes: usize) -> EncodedEvent {
    let id = match n % 4 {
        0 => format!("event {n}"),
        1 => format!("{:08x}-0000-4000-8000-{n:012x}", n.wrapping_mul(2_654_435_761) & 0xFFFF_FFFF),
        _ => format!("018bcfe5-{:04x}-7000-8000-{n:012x}", n & 0xFFFF),
    };
    let letter = char::from(b'a' + u8::try_from(n % 26).expect("a letter"));
    let payload =
        format!("{{\"n\":{n},\"text\":\"{}\"}}", String::from(letter).repeat(payload_bytes));
    Event {
        id: EventId::new(&id).expect("a valid id"),
        ts: NOW.plus_ms(n),
        topic: topic(name),
        key: n.is_multiple_of(3).then(|| Key::new("some key").expect("a valid key")),
        headers: Headers::default(),
        payload: Payload::parse(Bytes::from(payload)).expect("valid JSON"),
        caused_by: vec![],
        tags: vec![],
        sid: None,
    }
    .encode()
}

/// Creates a temporary directory, in memory if possible: these tests open thousands of stores and do
/// not depend on real syncs.
pub(crate) fn temporary_folder() -> TempDir {
    tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).expect("a temporary folder")
}

/// The file sizes of a store.
#[derive(Clone, Copy)]
pub(crate) struct Sizes {
    pub(crate) wal_file_bytes: u64,
    pub(crate) segment_bytes: u64,
    /// Most events belong to one topic, so that WAL files are adopted as its segments.
    pub(crate) adopts_wal: bool,
    /// Topics share packs.
    pub(crate) packs: bool,
}

/// Several segments per topic, each with a few entries in its index.
pub(crate) const MANY_FILES: Sizes =
    Sizes { wal_file_bytes: 3 << 10, segment_bytes: 14 << 10, adopts_wal: false, packs: false };
/// Several files of some size.
pub(crate) const LARGE: Sizes =
    Sizes { wal_file_bytes: 512 << 10, segment_bytes: 1 << 20, adopts_wal: false, packs: false };
/// Everything is still in the log.
pub(crate) const ONE_LOG_FILE: Sizes =
    Sizes { wal_file_bytes: 64 << 10, segment_bytes: 14 << 10, adopts_wal: false, packs: false };
/// Some segments are adopted WAL files, others are not.
pub(crate) const ADOPTED_WAL: Sizes =
    Sizes { wal_file_bytes: 12 << 10, segment_bytes: 14 << 10, adopts_wal: true, packs: false };

/// Topics are in packs until they have a few events.
pub(crate) const PACKED: Sizes = Sizes { packs: true, ..MANY_FILES };

impl Sizes {
    pub(crate) fn options(self, folder: &Path) -> DiskOptions {
        let mut options = DiskOptions::at(folder);
        options.clock = Arc::new(ManualClock::at(NOW));
        options.wal_file_bytes = self.wal_file_bytes;
        options.segment_bytes = self.segment_bytes;
        options.min_adopted_extent_bytes = if self.adopts_wal { 1 } else { u64::MAX };
        options.open_files = 3;
        if self.packs {
            (options.small_files, options.packed_bytes) = (0, 4 << 10);
        }
        options
    }
}

/// A store as a killed process leaves it.
pub(crate) struct Killed {
    pub(crate) folder: TempDir,
    pub(crate) sizes: Sizes,
    pub(crate) written: Written,
    /// What was committed before the last batch.
    pub(crate) before_last: Written,
}

impl Killed {
    /// Creates a store of `batches` batches and a small last one that touches everything.
    pub(crate) async fn after(sizes: Sizes, batches: usize) -> Self {
        let living = temporary_folder();
        let engine = DiskEngine::open(&sizes.options(living.path())).expect("a new store opens");
        let (written, before_last) = commit_batches(&engine, sizes, batches, || ()).await;
        settle(living.path()).await;
        let folder = temporary_folder();
        copy_folder(living.path(), folder.path());
        engine.close().await.expect("it closes");
        Self { folder, sizes, written, before_last }
    }

    /// Creates a store with several log files, as if no checkpoint had run yet.
    pub(crate) async fn before_any_checkpoint(sizes: Sizes, batches: usize) -> Self {
        let living = temporary_folder();
        let engine = DiskEngine::open(&sizes.options(living.path())).expect("a new store opens");
        let folder = temporary_folder();
        copy_folder(living.path(), folder.path());
        // A hard link keeps the log files that checkpoints remove.
        let keep = || {
            for file in files_in(&living.path().join("wal")) {
                let kept = folder.path().join("wal").join(file.file_name().expect("a name"));
                if !kept.exists() {
                    // A checkpoint may have removed it; then an earlier link exists.
                    let _ = fs::hard_link(&file, &kept);
                }
            }
        };
        let (written, before_last) = commit_batches(&engine, sizes, batches, keep).await;
        engine.close().await.expect("it closes");
        Self { folder, sizes, written, before_last }
    }

    /// Creates a copy that a test may damage.
    pub(crate) fn copy(&self) -> Copy {
        let folder = temporary_folder();
        copy_folder(self.folder.path(), folder.path());
        Copy { folder, sizes: self.sizes }
    }

    pub(crate) fn files(&self, kind: Kind) -> Vec<PathBuf> {
        files_of(self.folder.path(), kind)
    }
}

/// A copy of a killed store.
pub(crate) struct Copy {
    pub(crate) folder: TempDir,
    pub(crate) sizes: Sizes,
}

impl Copy {
    pub(crate) fn options(&self) -> DiskOptions {
        self.sizes.options(self.folder.path())
    }

    /// Returns the path in this copy of a file of the original.
    pub(crate) fn path_of(&self, original: &Killed, file: &Path) -> PathBuf {
        let inner = file.strip_prefix(original.folder.path()).expect("a file of the original");
        self.folder.path().join(inner)
    }

    /// Copies the files while an engine has them open, as if its process were killed now.
    pub(crate) async fn killed_now(&self) -> Copy {
        settle(self.folder.path()).await;
        let folder = temporary_folder();
        copy_folder(self.folder.path(), folder.path());
        Copy { folder, sizes: self.sizes }
    }

    pub(crate) fn files(&self, kind: Kind) -> Vec<PathBuf> {
        files_of(self.folder.path(), kind)
    }
}

async fn commit_batches(
    engine: &DiskEngine,
    sizes: Sizes,
    batches: usize,
    after_each: impl Fn(),
) -> (Written, Written) {
    let mut written = Written::default();
    for _ in 0..batches {
        let mut batch = written.next_batch(250);
        if sizes.adopts_wal {
            let busy = (0..8).map(|i| event(BUSY, 500_000 + written.batches * 10 + i, 250));
            batch.events.extend(busy);
        }
        written.commit(engine, batch).await;
        after_each();
    }
    let before_last = written.clone();
    let mut last = Batch { events: Vec::new(), ..written.next_batch(4) };
    last.events.extend(TOPICS.iter().zip(1_000_001..).map(|(name, n)| event(name, n, 4)));
    last.events.push(event(TOPICS[1], 1_000_009, 4));
    written.commit(engine, last).await;
    after_each();
    (written, before_last)
}

/// Waits until the checkpoints are done.
async fn settle(folder: &Path) {
    let look = || -> Vec<_> {
        let all = Kind::ALL.iter().flat_map(|kind| files_of(folder, *kind));
        all.map(|path| (fs::read(&path).map(|bytes| bytes.len()).unwrap_or(0), path)).collect()
    };
    let mut seen = look();
    loop {
        tokio::time::sleep(Duration::from_millis(150)).await;
        let now = look();
        if now == seen && files_of(folder, Kind::Wal).len() <= 1 {
            return;
        }
        seen = now;
    }
}

/// The kinds of files in a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Wal,
    Segment,
    SparseIndex,
    Ids,
    State,
    Catalog,
    CatalogMirror,
    Edit,
    EditMirror,
    Pack,
    Lock,
}

impl Kind {
    pub(crate) const ALL: [Kind; 11] = [
        Kind::Wal,
        Kind::Segment,
        Kind::SparseIndex,
        Kind::Ids,
        Kind::State,
        Kind::Catalog,
        Kind::CatalogMirror,
        Kind::Edit,
        Kind::EditMirror,
        Kind::Pack,
        Kind::Lock,
    ];
}

pub(crate) fn files_of(folder: &Path, kind: Kind) -> Vec<PathBuf> {
    let with_extension = |inner: &str, extension: &str| {
        let mut files = files_in(&folder.join(inner));
        files.retain(|file| file.extension().is_some_and(|found| found == extension));
        files
    };
    match kind {
        Kind::Wal => with_extension("wal", "wal"),
        Kind::Segment => with_extension("topics", "seg"),
        Kind::SparseIndex => with_extension("topics", "idx"),
        Kind::Ids => with_extension("ids", "ids"),
        Kind::State => with_extension("state", "kv"),
        Kind::Catalog => vec![folder.join("catalog")],
        Kind::CatalogMirror => vec![folder.join("catalog.mirror")],
        Kind::Edit => with_extension("edits", "edit"),
        Kind::EditMirror => with_extension("edits", "mirror"),
        Kind::Pack => with_extension("packs", "pack"),
        Kind::Lock => vec![folder.join("LOCK")],
    }
}

/// Returns all files below `folder`, sorted by path.
pub(crate) fn files_in(folder: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    let Ok(entries) = fs::read_dir(folder) else { return files };
    for entry in entries.flatten() {
        match entry.path() {
            path if path.is_dir() => files.extend(files_in(&path)),
            path => files.push(path),
        }
    }
    files.sort_unstable();
    files
}

pub(crate) fn copy_folder(from: &Path, to: &Path) {
    fs::create_dir_all(to).expect("a folder");
    for entry in fs::read_dir(from).expect("a folder to copy") {
        let path = entry.expect("an entry").path();
        let target = to.join(path.file_name().expect("a name"));
        if path.is_dir() {
            copy_folder(&path, &target);
        } else {
            fs::copy(&path, &target).expect("a copy");
        }
    }
}

/// Returns the byte ranges of the frames in a log file.
pub(crate) fn frames_of(wal: &[u8]) -> Vec<std::ops::Range<usize>> {
    let number = |at: usize| {
        wal.get(at..at + 4).map_or(0, |b| u32::from_le_bytes(b.try_into().expect("four"))) as usize
    };
    let mut frames = Vec::new();
    let mut start = 32;
    while wal.get(start..start + 4) == Some(b"PBh2") {
        let end = start + 2 * number(start + 4) + number(start + 8);
        frames.push(start..end);
        start = end;
    }
    frames
}
