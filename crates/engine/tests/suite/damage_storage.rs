//! Full storage and failed syncs, by fault injection.

use libtest_mimic::Trial;
use prombus_engine::{Batch, CommitError, Condition, DiskEngine, Durability, Engine, Unavailable};

use crate::damage_check::{Checked, ensure, in_time, open, read_back, reopen, trial};
use crate::damage_store::{
    Copy, Killed, MANY_FILES, ONE_LOG_FILE, Sizes, Written, temporary_folder,
};

pub(crate) fn trials() -> Vec<Trial> {
    vec![
        trial("storage::full_at_any_byte", || full_at_any_byte(ONE_LOG_FILE)),
        trial("storage::full_between_log_files", || full_at_any_byte(MANY_FILES)),
        trial("storage::full_before_the_first_batch", full_before_the_first_batch),
        trial("storage::killed_while_full", killed_while_full),
        trial("storage::failed_sync_poisons", failed_sync_poisons),
        trial("storage::failed_sync_of_a_checkpoint_poisons", failed_sync_of_a_checkpoint),
    ]
}

/// Commits `batch` without enough space: it must be refused, and nothing of it stored.
pub(crate) async fn is_refused(
    engine: &DiskEngine,
    written: &Written,
    batch: Batch,
) -> Checked<()> {
    match engine.commit(batch).await {
        Err(CommitError::Full(_)) => {}
        other => return Err(format!("not refused as full: {other:?}")),
    }
    let condition = engine.health().condition;
    ensure(matches!(condition, Condition::Full(_)), || format!("condition: {condition:?}"))?;
    read_back(engine, written).await?.nothing_lost()
}

pub(crate) fn is_healthy(engine: &DiskEngine) -> Checked<()> {
    let health = engine.health();
    ensure(health.condition == Condition::Healthy && health.incidents.is_empty(), || {
        format!("{health:?}")
    })
}

/// Checks that a store shows no trace of having been full after it is reopened.
async fn is_clean_again(copy: &Copy, engine: DiskEngine, written: &Written) -> Checked<()> {
    let engine = reopen(engine, &copy.options()).await?;
    is_healthy(&engine)?;
    read_back(&engine, written).await?.nothing_lost()?;
    is_healthy(&engine)?;
    engine.close().await.map_err(|error| error.to_string())
}

/// Returns a lower bound of the bytes that `batch` takes in the log, so that less is never enough.
fn payload_bytes(batch: &Batch) -> u64 {
    batch.events.iter().map(|event| event.max_json_bytes() as u64 / 2).sum()
}

async fn full_at_any_byte(sizes: Sizes) -> Checked<()> {
    let store = Killed::after(sizes, 8).await;
    let batch = store.written.next_batch(60);
    for room in (0..payload_bytes(&batch)).step_by(7) {
        in_time(&format!("room for {room}"), full_for_a_while(&store, room)).await?;
    }
    Ok(())
}

async fn full_for_a_while(store: &Killed, room: u64) -> Checked<()> {
    let copy = store.copy();
    let options = copy.options();
    let engine = open(&options).await.map_err(|error| error.to_string())?;
    let mut written = store.written.clone();
    // With and without an existing log file.
    if room.is_multiple_of(2) {
        written.commit(&engine, written.next_batch(10)).await;
    }
    let batch = written.next_batch(60);
    options.faults.leave_room(room);
    is_refused(&engine, &written, batch.clone()).await?;
    options.faults.leave_room(room / 2);
    is_refused(&engine, &written, batch.clone()).await?;
    options.faults.make_room();
    let committed = written.commit(&engine, batch).await;
    ensure(committed.positions.iter().all(|position| !position.duplicate), || {
        "a refused event was taken for a duplicate".to_owned()
    })?;
    is_healthy(&engine)?;
    written.commit(&engine, written.next_batch(200)).await;
    is_clean_again(&copy, engine, &written).await
}

/// There is not even space for a log file; the failed attempt leaves no trace.
async fn full_before_the_first_batch() -> Checked<()> {
    for room in 0..40 {
        let copy = Copy { folder: temporary_folder(), sizes: ONE_LOG_FILE };
        let options = copy.options();
        let engine = open(&options).await.map_err(|error| error.to_string())?;
        let written = Written::default();
        options.faults.leave_room(room);
        in_time("refused", is_refused(&engine, &written, written.next_batch(60))).await?;
        options.faults.make_room();
        in_time(&format!("room for {room}"), is_clean_again(&copy, engine, &written)).await?;
    }
    Ok(())
}

/// The process is killed while the storage is full: the refused batch is not reported as torn.
async fn killed_while_full() -> Checked<()> {
    let store = Killed::after(ONE_LOG_FILE, 3).await;
    for room in (0..600).step_by(29) {
        let copy = store.copy();
        let options = copy.options();
        let engine = open(&options).await.map_err(|error| error.to_string())?;
        let mut written = store.written.clone();
        if room % 2 == 0 {
            written.commit(&engine, written.next_batch(10)).await;
        }
        options.faults.leave_room(room);
        is_refused(&engine, &written, written.next_batch(400)).await?;
        let killed = copy.killed_now().await;
        options.faults.make_room();
        engine.close().await.map_err(|error| error.to_string())?;
        let engine = open(&killed.options()).await.map_err(|error| error.to_string())?;
        is_healthy(&engine).map_err(|detail| format!("room for {room}: {detail}"))?;
        read_back(&engine, &written).await?.nothing_lost()?;
    }
    Ok(())
}

fn is_poisoned<T: std::fmt::Debug>(result: Result<T, CommitError>) -> Checked<()> {
    match result {
        Err(CommitError::Unavailable(Unavailable::Poisoned(_))) => Ok(()),
        other => Err(format!("not poisoned: {other:?}")),
    }
}

/// After a failed sync it is unknown what is on disk, so nothing more is acknowledged.
async fn failed_sync_poisons() -> Checked<()> {
    let store = Killed::after(MANY_FILES, 8).await;
    let copy = store.copy();
    let options = copy.options();
    let engine = open(&options).await.map_err(|error| error.to_string())?;
    let mut written = store.written.clone();
    written.commit(&engine, written.next_batch(10)).await;
    options.faults.fail_syncs(true);
    let failed = written.next_batch(60);
    is_poisoned(engine.commit(failed.clone()).await)?;
    read_back(&engine, &written).await?.nothing_lost()?;
    options.faults.fail_syncs(false);
    is_poisoned(engine.commit(failed.clone()).await)?;
    is_poisoned(engine.commit(Batch { durability: Durability::Buffered, ..failed.clone() }).await)?;
    is_poisoned(engine.trim(failed.events[0].topic(), prombus_proto::Seq(2)).await)?;
    let condition = engine.health().condition;
    ensure(matches!(condition, Condition::Poisoned(_)), || format!("{condition:?}"))?;
    read_back(&engine, &written).await?.nothing_lost()?;
    is_poisoned(in_time("close", async { Ok(engine.close().await) }).await?)?;
    drop(engine);
    let engine = open(&options).await.map_err(|error| error.to_string())?;
    is_healthy(&engine)?;
    // The failed batch is stored completely or not at all, and can be repeated.
    let bounds =
        engine.bounds(failed.events[0].topic()).await.map_err(|error| error.to_string())?;
    if bounds.next == written.next_seq(failed.events[0].topic()) {
        read_back(&engine, &written).await?.nothing_lost()?;
    } else {
        let again = engine.commit(failed.clone()).await.map_err(|error| error.to_string())?;
        ensure(again.positions.iter().all(|position| position.duplicate), || {
            "only a part of the failed batch is stored".to_owned()
        })?;
    }
    Ok(())
}

async fn failed_sync_of_a_checkpoint() -> Checked<()> {
    let store = Killed::after(ONE_LOG_FILE, 8).await;
    let copy = store.copy();
    // Opening syncs the log, so the fault is injected after it, before the checkpoint.
    let options = copy.options();
    let engine = open(&options).await.map_err(|error| error.to_string())?;
    let mut written = store.written.clone();
    written
        .commit(&engine, Batch { durability: Durability::Buffered, ..written.next_batch(10) })
        .await;
    options.faults.fail_syncs(true);
    let closed = in_time("close", async { Ok(engine.close().await) }).await?;
    is_poisoned(closed)?;
    drop(engine);
    options.faults.fail_syncs(false);
    let engine = open(&options).await.map_err(|error| error.to_string())?;
    is_healthy(&engine)?;
    read_back(&engine, &written).await?.nothing_lost()?;
    engine.close().await.map_err(|error| error.to_string())
}
