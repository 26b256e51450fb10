//! A crash can leave an incomplete batch at the end of the log. It is cut off, saved and reported, and
//! everything before it is readable.

use std::fs;
use std::path::Path;

use libtest_mimic::Trial;
use prombus_engine::{Batch, DiskEngine, Durability, Engine, Incident};

use crate::damage_check::{Checked, ensure, in_time, open, read_back, reopen, trial};
use crate::damage_store::{Copy, Killed, Kind, MANY_FILES, ONE_LOG_FILE, Sizes, frames_of};

pub(crate) fn trials() -> Vec<Trial> {
    vec![
        trial("torn::cut_at_every_byte_of_the_last_batch", || cut(ONE_LOG_FILE, 6, 1)),
        trial("torn::cut_after_many_files", || cut(MANY_FILES, 40, 9)),
        trial("torn::zeros_from_any_byte_on", zeros_to_the_end),
        trial("torn::garbage_instead_of_the_last_batch", garbage),
        trial("torn::zeros_within_the_last_batch", zeros),
        trial("torn::garbage_after_the_last_batch", garbage_after),
        trial("torn::head_of_a_huge_batch", head_of_a_huge_batch),
        trial("torn::torn_repeatedly", torn_repeatedly),
    ]
}

/// A store, the bytes of its newest log file, and the range of its last batch in them.
struct LastBatch {
    store: Killed,
    wal: Vec<u8>,
    batch: std::ops::Range<usize>,
}

impl LastBatch {
    async fn of(sizes: Sizes, batches: usize) -> Self {
        let store = Killed::after(sizes, batches).await;
        let file = store.files(Kind::Wal).pop().expect("a log file");
        let wal = fs::read(file).expect("its bytes");
        let batch = frames_of(&wal).pop().expect("a batch in the log");
        Self { store, wal, batch }
    }

    /// Copies the store with `bytes` as its newest log file.
    fn with_wal(&self, bytes: &[u8]) -> Copy {
        let copy = self.store.copy();
        fs::write(copy.files(Kind::Wal).pop().expect("a log file"), bytes).expect("written");
        copy
    }

    /// Checks that with `bytes` as its newest log file, the store loses only the last batch, and saves
    /// and reports what is left of it.
    async fn is_torn_in(&self, case: &str, bytes: &[u8]) -> Checked<()> {
        in_time(case, self.check(bytes)).await
    }

    async fn check(&self, bytes: &[u8]) -> Checked<()> {
        let copy = self.with_wal(bytes);
        let mut engine = open(&copy.options()).await.map_err(|error| error.to_string())?;
        let mut written = self.store.before_last.clone();
        read_back(&engine, &written).await?.nothing_lost()?;
        let left = without_zeros_at_the_end(&bytes[self.batch.start..]);
        check_report(&engine, self.batch.start, left)?;
        // The batch can be stored again, and so can others.
        let torn = self.store.written.events[written.events.len()..].to_vec();
        let torn = Batch::of_events(torn, Durability::Fsync);
        let committed = written.commit(&engine, torn).await;
        ensure(committed.positions.iter().all(|position| !position.duplicate), || {
            "the ids of a torn batch are still known".to_owned()
        })?;
        written.commit(&engine, written.next_batch(30)).await;
        engine = reopen(engine, &copy.options()).await?;
        let health = engine.health();
        ensure(health.incidents.is_empty(), || format!("still: {:?}", health.incidents))?;
        read_back(&engine, &written).await?.nothing_lost()?;
        engine.close().await.map_err(|error| error.to_string())
    }
}

fn without_zeros_at_the_end(bytes: &[u8]) -> &[u8] {
    let end = bytes.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
    &bytes[..end]
}

/// Checks that a torn batch is reported exactly once, and nothing else is.
fn check_report(engine: &DiskEngine, start: usize, left: &[u8]) -> Checked<()> {
    let incidents = engine.health().incidents;
    if left.is_empty() {
        return ensure(incidents.is_empty(), || format!("nothing was torn: {incidents:?}"));
    }
    let [Incident::TornTail { kept_bytes, cut_bytes, copy, .. }] = &incidents[..] else {
        return Err(format!("not one torn tail: {incidents:?}"));
    };
    ensure(*kept_bytes == start as u64 && *cut_bytes == left.len() as u64, || {
        format!("kept {kept_bytes}, cut {cut_bytes}")
    })?;
    let in_quarantine = copy.parent().and_then(Path::file_name).is_some_and(|n| n == "quarantine");
    ensure(in_quarantine && fs::read(copy).is_ok_and(|kept| kept == left), || {
        format!("{} does not contain what was cut off", copy.display())
    })
}

async fn cut(sizes: Sizes, batches: usize, stride: usize) -> Checked<()> {
    let last = LastBatch::of(sizes, batches).await;
    for end in last.batch.clone().step_by(stride) {
        last.is_torn_in(&format!("cut at {end}"), &last.wal[..end]).await?;
    }
    // A cut right after the batch loses nothing.
    let whole = last.with_wal(&last.wal[..last.batch.end]);
    let engine = open(&whole.options()).await.map_err(|error| error.to_string())?;
    let findings = read_back(&engine, &last.store.written).await?;
    ensure(findings.incidents.is_empty(), || format!("{:?}", findings.incidents))?;
    findings.nothing_lost()
}

/// The file has its full length because it is preallocated.
async fn zeros_to_the_end() -> Checked<()> {
    let last = LastBatch::of(ONE_LOG_FILE, 3).await;
    for from in last.batch.clone().step_by(5) {
        let mut bytes = last.wal.clone();
        bytes[from..].fill(0);
        if bytes != last.wal {
            last.is_torn_in(&format!("zeros from {from} on"), &bytes).await?;
        }
    }
    Ok(())
}

/// Returns pseudo-random bytes that are the same in every run.
fn garbage_bytes(seed: usize) -> impl Iterator<Item = u8> {
    let mut state = seed as u64 ^ 0x9E37_79B9_7F4A_7C15;
    std::iter::repeat_with(move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_le_bytes()[3]
    })
}

async fn garbage() -> Checked<()> {
    let last = LastBatch::of(ONE_LOG_FILE, 3).await;
    for from in last.batch.clone().step_by(11) {
        let mut bytes = last.wal[..last.batch.end].to_vec();
        bytes[from..]
            .iter_mut()
            .zip(garbage_bytes(from))
            .for_each(|(byte, garbage)| *byte = garbage);
        last.is_torn_in(&format!("garbage from {from} on"), &bytes).await?;
    }
    Ok(())
}

/// After a power failure, later sectors may have been written and earlier ones not.
async fn zeros() -> Checked<()> {
    let last = LastBatch::of(ONE_LOG_FILE, 3).await;
    for from in last.batch.clone().step_by(7) {
        for length in [1, 16, 200] {
            let mut bytes = last.wal[..last.batch.end].to_vec();
            let to = (from + length).min(bytes.len());
            bytes[from..to].fill(0);
            if bytes != last.wal[..last.batch.end] {
                last.is_torn_in(&format!("zeros from {from} to {to}"), &bytes).await?;
            }
        }
    }
    Ok(())
}

async fn garbage_after() -> Checked<()> {
    let mut last = LastBatch::of(ONE_LOG_FILE, 3).await;
    last.store.before_last = last.store.written.clone();
    last.batch = last.batch.end..last.batch.end;
    for length in [1, 3, 4, 12, 100, 5000] {
        let mut bytes = last.wal[..last.batch.end].to_vec();
        bytes.extend(garbage_bytes(length).map(|byte| byte | 1).take(length));
        last.is_torn_in(&format!("{length} bytes of garbage"), &bytes).await?;
    }
    Ok(())
}

/// A valid head of a batch of gigabytes, and nothing after it.
async fn head_of_a_huge_batch() -> Checked<()> {
    let last = LastBatch::of(ONE_LOG_FILE, 3).await;
    for state_bytes in [u32::MAX, 1 << 31, 1 << 20] {
        let mut bytes = last.wal[..last.batch.start].to_vec();
        let mut head = last.wal[last.batch.start..][..44].to_vec();
        head[4..8].copy_from_slice(&48u32.to_le_bytes());
        head[8..12].copy_from_slice(&state_bytes.to_le_bytes());
        head[12..16].copy_from_slice(&state_bytes.to_le_bytes());
        head[36..44].fill(0);
        let sum = crc_fast::crc32_iscsi(&head);
        bytes.extend(head);
        bytes.extend(sum.to_le_bytes());
        last.is_torn_in(&format!("{state_bytes} bytes claimed"), &bytes).await?;
    }
    Ok(())
}

/// Every crash tears another batch; each one is saved.
async fn torn_repeatedly() -> Checked<()> {
    let last = LastBatch::of(ONE_LOG_FILE, 3).await;
    let mut copy = last.with_wal(&last.wal[..last.batch.end - 1]);
    let mut written = last.store.before_last.clone();
    for round in 1..=4 {
        let engine = open(&copy.options()).await.map_err(|error| error.to_string())?;
        read_back(&engine, &written).await?.nothing_lost()?;
        written.commit(&engine, written.next_batch(30)).await;
        engine.commit(written.next_batch(20)).await.map_err(|error| error.to_string())?;
        let killed = copy.killed_now().await;
        engine.close().await.map_err(|error| error.to_string())?;
        copy = killed;
        let wal = copy.files(Kind::Wal).pop().expect("a log file");
        let bytes = fs::read(&wal).expect("its bytes");
        let torn = frames_of(&bytes).pop().expect("the last batch");
        fs::write(&wal, &bytes[..torn.end - 3]).expect("written");
        let kept = fs::read_dir(copy.folder.path().join("quarantine")).expect("a folder").count();
        ensure(kept == round, || format!("{kept} torn batches are saved, not {round}"))?;
    }
    Ok(())
}
