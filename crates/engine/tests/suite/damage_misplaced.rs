//! Intact files in the wrong place, and damage that happens while the store is open.

use std::fs;
use std::path::Path;
use std::time::Duration;

use libtest_mimic::Trial;
use prombus_engine::{Durability, Incident, OpenError};
use prombus_proto::Seq;

use crate::damage_check::{Checked, commit_again, ensure, in_time, open, read_back, reopen, trial};
use crate::damage_store::{
    Copy, Killed, Kind, MANY_FILES, ONE_LOG_FILE, event, files_in, frames_of, temporary_folder,
};
use crate::damage_store::{Written, topic};

pub(crate) fn trials() -> Vec<Trial> {
    vec![
        trial("misplaced::ids", ids),
        trial("misplaced::state", || is_refused(Kind::State)),
        trial("misplaced::log", || is_refused(Kind::Wal)),
        trial("misplaced::damaged_ids_are_preserved", damaged_ids_are_preserved),
        trial("misplaced::log_damaged_while_open", log_damaged_while_open),
    ]
}

async fn swapped(kind: Kind) -> (Killed, Copy) {
    let store = with_several(kind).await;
    let copy = store.copy();
    let files = store.files(kind);
    fs::copy(&files[0], copy.path_of(&store, &files[1])).expect("replaced");
    fs::copy(&files[1], copy.path_of(&store, &files[0])).expect("replaced");
    (store, copy)
}

async fn with_several(kind: Kind) -> Killed {
    // How many runs are left depends on when they were merged.
    for batches in 60..80 {
        let store = match kind {
            Kind::Wal => Killed::before_any_checkpoint(MANY_FILES, 20).await,
            _ => Killed::after(MANY_FILES, batches).await,
        };
        if store.files(kind).len() > 1 {
            return store;
        }
    }
    panic!("never more than one {kind:?}");
}

/// If they were trusted, ids would be missed and their events stored twice.
async fn ids() -> Checked<()> {
    let (store, copy) = swapped(Kind::Ids).await;
    let engine = open(&copy.options()).await.map_err(|error| error.to_string())?;
    let mut written = store.written.clone();
    let findings = read_back(&engine, &written).await?;
    findings.nothing_lost()?;
    let rebuilt = |incident: &Incident| matches!(incident, Incident::Rebuilt { .. });
    ensure(findings.incidents.iter().any(rebuilt), || format!("{findings:?}"))?;
    commit_again(&engine, &mut written, &findings).await?;
    let engine = reopen(engine, &copy.options()).await?;
    read_back(&engine, &written).await?.nothing_lost()
}

async fn is_refused(kind: Kind) -> Checked<()> {
    let (_, copy) = swapped(kind).await;
    let files = copy.files(kind);
    match open(&copy.options()).await {
        Err(OpenError::Damaged { path, .. }) => {
            ensure(files.contains(&path), || format!("{} is reported instead", path.display()))
        }
        Err(error) => Err(error.to_string()),
        Ok(_) => Err(format!("{kind:?} in the wrong place was accepted")),
    }
}

fn is_preserved(folder: &Path, bytes: &[u8]) -> bool {
    let preserved = files_in(&folder.join("quarantine"));
    preserved.iter().any(|file| fs::read(file).is_ok_and(|preserved| preserved == bytes))
}

async fn damaged_ids_are_preserved() -> Checked<()> {
    let store = Killed::after(MANY_FILES, 60).await;
    let copy = store.copy();
    let file = copy.files(Kind::Ids).remove(0);
    let mut bytes = fs::read(&file).expect("a file of ids");
    bytes[40] ^= 1;
    fs::write(&file, &bytes).expect("damaged");
    let engine = open(&copy.options()).await.map_err(|error| error.to_string())?;
    read_back(&engine, &store.written).await?.nothing_lost()?;
    in_time("rebuild", async {
        while file.exists() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        ensure(is_preserved(copy.folder.path(), &bytes), || "deleted".to_owned())
    })
    .await?;
    let engine = reopen(engine, &copy.options()).await?;
    let findings = read_back(&engine, &store.written).await?;
    ensure(findings.incidents.is_empty(), || format!("{findings:?}"))
}

/// A record is damaged between its commit and its checkpoint: only that record is lost, and it is
/// reported.
async fn log_damaged_while_open() -> Checked<()> {
    let copy = Copy { folder: temporary_folder(), sizes: ONE_LOG_FILE };
    let engine = open(&copy.options()).await.map_err(|error| error.to_string())?;
    let mut written = Written::default();
    let events = (0..9).map(|n| event("orders", n, 100)).collect();
    let batch = prombus_engine::Batch::of_events(events, Durability::Fsync);
    written.commit(&engine, batch).await;
    let log = copy.files(Kind::Wal).remove(0);
    let mut bytes = fs::read(&log).expect("the log");
    let frame = frames_of(&bytes)[0].clone();
    let middle = frame.start + frame.len() / 2;
    bytes[middle] ^= 1;
    // In place: the engine has the file open.
    let file = fs::File::options().write(true).open(&log).expect("the log");
    std::os::unix::fs::FileExt::write_all_at(&file, &bytes[middle..=middle], middle as u64)
        .expect("damaged");
    let findings = read_back(&engine, &written).await?;
    let lost = findings.lost.get(&topic("orders")).cloned().unwrap_or_default();
    ensure(lost == [Seq(5)], || format!("{findings:?}"))?;
    let engine = reopen(engine, &copy.options()).await?;
    let again = read_back(&engine, &written).await?;
    ensure(again.lost == findings.lost, || format!("lost {:?}", again.lost))?;
    ensure(is_preserved(copy.folder.path(), &bytes), || "the log file was not preserved".to_owned())
}
