//! A full WAL file that mostly contains one topic is adopted as a segment of that topic. Readers cannot
//! tell the difference.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use libtest_mimic::Trial;
use prombus_engine::{Batch, DiskEngine, DiskOptions, Durability, Engine, ReadBudget, Retention};
use prombus_proto::Seq;

use crate::damage_check::{Checked, ensure, in_time, read_back, trial};
use crate::damage_store::{
    ADOPTED_WAL, Kind, Written, event, files_of, put, temporary_folder, topic,
};

const BUSY: &str = "orders";
const QUIET: &str = "audit.log";

pub(crate) fn trials() -> Vec<Trial> {
    vec![
        trial("adopted_wal::are_the_same_file", are_the_same_file),
        trial("adopted_wal::are_read_like_other_segments", are_read_like_other_segments),
        trial("adopted_wal::are_followed_by_other_segments", are_followed_by_other_segments),
        trial(
            "adopted_wal::needs_extents_that_are_long_enough",
            needs_extents_that_are_long_enough,
        ),
        trial("adopted_wal::are_deleted_with_their_last_event", are_deleted_with_their_last_event),
        trial("adopted_wal::survive_an_unfinished_checkpoint", survive_an_unfinished_checkpoint),
    ]
}

fn options(folder: &Path) -> DiskOptions {
    ADOPTED_WAL.options(folder)
}

/// Commits batches of the busy topic, with some state and an occasional event of the quiet topic.
async fn commit_batches(engine: &DiskEngine, written: &mut Written, batches: u64) {
    let start = written.events.len() as u64 * 100;
    for n in (0..batches).map(|n| start + n * 10) {
        let mut events: Vec<_> = (0..6).map(|i| event(BUSY, n + i, 200)).collect();
        events.extend(n.is_multiple_of(40).then(|| event(QUIET, n + 9, 30)));
        let state = vec![put(&format!("cursor/{}", n % 3), &n.to_string())];
        let batch = Batch { state, ..Batch::of_events(events, Durability::Fsync) };
        written.commit(engine, batch).await;
    }
}

/// Waits until all full log files have become segments.
async fn wait_for_checkpoints(folder: &Path) {
    let done = async {
        while files_of(folder, Kind::Wal).len() > 1 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        Ok(())
    };
    in_time("waiting for checkpoints", done).await.expect("no error");
}

fn segments_of(folder: &Path, name: &str) -> Vec<PathBuf> {
    let mut segments = files_of(folder, Kind::Segment);
    segments.retain(|path| path.parent().is_some_and(|topic| topic.ends_with(name)));
    segments
}

fn is_a_log(segment: &Path) -> bool {
    fs::read(segment).expect("a segment")[8..12] == *b"wal "
}

async fn store_with_adopted_wal(folder: &Path) -> (DiskEngine, Written) {
    let engine = DiskEngine::open(&options(folder)).expect("it opens");
    let mut written = Written::default();
    commit_batches(&engine, &mut written, 60).await;
    wait_for_checkpoints(folder).await;
    (engine, written)
}

async fn are_the_same_file() -> Checked<()> {
    let folder = temporary_folder();
    let engine = DiskEngine::open(&options(folder.path())).expect("it opens");
    let mut written = Written::default();
    commit_batches(&engine, &mut written, 1).await;
    let log = fs::metadata(&files_of(folder.path(), Kind::Wal)[0]).expect("the log");
    commit_batches(&engine, &mut written, 30).await;
    wait_for_checkpoints(folder.path()).await;
    let segments = segments_of(folder.path(), BUSY);
    let first = fs::metadata(&segments[0]).expect("the first segment");
    ensure(first.ino() == log.ino() && first.nlink() == 1, || format!("{first:?}"))?;
    ensure(first.len() < log.len(), || "preallocated space was not released".to_owned())?;
    ensure(segments.len() > 2 && segments.iter().all(|path| is_a_log(path)), || {
        format!("{segments:?}")
    })?;
    // Events of other topics in these logs are copied to segments of their own.
    let quiet = segments_of(folder.path(), QUIET);
    ensure(!quiet.is_empty() && !quiet.iter().any(|path| is_a_log(path)), || format!("{quiet:?}"))?;
    let bounds = engine.bounds(&topic(BUSY)).await.expect("bounds");
    let json: usize = written.topics[&topic(BUSY)].iter().map(|event| event.json.len()).sum();
    // A record adds less than a hundred bytes; frame heads and other topics do not count.
    ensure((json as u64..json as u64 + 100 * bounds.last().0).contains(&bounds.bytes), || {
        format!("{bounds:?} for {json} bytes of JSON")
    })
}

/// By position, time and id, before and after a restart.
async fn are_read_like_other_segments() -> Checked<()> {
    let folder = temporary_folder();
    let (mut engine, written) = store_with_adopted_wal(folder.path()).await;
    let busy = topic(BUSY);
    for _ in 0..2 {
        read_back(&engine, &written).await?.nothing_lost()?;
        ensure(engine.health().incidents.is_empty(), || format!("{:?}", engine.health()))?;
        let events = &written.topics[&busy];
        for (at, expected) in events.iter().enumerate() {
            let budget = ReadBudget::of_events(1 + at % 13);
            let page = engine.read(&busy, expected.seq, budget).await.expect("a page");
            let wanted = &events[at..events.len().min(at + 1 + at % 13)];
            ensure(page.events == wanted, || format!("wrong events at {}", expected.seq))?;
            let by_id = engine.seek_id(&busy, &expected.id).await.expect("found");
            ensure(by_id == Some(expected.seq), || format!("{} is at {by_id:?}", expected.id))?;
            let by_time = engine.seek_time(&busy, expected.ts).await.expect("found");
            ensure(by_time == expected.seq, || format!("{:?} is at {by_time}", expected.ts))?;
        }
        engine.close().await.expect("it closes");
        engine = DiskEngine::open(&options(folder.path())).expect("it opens");
    }
    Ok(())
}

/// Alternates between WAL files too short to be adopted, as after a close, and longer ones.
async fn are_followed_by_other_segments() -> Checked<()> {
    let folder = temporary_folder();
    let (mut engine, mut written) = store_with_adopted_wal(folder.path()).await;
    for batches in [1, 2, 40, 1] {
        engine.close().await.expect("it closes");
        engine = DiskEngine::open(&options(folder.path())).expect("it opens");
        commit_batches(&engine, &mut written, batches).await;
        read_back(&engine, &written).await?.nothing_lost()?;
    }
    wait_for_checkpoints(folder.path()).await;
    let kinds: Vec<_> =
        segments_of(folder.path(), BUSY).iter().map(|path| is_a_log(path)).collect();
    let changes = kinds.windows(2).filter(|two| two[0] != two[1]).count();
    ensure(changes >= 2, || format!("adopted or not: {kinds:?}"))?;
    read_back(&engine, &written).await?.nothing_lost()
}

async fn needs_extents_that_are_long_enough() -> Checked<()> {
    let folder = temporary_folder();
    // Six events are an extent of less than this.
    let options = DiskOptions { min_adopted_extent_bytes: 4 << 10, ..options(folder.path()) };
    let engine = DiskEngine::open(&options).expect("it opens");
    let mut written = Written::default();
    commit_batches(&engine, &mut written, 40).await;
    wait_for_checkpoints(folder.path()).await;
    let segments = segments_of(folder.path(), BUSY);
    ensure(!segments.is_empty() && !segments.iter().any(|path| is_a_log(path)), || {
        format!("{segments:?}")
    })?;
    read_back(&engine, &written).await?.nothing_lost()
}

async fn are_deleted_with_their_last_event() -> Checked<()> {
    let folder = temporary_folder();
    let (engine, written) = store_with_adopted_wal(folder.path()).await;
    let busy = topic(BUSY);
    let before = segments_of(folder.path(), BUSY);
    let bytes = engine.bounds(&busy).await.expect("bounds").bytes;
    let rule = Retention { max_age_ms: None, max_bytes: Some(bytes / 2), revision: 1 };
    let bounds = engine.retain(&busy, &rule).await.expect("a rule");
    ensure(bounds.first > Seq::FIRST && bounds.bytes >= bytes / 2, || format!("{bounds:?}"))?;
    // A background thread deletes the files.
    let dropped = async {
        while segments_of(folder.path(), BUSY).len() == before.len() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        Ok(())
    };
    in_time("waiting for segments to go", dropped).await?;
    let page = engine.read(&busy, Seq::FIRST, ReadBudget::of_events(10_000)).await.expect("read");
    let kept = &written.topics[&busy][usize::try_from(bounds.first.0 - 1).expect("few")..];
    ensure(page.events == kept, || format!("{} events of {}", page.events.len(), kept.len()))
}

/// A crash after the log was linked as a segment but before the catalog recorded it. The next start
/// must not overwrite the log through its second name.
async fn survive_an_unfinished_checkpoint() -> Checked<()> {
    for min_adopted_extent_bytes in [1, u64::MAX] {
        let folder = temporary_folder();
        let options = DiskOptions { min_adopted_extent_bytes, ..options(folder.path()) };
        let engine = DiskEngine::open(&options).expect("it opens");
        let mut written = Written::default();
        commit_batches(&engine, &mut written, 3).await;
        let second_name = folder.path().join("topics").join(BUSY);
        fs::create_dir_all(&second_name).expect("a folder");
        let log = files_of(folder.path(), Kind::Wal).remove(0);
        fs::hard_link(&log, second_name.join("00000000000000000001.seg")).expect("a second name");
        fs::write(second_name.join("00000000000000000001.idx"), b"half an ind").expect("written");
        commit_batches(&engine, &mut written, 30).await;
        wait_for_checkpoints(folder.path()).await;
        read_back(&engine, &written).await?.nothing_lost()?;
        engine.close().await.expect("it closes");
        let engine = DiskEngine::open(&options).expect("it opens");
        read_back(&engine, &written).await?.nothing_lost()?;
        engine.close().await.expect("it closes");
    }
    Ok(())
}
