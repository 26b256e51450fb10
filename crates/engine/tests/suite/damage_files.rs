//! Whole files that are missing, truncated, foreign or in the wrong place.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use libtest_mimic::Trial;
use prombus_engine::{Batch, DiskEngine, Durability, Engine, Incident, OpenError, ReadBudget};
use prombus_proto::{Seq, Topic};

use crate::damage_check::{
    Checked, Findings, commit_again, commit_when_indexed, ensure, in_time, open, read_back, reopen,
    trial,
};
use crate::damage_store::{
    ADOPTED_WAL, Copy, Killed, Kind, LARGE, MANY_FILES, ONE_LOG_FILE, Sizes, Written, event,
    files_in, frames_of, temporary_folder, topic,
};

pub(crate) fn trials() -> Vec<Trial> {
    vec![
        trial("files::segment_deleted", || segment_deleted(MANY_FILES, 90)),
        trial("files::adopted_wal_deleted", || segment_deleted(ADOPTED_WAL, 30)),
        trial("files::segment_cut_short", segment_cut_short),
        trial("files::adopted_wal_cut_short", adopted_wal_cut_short),
        trial("files::segment_of_another_topic", segment_of_another_topic),
        trial("files::segments_of_one_topic_swapped", segments_of_one_topic_swapped),
        trial("files::redundant_file_deleted", redundant_file_deleted),
        trial("files::redundant_file_emptied", redundant_file_emptied),
        trial("files::ids_deleted_block_no_other_commit", ids_deleted),
        trial("files::both_catalogs_deleted", both_catalogs_deleted),
        trial("files::state_deleted", state_deleted),
        trial("files::log_file_deleted", log_file_deleted),
        trial("files::log_file_cut_short", log_file_cut_short),
        trial("files::log_file_empty_or_zeros", log_file_empty_or_zeros),
        trial("files::log_file_of_another_store", log_file_of_another_store),
        trial("files::newer_version_is_refused_by_name", newer_version),
        trial("files::strays_are_left_alone", strays),
        trial("files::one_process_at_a_time", one_process_at_a_time),
    ]
}

/// Returns the events of a segment, derived from its file name and that of the next segment.
fn events_of(store: &Killed, segment: &Path) -> (Topic, Vec<Seq>) {
    let folder = segment.parent().expect("a topic's folder");
    let name = topic(&folder.file_name().expect("a name").to_string_lossy());
    let first = |path: &Path| -> u64 {
        path.file_stem().expect("a name").to_string_lossy().parse().expect("a position")
    };
    let segments = files_in(folder).into_iter().filter(|f| f.extension() == segment.extension());
    let firsts: Vec<_> = segments.map(|segment| first(&segment)).collect();
    let end = firsts.into_iter().find(|other| *other > first(segment));
    let end = end.unwrap_or_else(|| in_segments(store, &name) + 1);
    (name, (first(segment)..end).map(Seq).collect())
}

/// Returns the number of events that have been moved from the log to segments: a store without its log
/// has only these.
fn in_segments(store: &Killed, topic: &Topic) -> u64 {
    let copy = store.copy();
    copy.files(Kind::Wal).iter().for_each(|wal| fs::remove_file(wal).expect("removed"));
    let engine = DiskEngine::open(&copy.options()).expect("it opens");
    poll_ready(engine.bounds(topic)).last().0
}

/// Returns the result of a future that is ready at once.
fn poll_ready<T, E: std::fmt::Debug>(future: impl std::future::Future<Output = Result<T, E>>) -> T {
    let mut future = std::pin::pin!(future);
    let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    match future.as_mut().poll(&mut context) {
        std::task::Poll::Ready(result) => result.expect("no error"),
        std::task::Poll::Pending => panic!("not ready at once"),
    }
}

/// Opens a damaged copy, reads it back, commits more, and returns the findings. After a restart, the
/// same events are lost and reported, and no others.
async fn check_usable(copy: &Copy, written: &Written) -> Checked<Findings> {
    let engine = open(&copy.options()).await.map_err(|error| error.to_string())?;
    let mut written = written.clone();
    let findings = read_back(&engine, &written).await?;
    commit_again(&engine, &mut written, &findings).await?;
    let engine = reopen(engine, &copy.options()).await?;
    if !findings.lost_state {
        let again = read_back(&engine, &written).await?;
        ensure(again.lost == findings.lost, || {
            format!("{:?}, then {:?}", findings.lost, again.lost)
        })?;
    }
    engine.close().await.map_err(|error| error.to_string())?;
    Ok(findings)
}

fn lost_exactly(findings: &Findings, topic: &Topic, lost: &[Seq]) -> Checked<()> {
    let expected = BTreeMap::from([(topic.clone(), lost.to_vec())]);
    ensure(findings.lost == expected && !findings.lost_state, || {
        format!("lost {:?} instead of {lost:?}", findings.lost)
    })
}

async fn segment_deleted(sizes: Sizes, batches: usize) -> Checked<()> {
    let store = Killed::after(sizes, batches).await;
    let segments = store.files(Kind::Segment);
    ensure(segments.len() > 5, || format!("only {} segments", segments.len()))?;
    for segment in &segments {
        let copy = store.copy();
        fs::remove_file(copy.path_of(&store, segment)).expect("deleted");
        let (topic, stored) = events_of(&store, segment);
        let case = format!("{topic} without {stored:?}");
        let findings = in_time(&case, check_usable(&copy, &store.written)).await?;
        lost_exactly(&findings, &topic, &stored)?;
    }
    Ok(())
}

async fn segment_cut_short() -> Checked<()> {
    let store = Killed::after(MANY_FILES, 90).await;
    for segment in store.files(Kind::Segment) {
        let whole = fs::read(&segment).expect("a segment").len();
        let (topic, stored) = events_of(&store, &segment);
        for left in [0, 7, 32, 33, whole / 2, whole - 1] {
            let copy = store.copy();
            let file = fs::File::options().write(true).open(copy.path_of(&store, &segment));
            file.and_then(|file| file.set_len(left as u64)).expect("cut");
            let case = format!("{topic}, {left} of {whole} bytes");
            let findings = in_time(&case, check_usable(&copy, &store.written)).await?;
            let lost = findings.lost.get(&topic).cloned().unwrap_or_default();
            ensure(findings.lost.len() == 1 && stored.ends_with(&lost), || {
                format!("{case}: {stored:?} lost {:?}", findings.lost)
            })?;
            let limit = whole - left + 600;
            ensure(findings.lost_bytes(&store.written) <= limit, || format!("{case}: {lost:?}"))?;
        }
    }
    Ok(())
}

/// Events before the cut are readable. What is cut off may belong to other topics only.
async fn adopted_wal_cut_short() -> Checked<()> {
    let store = Killed::after(ADOPTED_WAL, 30).await;
    for segment in store.files(Kind::Segment) {
        let bytes = fs::read(&segment).expect("a segment");
        let frames = frames_of(&bytes);
        let (topic, stored) = events_of(&store, &segment);
        for left in frames.iter().flat_map(|frame| [frame.start, frame.start + frame.len() / 2]) {
            let copy = store.copy();
            let file = fs::File::options().write(true).open(copy.path_of(&store, &segment));
            file.and_then(|file| file.set_len(left as u64)).expect("cut");
            let case = format!("{topic}, {left} of {} bytes", bytes.len());
            let findings = in_time(&case, check_usable(&copy, &store.written)).await?;
            let lost = findings.lost.get(&topic).cloned().unwrap_or_default();
            ensure(findings.lost.len() == 1 && stored.ends_with(&lost), || {
                format!("{case}: {stored:?} lost {:?}", findings.lost)
            })?;
            let limit = bytes.len() - left + 600;
            ensure(findings.lost_bytes(&store.written) <= limit, || format!("{case}: {lost:?}"))?;
        }
    }
    Ok(())
}

async fn segment_of_another_topic() -> Checked<()> {
    let store = Killed::after(MANY_FILES, 90).await;
    let segments = store.files(Kind::Segment);
    for (segment, other) in segments.iter().zip(segments.iter().rev()) {
        let (topic, stored) = events_of(&store, segment);
        if events_of(&store, other).0 != topic {
            let copy = store.copy();
            fs::copy(other, copy.path_of(&store, segment)).expect("replaced");
            let findings = in_time("another topic", check_usable(&copy, &store.written)).await?;
            lost_exactly(&findings, &topic, &stored)?;
        }
    }
    Ok(())
}

async fn segments_of_one_topic_swapped() -> Checked<()> {
    let store = Killed::after(MANY_FILES, 90).await;
    let segments = store.files(Kind::Segment);
    let pair: Vec<_> =
        segments.iter().filter(|file| file.parent() == segments[0].parent()).collect();
    let [first, second, ..] = &pair[..] else { return Err("only one segment".to_owned()) };
    let copy = store.copy();
    fs::copy(first, copy.path_of(&store, second)).expect("replaced");
    fs::copy(second, copy.path_of(&store, first)).expect("replaced");
    let findings = in_time("swapped", check_usable(&copy, &store.written)).await?;
    let (topic, mut stored) = events_of(&store, first);
    stored.extend(events_of(&store, second).1);
    lost_exactly(&findings, &topic, &stored)
}

/// Files whose contents can be rebuilt from others.
const REDUNDANT: [Kind; 4] = [Kind::SparseIndex, Kind::Ids, Kind::Catalog, Kind::CatalogMirror];

async fn redundant_file_deleted() -> Checked<()> {
    without_redundant_files(|file| fs::remove_file(file).expect("deleted")).await
}

async fn redundant_file_emptied() -> Checked<()> {
    without_redundant_files(|file| fs::write(file, b"").expect("emptied")).await
}

async fn without_redundant_files(harm: impl Fn(&Path)) -> Checked<()> {
    for store in [Killed::after(MANY_FILES, 90).await, Killed::after(ADOPTED_WAL, 30).await] {
        without_redundant_files_in(&store, &harm).await?;
    }
    Ok(())
}

async fn without_redundant_files_in(store: &Killed, harm: impl Fn(&Path)) -> Checked<()> {
    for kind in REDUNDANT {
        for file in store.files(kind) {
            let copy = store.copy();
            let damaged = copy.path_of(store, &file);
            harm(&damaged);
            let case = format!("{kind:?} {}", file.display());
            let findings = in_time(&case, check_usable(&copy, &store.written)).await?;
            findings.nothing_lost().map_err(|detail| format!("{case}: {detail}"))?;
            let named = |incident: &Incident| matches!(incident, Incident::Rebuilt { file, .. } if *file == damaged);
            ensure(findings.incidents.iter().any(named), || {
                format!("{case} is not reported: {:?}", findings.incidents)
            })?;
        }
    }
    Ok(())
}

/// A missing id run refuses only commits with ids that it may contain, and only until it is rebuilt.
async fn ids_deleted() -> Checked<()> {
    let copy = Copy { folder: temporary_folder(), sizes: LARGE };
    let engine = open(&copy.options()).await.map_err(|error| error.to_string())?;
    let mut written = Written::default();
    for n in 0..200 {
        let events = (0..20).map(|i| event("orders", n * 20 + i, 1_000)).collect();
        written.commit(&engine, Batch::of_events(events, Durability::Buffered)).await;
    }
    engine.close().await.map_err(|error| error.to_string())?;
    drop(engine);
    for file in copy.files(Kind::Ids) {
        fs::remove_file(file).expect("deleted");
    }
    let engine = open(&copy.options()).await.map_err(|error| error.to_string())?;
    // Ids of every kind in a new topic, and a fresh UUIDv7 in the one that has lost its index.
    let mut new: Vec<_> = (0..4).map(|n| event("payments", n, 10)).collect();
    new.push(event("orders", 0xFFFF - 1, 10));
    written.commit(&engine, Batch::of_events(new, Durability::Fsync)).await;
    let old = Batch::of_events(vec![event("orders", 4, 1_000)], Durability::Fsync);
    let committed = commit_when_indexed(&engine, &old).await?;
    let position = committed.positions[0];
    ensure(position.duplicate && position.seq == Seq(5), || format!("{position:?}"))?;
    let findings = read_back(&engine, &written).await?;
    let rebuilt = |incident: &Incident| matches!(incident, Incident::Rebuilt { .. });
    ensure(findings.incidents.iter().all(rebuilt), || format!("{findings:?}"))?;
    let engine = reopen(engine, &copy.options()).await?;
    let findings = read_back(&engine, &written).await?;
    ensure(findings.incidents.is_empty(), || format!("{findings:?}"))
}

async fn both_catalogs_deleted() -> Checked<()> {
    let store = Killed::after(MANY_FILES, 10).await;
    let copy = store.copy();
    let catalog = copy.folder.path().join("catalog");
    fs::remove_file(&catalog).expect("deleted");
    fs::remove_file(copy.folder.path().join("catalog.mirror")).expect("deleted");
    let files = files_in(copy.folder.path());
    match open(&copy.options()).await {
        Err(OpenError::Damaged { path, .. }) if path == catalog => {}
        other => return Err(format!("{:?}", other.map(|_| "opened"))),
    }
    ensure(files_in(copy.folder.path()) == files, || "files were changed".to_owned())
}

/// State is stored nowhere else: the store refuses to open, or reports what it cannot read.
async fn state_deleted() -> Checked<()> {
    let store = Killed::after(MANY_FILES, 60).await;
    for file in store.files(Kind::State) {
        let copy = store.copy();
        let deleted = copy.path_of(&store, &file);
        fs::remove_file(&deleted).expect("deleted");
        match open(&copy.options()).await {
            Err(OpenError::Io { path, .. } | OpenError::Damaged { path, .. }) => {
                ensure(path == deleted, || format!("{} is reported instead", path.display()))?;
            }
            Err(error) => return Err(error.to_string()),
            Ok(engine) => {
                let findings = read_back(&engine, &store.written).await?;
                ensure(findings.lost_state && findings.lost.is_empty(), || {
                    format!("{findings:?}")
                })?;
            }
        }
    }
    Ok(())
}

async fn log_file_deleted() -> Checked<()> {
    let store = Killed::before_any_checkpoint(MANY_FILES, 20).await;
    let logs = store.files(Kind::Wal);
    for log in &logs[..logs.len() - 1] {
        let copy = store.copy();
        let deleted = copy.path_of(&store, log);
        fs::remove_file(&deleted).expect("deleted");
        let findings = in_time("without a log file", check_usable(&copy, &store.written)).await?;
        let named = |incident: &Incident| matches!(incident, Incident::DamagedLog { file, .. } if *file == deleted);
        ensure(findings.incidents.iter().any(named), || format!("{findings:?}"))?;
        let batches = frames_of(&fs::read(log).expect("a log file")).len();
        ensure((1..=batches * 9).contains(&findings.lost_events()), || format!("{findings:?}"))?;
    }
    Ok(())
}

/// With later log files after it, every missing batch is noticed, wherever the cut is.
async fn log_file_cut_short() -> Checked<()> {
    let store = Killed::before_any_checkpoint(MANY_FILES, 20).await;
    let logs = store.files(Kind::Wal);
    for (log, later) in logs.iter().zip(&logs[1..]) {
        let bytes = fs::read(log).expect("a log file");
        let batches = frames_of(&bytes);
        let last = batches.last().expect("a batch").clone();
        let boundaries = batches.iter().map(|batch| batch.start);
        for left in
            boundaries.chain([0, 20, last.start + 10, last.end - last.len() / 2, last.end - 1])
        {
            let copy = store.copy();
            fs::write(copy.path_of(&store, log), &bytes[..left]).expect("cut");
            let case = format!("{left} bytes of {} before {}", log.display(), later.display());
            let findings = in_time(&case, check_usable(&copy, &store.written)).await?;
            // A missing tail of zeros is no loss: it was preallocated.
            let cuts_nothing = bytes[left..last.end].iter().all(|byte| *byte == 0);
            let reported = !findings.incidents.is_empty();
            ensure(reported != cuts_nothing, || format!("{case}: {findings:?}"))?;
            // With its head intact, the rest of the last batch is recovered.
            if left == last.end - 1 {
                findings.nothing_lost().map_err(|detail| format!("{case}: {detail}"))?;
            }
        }
    }
    Ok(())
}

/// A crash right after the next log file was created, before anything was written to it.
async fn log_file_empty_or_zeros() -> Checked<()> {
    let store = Killed::after(ONE_LOG_FILE, 5).await;
    for bytes in [vec![], vec![0; 10], vec![0; 32], vec![0; 5000]] {
        let copy = store.copy();
        let next = copy.folder.path().join("wal/00000000000000000002.wal");
        fs::write(next, &bytes).expect("written");
        let case = format!("{} zeros", bytes.len());
        let findings = in_time(&case, check_usable(&copy, &store.written)).await?;
        findings.nothing_lost()?;
        ensure(findings.incidents.is_empty(), || format!("{case}: {:?}", findings.incidents))?;
    }
    Ok(())
}

/// A log file of another store: its events must not appear in this one.
async fn log_file_of_another_store() -> Checked<()> {
    let store = Killed::after(ONE_LOG_FILE, 5).await;
    let other = Killed::after(ONE_LOG_FILE, 9).await;
    let copy = store.copy();
    let next = copy.folder.path().join("wal/00000000000000000002.wal");
    fs::copy(&other.files(Kind::Wal)[0], &next).expect("another store");
    let engine = match open(&copy.options()).await {
        Ok(engine) => engine,
        Err(OpenError::Damaged { path, .. }) if path == next => return Ok(()),
        Err(error) => return Err(error.to_string()),
    };
    let findings = in_time("another store", read_back(&engine, &store.written)).await?;
    findings.nothing_lost()?;
    let named = |incident: &Incident| format!("{incident:?}").contains("002.wal");
    ensure(findings.incidents.iter().any(named), || format!("{:?}", findings.incidents))
}

/// Gives a file the header of a format version that does not exist yet.
fn make_newer(file: &PathBuf) {
    let mut bytes = fs::read(file).expect("a file of the store");
    let present = u16::from_le_bytes([bytes[12], bytes[13]]);
    bytes[12..14].copy_from_slice(&(present + 1).to_le_bytes());
    let sum = crc_fast::crc32_iscsi(&bytes[..24]);
    bytes[24..28].copy_from_slice(&sum.to_le_bytes());
    fs::write(file, &bytes).expect("written");
}

async fn newer_version() -> Checked<()> {
    let store = Killed::after(MANY_FILES, 90).await;
    let with_header = Kind::ALL.into_iter().filter(|kind| *kind != Kind::Lock);
    for kind in with_header {
        for file in store.files(kind) {
            let copy = store.copy();
            let newer = copy.path_of(&store, &file);
            make_newer(&newer);
            let before = fs::read(&newer).expect("its bytes");
            match open(&copy.options()).await {
                Err(OpenError::NewerFormat { path, found, supported })
                    if path == newer && found == supported + 1 => {}
                Err(error) => return Err(format!("{kind:?}: {error}")),
                Ok(_) => {
                    return Err(format!(
                        "{kind:?} {} of a newer version was accepted",
                        file.display()
                    ));
                }
            }
            ensure(fs::read(&newer).is_ok_and(|now| now == before), || "changed".to_owned())?;
        }
    }
    Ok(())
}

/// The engine ignores files that it did not write. Those with a name of its own that no catalog names
/// are swept, see `simulation::scenarios`.
async fn strays() -> Checked<()> {
    let store = Killed::after(MANY_FILES, 30).await;
    let copy = store.copy();
    let root = copy.folder.path();
    let strays = [
        "notes.txt",
        "wal/notes.txt",
        "wal/copy of 00000000000000000001.wal",
        "wal/1.wal",
        "wal/999.wal",
        "wal/+00000000000000000099.wal",
        "topics/stray",
        "topics/orders/stray.seg",
        "topics/nobody/notes.txt",
        "ids/stray",
        "state/stray",
        "quarantine/stray",
    ];
    for stray in strays {
        let path = root.join(stray);
        fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
        fs::write(path, stray).expect("written");
    }
    let findings = in_time("strays", check_usable(&copy, &store.written)).await?;
    findings.nothing_lost()?;
    ensure(findings.incidents.is_empty(), || format!("{:?}", findings.incidents))?;
    for stray in strays {
        let left = fs::read(root.join(stray)).is_ok_and(|bytes| bytes == stray.as_bytes());
        ensure(left, || format!("{stray} was touched"))?;
    }
    Ok(())
}

async fn one_process_at_a_time() -> Checked<()> {
    let store = Killed::after(MANY_FILES, 5).await;
    let copy = store.copy();
    let options = copy.options();
    let is_locked = async || match open(&options).await {
        Err(OpenError::Locked { path }) => path == options.folder,
        _ => false,
    };
    let engine = open(&options).await.map_err(|error| error.to_string())?;
    ensure(is_locked().await, || "opened twice".to_owned())?;
    fs::remove_file(options.folder.join("LOCK")).expect("removed");
    ensure(is_locked().await, || "opened twice without the lock file".to_owned())?;
    engine.close().await.map_err(|error| error.to_string())?;
    // Closed, not dropped.
    let second = open(&options).await.map_err(|error| format!("after close: {error}"))?;
    ensure(is_locked().await, || "opened twice".to_owned())?;
    tokio::task::spawn_blocking(move || drop(second)).await.expect("no panic");
    let third = open(&options).await.map_err(|error| format!("after drop: {error}"))?;
    let page = third.read(&topic("orders"), Seq::FIRST, ReadBudget::of_events(1)).await;
    ensure(page.is_ok_and(|page| page.events.len() == 1), || "nothing there".to_owned())?;
    // Dropping without closing released the directory and moved the log to segments.
    ensure(copy.files(Kind::Wal).is_empty(), || "the log was not moved".to_owned())
}
