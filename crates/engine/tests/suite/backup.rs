//! Backups of stores in use, and what is restored from them.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use async_trait::async_trait;
use libtest_mimic::Trial;
use prombus_engine::conformance::{self, Subject};
use prombus_engine::disk::backup::{
    ArchiveError, Backup, BackupChunk, BackupError, OnDamage, RestoreError, check_backup, restore,
    verify_backup,
};
use prombus_engine::disk::{VerifyError, verify_store};
use prombus_engine::{
    Batch, DiskEngine, DiskOptions, Durability, Engine, MemoryEngine, OpenError, ReadBudget,
    Unavailable,
};
use prombus_proto::{ManualClock, Seq, SystemClock, Timestamp};
use tempfile::TempDir;

use crate::damage_store::{
    ADOPTED_WAL, Killed, Kind, MANY_FILES, PACKED, copy_folder, event, files_in, key, put,
    temporary_folder, topic,
};
use crate::disk::{CAPABILITIES, in_small_files};

pub(crate) fn trials() -> Vec<Trial> {
    fn trial<F: Future<Output = ()> + 'static>(name: &str, test: fn() -> F) -> Trial {
        Trial::test(format!("disk::backup::{name}"), move || {
            let mut runtime = tokio::runtime::Builder::new_multi_thread();
            runtime.worker_threads(2).enable_all().build().unwrap().block_on(test());
            Ok(())
        })
    }
    let mut trials = vec![
        trial("has_every_commit_before_its_moment_and_none_after", consistent),
        trial("a_reader_that_stops_costs_nobody_anything", abandoned),
        trial("a_kill_leaves_nothing_behind", killed),
        trial("a_third_backup_is_refused", three_at_once),
        trial("a_full_disk_gets_back_what_a_backup_holds", full_disk),
        trial("ends_when_the_store_is_closed", closed),
        trial("other_engines_say_what_to_use_instead", unsupported),
        trial("a_folder_in_use_is_left_alone", folder_in_use),
        trial("an_unfinished_restore_does_not_open", unfinished),
        trial("a_damaged_backup_is_not_restored", damaged_backup),
        trial("a_backup_that_needs_more_than_there_is_is_refused", no_room),
        trial("damage_is_named_and_kept_only_if_asked_for", damaged_source),
        trial("every_version_of_the_format_can_be_backed_up", old_formats),
    ];
    // A restored store fulfils the whole contract: here every restart is a backup and a restore.
    trials.extend(conformance::trials("disk_restored_from_backups", CAPABILITIES, || {
        RestoredSubject {
            folders: Vec::new(),
            clock: ManualClock::at(Timestamp(1_700_000_000_000)),
        }
    }));
    trials
}

async fn taken(backup: &mut Backup) -> Result<Vec<u8>, BackupError> {
    let mut bytes = Vec::new();
    loop {
        match backup.next().await {
            BackupChunk::Bytes(chunk) => bytes.extend(chunk),
            BackupChunk::Complete => return Ok(bytes),
            BackupChunk::Failed(error) => return Err(error),
        }
    }
}

async fn back_up(engine: &DiskEngine) -> Vec<u8> {
    taken(&mut engine.backup(OnDamage::Stop).await.unwrap()).await.unwrap()
}

async fn backup_of(store: &Killed) -> Vec<u8> {
    let copy = store.copy();
    let engine = DiskEngine::open(&copy.options()).unwrap();
    let bytes = back_up(&engine).await;
    engine.close().await.unwrap();
    bytes
}

fn stored(bytes: &[u8]) -> (TempDir, PathBuf) {
    let folder = temporary_folder();
    let file = folder.path().join("a.backup");
    fs::write(&file, bytes).unwrap();
    (folder, file)
}

/// Restores into a new folder.
fn restored(bytes: &[u8]) -> TempDir {
    let (_folder, file) = stored(bytes);
    let target = temporary_folder();
    let report = restore(&file, target.path(), OnDamage::Stop, &mut |_, _, _| {}).unwrap();
    assert!(report.is_intact());
    target
}

struct RestoredSubject {
    folders: Vec<TempDir>,
    clock: ManualClock,
}

impl RestoredSubject {
    fn open_in(&self, folder: &Path) -> DiskEngine {
        let mut options = DiskOptions::at(folder);
        options.clock = Arc::new(self.clock.clone());
        in_small_files(&mut options);
        DiskEngine::open(&options).expect("the store opens")
    }
}

#[async_trait]
impl Subject for RestoredSubject {
    fn clock(&self) -> ManualClock {
        self.clock.clone()
    }

    async fn open(&mut self) -> Arc<dyn Engine> {
        let next = match self.folders.last() {
            None => temporary_folder(),
            Some(last) => {
                let engine = self.open_in(last.path());
                let bytes = back_up(&engine).await;
                engine.close().await.unwrap();
                restored(&bytes)
            }
        };
        let engine = self.open_in(next.path());
        self.folders.push(next);
        Arc::new(engine)
    }
}

/// A store with small files whose publishers go on until it is dropped.
struct Busy {
    folder: TempDir,
    engine: Arc<DiskEngine>,
    publishers: Vec<Arc<Publisher>>,
    stop: Arc<AtomicBool>,
    tasks: Vec<tokio::task::JoinHandle<()>>,
}

/// Commits one event to a topic of its own, and sets its key to the number of the event.
struct Publisher {
    name: String,
    begun: AtomicU64,
    acknowledged: AtomicU64,
}

impl Busy {
    const PUBLISHERS: usize = 4;

    fn start() -> Self {
        let folder = temporary_folder();
        let mut options = DiskOptions::at(folder.path());
        in_small_files(&mut options);
        options.min_adopted_extent_bytes = 1;
        let engine = Arc::new(DiskEngine::open(&options).unwrap());
        let publishers: Vec<_> = (0..Self::PUBLISHERS)
            .map(|number| Publisher {
                name: format!("topic.{number}"),
                begun: AtomicU64::new(0),
                acknowledged: AtomicU64::new(0),
            })
            .map(Arc::new)
            .collect();
        let stop = Arc::<AtomicBool>::default();
        let publish = |publisher: &Arc<Publisher>| {
            let (publisher, engine) = (Arc::clone(publisher), Arc::clone(&engine));
            let stop = Arc::clone(&stop);
            tokio::spawn(async move {
                while !stop.load(Ordering::SeqCst) {
                    publisher.commit(&engine).await;
                }
            })
        };
        let tasks = publishers.iter().map(publish).collect();
        Self { folder, engine, publishers, stop, tasks }
    }

    /// Waits until the publishers have committed this many more events each.
    async fn wait_for_more(&self, events: u64) {
        let acknowledged = |it: &Arc<Publisher>| it.acknowledged.load(Ordering::SeqCst);
        let targets: Vec<_> = self.publishers.iter().map(|it| acknowledged(it) + events).collect();
        while self.publishers.iter().zip(&targets).any(|(it, target)| acknowledged(it) < *target) {
            tokio::task::yield_now().await;
        }
    }

    /// Drops all but the last few events of every topic.
    async fn trim(&self) {
        for publisher in &self.publishers {
            let last = publisher.acknowledged.load(Ordering::SeqCst);
            self.engine.trim(&topic(&publisher.name), Seq(last.saturating_sub(5))).await.unwrap();
        }
    }

    fn held(&self) -> Vec<PathBuf> {
        files_in(&self.folder.path().join("backup"))
    }

    async fn wait_until_something_is_held(&self) {
        while self.held().is_empty() {
            self.wait_for_more(10).await;
            self.trim().await;
        }
    }

    async fn stop(self) -> TempDir {
        self.stop.store(true, Ordering::SeqCst);
        for task in self.tasks {
            task.await.unwrap();
        }
        self.engine.close().await.unwrap();
        self.folder
    }
}

impl Publisher {
    async fn commit(&self, engine: &DiskEngine) {
        let number = self.begun.fetch_add(1, Ordering::SeqCst) + 1;
        let state = vec![put(&self.name, &number.to_string())];
        let events = vec![event(&self.name, number, 100)];
        let batch = Batch { state, ..Batch::of_events(events, Durability::Fsync) };
        let committed = engine.commit(batch).await.unwrap();
        assert_eq!(committed.positions[0].seq, Seq(number));
        self.acknowledged.store(number, Ordering::SeqCst);
    }

    /// Returns the number of the last commit that a store has, after it has checked that the store has
    /// all of it and all before.
    async fn last_in(&self, engine: &DiskEngine) -> u64 {
        let topic = topic(&self.name);
        let bounds = engine.bounds(&topic).await.unwrap();
        let all = ReadBudget { events: usize::MAX, bytes: usize::MAX };
        let page = engine.read(&topic, Seq::FIRST, all).await.unwrap();
        let seqs: Vec<_> = page.events.iter().map(|event| event.seq.0).collect();
        assert_eq!(seqs, (bounds.first.0..bounds.next.0).collect::<Vec<_>>());
        for found in page.events.iter().step_by(9) {
            assert_eq!(found.id, *event(&self.name, found.seq.0, 100).id());
            assert_eq!(engine.seek_id(&topic, &found.id).await.unwrap(), Some(found.seq));
        }
        let value = engine.get(&key(&self.name)).await.unwrap();
        let last = bounds.next.0 - 1;
        let text = value.map_or("0".to_owned(), |it| String::from_utf8(it.value.to_vec()).unwrap());
        assert_eq!(text, last.to_string(), "the event and the key were one commit");
        last
    }
}

/// Backups of different moments, two at a time, read slowly, while publishers, checkpoints, merges and
/// trims go on.
async fn consistent() {
    let busy = Busy::start();
    busy.wait_for_more(50).await;
    for round in 0..6 {
        let before: Vec<_> = busy
            .publishers
            .iter()
            .map(|publisher| publisher.acknowledged.load(Ordering::SeqCst))
            .collect();
        let mut backup = busy.engine.backup(OnDamage::Stop).await.unwrap();
        let after: Vec<_> =
            busy.publishers.iter().map(|it| it.begun.load(Ordering::SeqCst)).collect();
        let mut beside = busy.engine.backup(OnDamage::Stop).await.unwrap();
        // Long enough for many checkpoints and some merges.
        busy.wait_for_more(100).await;
        if round % 2 == 1 {
            busy.trim().await;
            busy.wait_for_more(30).await;
        }
        let (bytes, others) = tokio::join!(taken(&mut backup), taken(&mut beside));
        drop((backup, beside));
        for (number, bytes) in [bytes.unwrap(), others.unwrap()].iter().enumerate() {
            let summary = check_backup(&bytes[..], &mut |_, _| {}).unwrap();
            assert_eq!(summary.compressed_bytes, bytes.len() as u64);
            let folder = restored(bytes);
            let report = verify_store(folder.path(), &mut |_, _| {}).unwrap();
            assert!(report.is_intact(), "{:?}", report.faults);
            let engine = DiskEngine::open(&DiskOptions::at(folder.path())).unwrap();
            assert_eq!(engine.health().incidents, []);
            for (publisher, (before, after)) in
                busy.publishers.iter().zip(before.iter().zip(&after))
            {
                let last = publisher.last_in(&engine).await;
                assert!(last >= *before, "commit {before} was acknowledged, {last} is the last");
                assert!(number > 0 || last <= *after, "{last} was not begun, {after} was");
            }
            engine.close().await.unwrap();
        }
        assert_eq!(busy.held(), [""; 0].map(PathBuf::from), "space is given back");
    }
    let publishers = busy.publishers.clone();
    let folder = busy.stop().await;
    let report = verify_store(folder.path(), &mut |_, _| {}).unwrap();
    assert!(report.is_intact(), "{:?}", report.faults);
    let engine = DiskEngine::open(&DiskOptions::at(folder.path())).unwrap();
    assert_eq!(engine.health().incidents, [], "nothing is lost where the backups were taken");
    for publisher in publishers {
        let acknowledged = publisher.acknowledged.load(Ordering::SeqCst);
        assert_eq!(publisher.last_in(&engine).await, acknowledged);
    }
}

/// Publishers, checkpoints and trims go on while nobody reads, and the files go with the reader.
async fn abandoned() {
    let busy = Busy::start();
    busy.wait_for_more(200).await;
    let backup = busy.engine.backup(OnDamage::Stop).await.unwrap();
    busy.wait_for_more(500).await;
    drop(backup);
    // The thread notices when it has read its next part.
    while !busy.held().is_empty() {
        tokio::task::yield_now().await;
    }
    busy.stop().await;
}

/// A copy of the folder is what a killed process leaves.
async fn killed() {
    let busy = Busy::start();
    busy.wait_for_more(300).await;
    // Small enough to be read at once, so the second one is what waits.
    let backup = large_backup(&busy).await;
    busy.wait_until_something_is_held().await;
    let left = temporary_folder();
    // Files come and go meanwhile: what matters is the folder of held files.
    fs::create_dir(left.path().join("backup")).unwrap();
    drop(backup);
    let folder = busy.stop().await;
    copy_folder(folder.path(), left.path());
    fs::write(left.path().join("backup/00000000000000000007.held"), b"left").unwrap();
    fs::write(left.path().join("backup/mine.txt"), b"not ours").unwrap();
    let engine = DiskEngine::open(&DiskOptions::at(left.path())).unwrap();
    let files = files_in(&left.path().join("backup"));
    assert_eq!(files, [left.path().join("backup/mine.txt")]);
    engine.close().await.unwrap();
}

/// Starts a backup that cannot be read ahead: it has more than its thread may read before somebody takes
/// it.
async fn large_backup(busy: &Busy) -> Backup {
    let noise = |n: u64| -> String {
        let mut state = n.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
        let next = |_| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            format!("{state:016x}")
        };
        (0..4000).map(next).collect()
    };
    for n in 0..40 {
        let batch =
            Batch::of_state(vec![put(&format!("noise/{n}"), &noise(n))], Durability::Buffered);
        busy.engine.commit(batch).await.unwrap();
    }
    busy.engine.backup(OnDamage::Stop).await.unwrap()
}

async fn three_at_once() {
    let busy = Busy::start();
    let first = large_backup(&busy).await;
    let second = large_backup(&busy).await;
    let third = busy.engine.backup(OnDamage::Stop).await;
    assert!(matches!(third, Err(BackupError::TooMany)));
    drop(first);
    // It ends when its thread notices.
    let mut again = loop {
        match busy.engine.backup(OnDamage::Stop).await {
            Ok(again) => break again,
            Err(BackupError::TooMany) => tokio::task::yield_now().await,
            Err(error) => panic!("{error}"),
        }
    };
    let bytes = taken(&mut again).await.unwrap();
    assert!(check_backup(&bytes[..], &mut |_, _| {}).is_ok());
    drop(second);
    busy.stop().await;
}

async fn full_disk() {
    let folder = temporary_folder();
    let mut options = DiskOptions::at(folder.path());
    in_small_files(&mut options);
    let faults = Arc::clone(&options.faults);
    let engine = Arc::new(DiskEngine::open(&options).unwrap());
    let busy = Busy {
        folder,
        engine,
        publishers: vec![Arc::new(Publisher {
            name: "topic.0".to_owned(),
            begun: AtomicU64::new(0),
            acknowledged: AtomicU64::new(0),
        })],
        stop: Arc::default(),
        tasks: Vec::new(),
    };
    let publisher = Arc::clone(&busy.publishers[0]);
    for _ in 0..100 {
        publisher.commit(&busy.engine).await;
    }
    let mut backup = large_backup(&busy).await;
    while busy.held().is_empty() {
        publisher.commit(&busy.engine).await;
        busy.trim().await;
    }
    faults.leave_room(0);
    let batch = || Batch::of_events(vec![event("topic.1", 1, 100)], Durability::Fsync);
    assert!(busy.engine.commit(batch()).await.is_err());
    assert!(matches!(taken(&mut backup).await, Err(BackupError::Full(1..))));
    while !busy.held().is_empty() {
        tokio::task::yield_now().await;
    }
    // With nothing in the way, a backup succeeds on a full disk. What was trimmed before may only be removed
    // while it runs, and then is in the way.
    let bytes = loop {
        match taken(&mut busy.engine.backup(OnDamage::Stop).await.unwrap()).await {
            Err(BackupError::Full(1..)) => {}
            done => break done.unwrap(),
        }
    };
    faults.make_room();
    let restored = restored(&bytes);
    let engine = DiskEngine::open(&DiskOptions::at(restored.path())).unwrap();
    let acknowledged = publisher.acknowledged.load(Ordering::SeqCst);
    assert_eq!(publisher.last_in(&engine).await, acknowledged);
    busy.engine.commit(batch()).await.unwrap();
    busy.stop().await;
}

async fn closed() {
    let busy = Busy::start();
    busy.wait_for_more(100).await;
    let mut backup = large_backup(&busy).await;
    busy.wait_until_something_is_held().await;
    let engine = Arc::clone(&busy.engine);
    let folder = busy.stop().await;
    assert_eq!(files_in(&folder.path().join("backup")), [""; 0].map(PathBuf::from));
    let ended = taken(&mut backup).await;
    assert!(matches!(ended, Err(BackupError::Unavailable(Unavailable::Closed))), "{ended:?}");
    let refused = engine.backup(OnDamage::Stop).await;
    assert!(matches!(refused, Err(BackupError::Unavailable(Unavailable::Closed))));
}

async fn unsupported() {
    let engine = MemoryEngine::new(Arc::new(SystemClock));
    match engine.backup(OnDamage::Stop).await {
        Err(BackupError::Unsupported(advice)) => assert!(advice.contains("export"), "{advice}"),
        other => panic!("{other:?}"),
    }
}

async fn folder_in_use() {
    let store = Killed::after(MANY_FILES, 20).await;
    let (_folder, file) = stored(&backup_of(&store).await);
    let restore_to = |folder: &Path| restore(&file, folder, OnDamage::Stop, &mut |_, _, _| {});
    let copy = store.copy();
    let before = files_in(copy.folder.path());
    assert!(matches!(restore_to(copy.folder.path()), Err(RestoreError::NotEmpty(_))));
    assert_eq!(files_in(copy.folder.path()), before);
    let foreign = temporary_folder();
    fs::write(foreign.path().join("holiday.jpg"), b"precious").unwrap();
    assert!(matches!(restore_to(foreign.path()), Err(RestoreError::NotEmpty(_))));

    let engine = DiskEngine::open(&copy.options()).unwrap();
    let in_use = verify_store(copy.folder.path(), &mut |_, _| {});
    assert!(matches!(in_use, Err(VerifyError::Open(OpenError::Locked { .. }))));
    engine.close().await.unwrap();
    let not_a_store = verify_store(foreign.path(), &mut |_, _| {});
    assert!(matches!(not_a_store, Err(VerifyError::NotAStore(_))));
    assert_eq!(files_in(foreign.path()).len(), 1, "nothing is created");
    let nowhere = foreign.path().join("no/such/folder");
    assert!(verify_store(&nowhere, &mut |_, _| {}).is_err());
    assert!(!nowhere.exists());
    // Folders above are created, as by a start.
    restore_to(&nowhere).unwrap();
    DiskEngine::open(&DiskOptions::at(&nowhere)).unwrap();
}

async fn unfinished() {
    let store = Killed::after(PACKED, 40).await;
    let (_folder, file) = stored(&backup_of(&store).await);
    let target = temporary_folder();
    let restore = || restore(&file, target.path(), OnDamage::Stop, &mut |_, _, _| {});
    restore().unwrap();
    // As if the power had failed before the end, with files of another backup.
    fs::write(target.path().join("RESTORING"), b"").unwrap();
    fs::write(target.path().join("packs/00000000000000000999.pack"), b"old").unwrap();
    let opened = DiskEngine::open(&store.sizes.options(target.path()));
    let error = opened.err().expect("it does not open").to_string();
    assert!(error.contains("unfinished restore"), "{error}");
    let verified = verify_store(target.path(), &mut |_, _| {});
    assert!(matches!(verified, Err(VerifyError::Open(OpenError::Unfinished { .. }))));
    restore().unwrap();
    assert!(!target.path().join("packs/00000000000000000999.pack").exists());
    let engine = DiskEngine::open(&store.sizes.options(target.path())).unwrap();
    assert_eq!(engine.health().incidents, []);
    for (topic, events) in &store.written.topics {
        assert_eq!(engine.bounds(topic).await.unwrap().last().0, events.len() as u64);
    }
}

async fn damaged_backup() {
    let whole = backup_of(&Killed::after(MANY_FILES, 20).await).await;
    for cut in [0, 47, 48, whole.len() / 2, whole.len() - 1] {
        let (_folder, file) = stored(&whole[..cut]);
        let target = temporary_folder();
        let error = restore(&file, target.path(), OnDamage::Include, &mut |_, _, _| {});
        assert!(matches!(error, Err(RestoreError::Archive(_))), "{cut}");
        assert_eq!(files_in(target.path()).len(), 0, "nothing is written");
    }
    for bit in (0..whole.len() * 8).step_by(whole.len() / 12) {
        let mut flipped = whole.clone();
        flipped[bit / 8] ^= 1 << (bit % 8);
        let (_folder, file) = stored(&flipped);
        assert!(verify_backup(&file, &mut |_, _| {}).is_err(), "bit {bit}");
        let target = temporary_folder();
        assert!(restore(&file, target.path(), OnDamage::Include, &mut |_, _, _| {}).is_err());
        assert_eq!(files_in(target.path()).len(), 0, "nothing is written");
    }
}

async fn no_room() {
    let mut bytes = backup_of(&Killed::after(MANY_FILES, 5).await).await;
    // What the header announces, with a checksum that matches.
    bytes[24..32].copy_from_slice(&(1_u64 << 60).to_le_bytes());
    let sum = crc_fast::crc32_iscsi(&bytes[..40]);
    bytes[40..44].copy_from_slice(&sum.to_le_bytes());
    let (_folder, file) = stored(&bytes);
    let target = temporary_folder();
    let error = restore(&file, target.path(), OnDamage::Stop, &mut |_, _, _| {});
    assert!(matches!(error, Err(RestoreError::NoRoom { .. })), "{error:?}");
    assert_eq!(files_in(target.path()).len(), 0);
}

/// A backup of a damaged store fails. If it is asked to go on, the damage is in its report, in that of the
/// restored store, and nowhere else.
async fn damaged_source() {
    for (sizes, kind) in [
        (MANY_FILES, Kind::Segment),
        (MANY_FILES, Kind::SparseIndex),
        (ADOPTED_WAL, Kind::Segment),
        (PACKED, Kind::Pack),
    ] {
        let store = Killed::after(sizes, 40).await;
        for is_missing in [false, true] {
            let copy = store.copy();
            // Everything is checkpointed, so the files stay as they are from now on.
            DiskEngine::open(&copy.options()).unwrap().close().await.unwrap();
            let file = copy.files(kind)[0].clone();
            let engine = DiskEngine::open(&copy.options()).unwrap();
            if is_missing {
                fs::remove_file(&file).unwrap();
            } else {
                let mut bytes = fs::read(&file).unwrap();
                let middle = bytes.len() / 2;
                bytes[middle] ^= 1;
                fs::write(&file, bytes).unwrap();
            }
            let name = file.strip_prefix(copy.folder.path()).unwrap().display().to_string();
            let mut stopped = engine.backup(OnDamage::Stop).await.unwrap();
            let mut sent = Vec::new();
            let error = loop {
                match stopped.next().await {
                    BackupChunk::Bytes(bytes) => sent.extend(bytes),
                    BackupChunk::Complete => panic!("{name} is damaged"),
                    BackupChunk::Failed(error) => break error,
                }
            };
            assert!(matches!(&error, BackupError::Damaged(fault) if fault.file == name));
            // What was sent says so itself.
            match check_backup(&sent[..], &mut |_, _| {}) {
                Err(ArchiveError::Aborted(reason)) => assert!(reason.contains(&name), "{reason}"),
                other => panic!("{other:?}"),
            }
            let mut included = engine.backup(OnDamage::Include).await.unwrap();
            let (_folder, backup) = stored(&taken(&mut included).await.unwrap());
            let report = verify_backup(&backup, &mut |_, _| {}).unwrap();
            let damaged: Vec<_> = report.recorded.iter().map(|fault| &fault.file).collect();
            assert_eq!((damaged, report.faults.len()), (vec![&name], 0));
            let target = temporary_folder();
            let refused = restore(&backup, target.path(), OnDamage::Stop, &mut |_, _, _| {});
            assert!(matches!(refused, Err(RestoreError::Damaged(_))));
            let report =
                restore(&backup, target.path(), OnDamage::Include, &mut |_, _, _| {}).unwrap();
            assert_eq!(report.recorded.len(), 1);
            let report = verify_store(target.path(), &mut |_, _| {}).unwrap();
            assert_eq!(report.faults.len(), 1, "{:?}", report.faults);
            assert_eq!(report.faults[0].file, name);
            engine.close().await.unwrap();
        }
    }
}

/// Stores of all earlier versions, each of which has other files.
async fn old_formats() {
    let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures");
    let mut seen = 0;
    for entry in fs::read_dir(fixtures).unwrap() {
        let (copy, fixture) = (temporary_folder(), entry.unwrap().path());
        if !fixture.is_dir() {
            continue;
        }
        copy_folder(&fixture, copy.path());
        let report = verify_store(copy.path(), &mut |_, _| {}).unwrap();
        assert!(report.is_intact(), "{}: {:?}", fixture.display(), report.faults);
        let engine = DiskEngine::open(&DiskOptions::at(copy.path())).unwrap();
        let folder = restored(&back_up(&engine).await);
        let restored = DiskEngine::open(&DiskOptions::at(folder.path())).unwrap();
        assert_eq!(restored.health().incidents, []);
        let all = ReadBudget { events: usize::MAX, bytes: usize::MAX };
        for topic in engine.topics().await.unwrap() {
            let expected = engine.read(&topic, Seq::FIRST, all).await.unwrap().events;
            assert_eq!(restored.read(&topic, Seq::FIRST, all).await.unwrap().events, expected);
            seen += expected.len();
        }
    }
    assert!(seen > 100, "{seen} events");
}
