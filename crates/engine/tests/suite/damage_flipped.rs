//! Flips one bit of one file. Whatever the file: no wrong data is returned, nothing is missing without
//! a report, and only data near the flipped bit is lost.

use std::fs;
use std::path::PathBuf;

use libtest_mimic::Trial;
use prombus_engine::{Engine, Incident, OpenError};

use crate::damage_check::{
    Checked, Findings, commit_again, ensure, in_time, open, read_back, reopen, trial,
};
use crate::damage_store::{
    ADOPTED_WAL, Killed, Kind, MANY_FILES, ONE_LOG_FILE, PACKED, Sizes, frames_of,
};

/// In a segment: the data between two index entries, and an event that extends beyond.
const MAX_LOSS_IN_A_SEGMENT: usize = 4096 + 600;
/// In the log: the events of one topic in one batch.
const MAX_LOSS_IN_A_BATCH: usize = 3 * 600;

pub(crate) fn trials() -> Vec<Trial> {
    vec![
        trial("flipped::log", || flip_each(Kind::Wal, ONE_LOG_FILE, 14, 350)),
        trial("flipped::log_behind_many_files", || flip_each(Kind::Wal, MANY_FILES, 60, 60)),
        trial("flipped::logs_before_any_checkpoint", logs_before_any_checkpoint),
        trial("flipped::segment", || flip_each(Kind::Segment, MANY_FILES, 70, 250)),
        trial("flipped::adopted_wal", || flip_each(Kind::Segment, ADOPTED_WAL, 30, 300)),
        trial("flipped::index_of_an_adopted_wal", || {
            flip_each(Kind::SparseIndex, ADOPTED_WAL, 30, 150)
        }),
        trial("flipped::newest_segment", newest_segment),
        trial("flipped::sparse_index", || flip_each(Kind::SparseIndex, MANY_FILES, 70, 150)),
        trial("flipped::ids", || flip_each(Kind::Ids, MANY_FILES, 50, 150)),
        trial("flipped::state", || flip_each(Kind::State, MANY_FILES, 50, 200)),
        trial("flipped::catalog", || flip_each(Kind::Catalog, MANY_FILES, 30, 150)),
        trial("flipped::catalog_mirror", || flip_each(Kind::CatalogMirror, MANY_FILES, 30, 100)),
        trial("flipped::edit", || flip_each(Kind::Edit, MANY_FILES, 30, 150)),
        trial("flipped::edit_mirror", || flip_each(Kind::EditMirror, MANY_FILES, 30, 100)),
        trial("flipped::pack", || flip_each(Kind::Pack, PACKED, 40, 300)),
        trial("flipped::lock", garbage_in_the_lock),
        trial("flipped::both_ends_of_a_batch", both_ends_of_a_batch),
        trial("flipped::both_ends_of_the_last_batch_of_a_log_file", both_ends_of_the_last_batch),
    ]
}

/// A byte in a file of the undamaged store.
struct Target {
    file: PathBuf,
    offset: usize,
}

/// Returns about `count` bytes, evenly spread over `files`, and the whole header of the first file.
fn targets(files: &[PathBuf], count: usize) -> Vec<Target> {
    let lengths: Vec<_> = files.iter().map(written_bytes).collect();
    let stride = (lengths.iter().sum::<usize>() / count).max(1);
    // An odd stride hits every offset of a repeating structure.
    let stride = if stride > 1 { stride | 1 } else { 1 };
    let header = (0..lengths[0].min(32)).map(|offset| Target { file: files[0].clone(), offset });
    let mut before = 0;
    let spread = files.iter().zip(&lengths).flat_map(|(file, length)| {
        let first = (stride - before % stride) % stride;
        before += length;
        (first..*length).step_by(stride).map(|offset| Target { file: file.clone(), offset })
    });
    header.chain(spread).collect()
}

/// Returns the length of a file without the preallocated zeros at its end.
fn written_bytes(file: &PathBuf) -> usize {
    let bytes = fs::read(file).expect("a file of the store");
    bytes.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1)
}

async fn flip_each(kind: Kind, sizes: Sizes, batches: usize, count: usize) -> Checked<()> {
    let store = Killed::after(sizes, batches).await;
    let files = store.files(kind);
    ensure(!files.is_empty(), || format!("the store has no {kind:?}"))?;
    let mut noticed = 0;
    let targets = targets(&files, count);
    for target in &targets {
        noticed += usize::from(flip(&store, kind, target).await?);
    }
    // Some bytes of ids, state and indexes are never read, nor those of other topics in an adopted WAL file,
    // nor what was moved out of a pack.
    let enough = match kind {
        Kind::Segment if sizes.adopts_wal => targets.len() / 2,
        Kind::Ids | Kind::State | Kind::SparseIndex | Kind::Pack => targets.len() / 2,
        _ => targets.len(),
    };
    ensure(noticed >= enough, || format!("{noticed} of {} were noticed", targets.len()))
}

/// Events appended later must not be lost because of the damage.
async fn newest_segment() -> Checked<()> {
    let store = Killed::after(MANY_FILES, 90).await;
    let segments = store.files(Kind::Segment);
    for (at, segment) in segments.iter().enumerate() {
        let is_newest = segments.get(at + 1).is_none_or(|next| next.parent() != segment.parent());
        let offsets = 32..if is_newest { written_bytes(segment) } else { 0 };
        // The length field of every record, and some other bytes.
        let bytes = fs::read(segment).expect("a segment");
        let mut record = 32;
        for offset in offsets.step_by(41) {
            while offset >= record {
                let length =
                    u32::from_le_bytes(bytes[record + 4..record + 8].try_into().expect("four"));
                let target = Target { file: segment.clone(), offset: record + 4 + record % 4 };
                flip(&store, Kind::Segment, &target).await?;
                record += 8 + length as usize;
            }
            flip(&store, Kind::Segment, &Target { file: segment.clone(), offset }).await?;
        }
    }
    Ok(())
}

async fn logs_before_any_checkpoint() -> Checked<()> {
    let store = Killed::before_any_checkpoint(MANY_FILES, 20).await;
    let files = store.files(Kind::Wal);
    ensure(files.len() > 4, || format!("only {} log files", files.len()))?;
    for target in targets(&files, 250) {
        ensure(flip(&store, Kind::Wal, &target).await?, || format!("{target:?} was not noticed"))?;
    }
    Ok(())
}

impl std::fmt::Debug for Target {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let name = self.file.file_name().unwrap_or_default().to_string_lossy();
        write!(f, "byte {} of {name}", self.offset)
    }
}

/// Flips one bit and checks every guarantee of the store. Returns `true` if the damage was noticed.
async fn flip(store: &Killed, kind: Kind, target: &Target) -> Checked<bool> {
    let case = format!("{kind:?}, {target:?}");
    in_time(&case, check_flipped(store, kind, target)).await
}

async fn check_flipped(store: &Killed, kind: Kind, target: &Target) -> Checked<bool> {
    let copy = store.copy();
    let file = copy.path_of(store, &target.file);
    let mut bytes = fs::read(&file).expect("the file to damage");
    bytes[target.offset] ^= 1 << ((target.offset * 5 + target.offset / 8) % 8);
    fs::write(&file, &bytes).expect("damaged");
    let engine = match open(&copy.options()).await {
        Ok(engine) => engine,
        Err(error) => {
            let named = match &error {
                OpenError::Damaged { path, .. }
                | OpenError::NewerFormat { path, .. }
                | OpenError::Locked { path }
                | OpenError::Unfinished { path }
                | OpenError::Io { path, .. } => path,
            };
            ensure(*named == file, || format!("refused because of another file: {error}"))?;
            ensure(fs::read(&file).is_ok_and(|now| now == bytes), || "changed".to_owned())?;
            return Ok(true);
        }
    };
    // Damage to the last batch may look like a torn write.
    let torn = |incident: &Incident| matches!(incident, Incident::TornTail { .. });
    let is_torn = engine.health().incidents.iter().any(torn);
    let mut written = if is_torn { store.before_last.clone() } else { store.written.clone() };
    let findings = read_back(&engine, &written).await?;
    check_loss(kind, &findings, store)?;
    let damaged_before = findings.lost.clone();
    commit_again(&engine, &mut written, &findings).await?;
    if kind == Kind::Wal && findings.lost_state {
        // The lost change is in quarantine; the next start no longer reports it as lost state.
        return engine.close().await.map(|()| true).map_err(|error| error.to_string());
    }
    let engine = reopen(engine, &copy.options()).await?;
    let again = read_back(&engine, &written).await?;
    ensure(again.lost == damaged_before, || {
        format!("lost {damaged_before:?}, then {:?}", again.lost)
    })?;
    engine.close().await.map_err(|error| error.to_string())?;
    Ok(!findings.incidents.is_empty())
}

/// Checks that only data near the flipped bit is lost.
fn check_loss(kind: Kind, findings: &Findings, store: &Killed) -> Checked<()> {
    let events = findings.lost_bytes(&store.written);
    let (max_bytes, may_lose_state) = match kind {
        Kind::Segment | Kind::Pack => (MAX_LOSS_IN_A_SEGMENT, false),
        Kind::Wal => (MAX_LOSS_IN_A_BATCH, true),
        Kind::State => (0, true),
        _ => (0, false),
    };
    ensure(events <= max_bytes && findings.lost.len() <= 1, || {
        format!("{events} bytes of events are lost: {findings:?}")
    })?;
    ensure(may_lose_state || !findings.lost_state, || format!("state is lost: {findings:?}"))?;
    ensure(findings.lost.is_empty() || !findings.lost_state, || {
        format!("events and state are lost: {findings:?}")
    })
}

/// The contents of the lock file are never read.
async fn garbage_in_the_lock() -> Checked<()> {
    let store = Killed::after(MANY_FILES, 5).await;
    let copy = store.copy();
    fs::write(copy.folder.path().join("LOCK"), b"garbage").expect("damaged");
    let engine = open(&copy.options()).await.map_err(|error| error.to_string())?;
    let findings = read_back(&engine, &store.written).await?;
    ensure(findings.incidents.is_empty(), || format!("{:?}", findings.incidents))?;
    findings.nothing_lost()
}

/// A batch in the middle of the log that cannot be parsed at all.
async fn both_ends_of_a_batch() -> Checked<()> {
    let store = Killed::after(ONE_LOG_FILE, 14).await;
    let wal = fs::read(&store.files(Kind::Wal)[0]).expect("the log");
    let frames = frames_of(&wal);
    for frame in &frames[..frames.len() - 1] {
        let head =
            u32::from_le_bytes(wal[frame.start + 4..frame.start + 8].try_into().expect("four"));
        let foot = frame.end - head as usize;
        for (in_head, in_foot) in [(0, 0), (5, 3), (20, 50)] {
            let mut bytes = wal.clone();
            bytes[frame.start + in_head] ^= 1;
            bytes[foot + in_foot] ^= 16;
            let case = format!("both ends of the batch at {}", frame.start);
            in_time(&case, check_lost_batch(&store, &bytes, frame)).await?;
        }
    }
    Ok(())
}

async fn check_lost_batch(
    store: &Killed,
    bytes: &[u8],
    frame: &std::ops::Range<usize>,
) -> Checked<()> {
    let copy = store.copy();
    fs::write(&copy.files(Kind::Wal)[0], bytes).expect("damaged");
    let engine = open(&copy.options()).await.map_err(|error| error.to_string())?;
    let incidents = engine.health().incidents;
    let whole = |incident: &Incident| {
        let Incident::DamagedLog { offset, bytes, .. } = incident else { return false };
        *offset == frame.start as u64 && *bytes == frame.len() as u64
    };
    ensure(incidents.iter().any(whole), || format!("{frame:?} is not reported: {incidents:?}"))?;
    let mut written = store.written.clone();
    let findings = read_back(&engine, &written).await?;
    ensure(findings.lost_events() <= 9, || format!("lost more than a batch: {findings:?}"))?;
    commit_again(&engine, &mut written, &findings).await?;
    let engine = reopen(engine, &copy.options()).await?;
    // The state is not compared again: the loss was reported when it was found.
    let preserved = preserved_files(&copy.folder.path().join("quarantine"));
    ensure(preserved.iter().any(|file| file == bytes), || {
        "the log file was not preserved".to_owned()
    })?;
    engine.close().await.map_err(|error| error.to_string())
}

fn preserved_files(quarantine: &std::path::Path) -> Vec<Vec<u8>> {
    crate::damage_store::files_in(quarantine)
        .iter()
        .map(|file| fs::read(file).expect("a preserved file"))
        .collect()
}

/// The same at the end of a log file with others after it: it cannot be a torn write, because it was
/// once complete.
async fn both_ends_of_the_last_batch() -> Checked<()> {
    let store = Killed::before_any_checkpoint(MANY_FILES, 20).await;
    let files = store.files(Kind::Wal);
    for file in &files[..files.len() - 1] {
        let copy = store.copy();
        let damaged = copy.path_of(&store, file);
        let mut bytes = fs::read(&damaged).expect("a log file");
        let frame = frames_of(&bytes).pop().expect("a batch");
        bytes[frame.start + 9] ^= 4;
        bytes[frame.end - 1] ^= 4;
        fs::write(&damaged, &bytes).expect("damaged");
        let engine = open(&copy.options()).await.map_err(|error| error.to_string())?;
        let findings = read_back(&engine, &store.written).await?;
        let reported = |incident: &Incident| matches!(incident, Incident::DamagedLog { .. });
        ensure(findings.incidents.iter().any(reported), || format!("{findings:?}"))?;
        engine.close().await.map_err(|error| error.to_string())?;
        let preserved = preserved_files(&copy.folder.path().join("quarantine"));
        ensure(preserved.contains(&bytes), || "the log file was not preserved".to_owned())?;
    }
    Ok(())
}
