//! Full storage, enforced by the operating system: with a limit on the file size, real writes are cut
//! short and refused.
//!
//! The limit applies to a whole process, so each case runs in its own child process.

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::time::Duration;
use std::{env, fs};

use libtest_mimic::{Failed, Trial};
use prombus_engine::{CommitError, Condition, DiskEngine, Engine};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::damage_check::{Checked, ensure, in_time, open, read_back, reopen, run_checked};
use crate::damage_storage::{is_healthy, is_refused};
use crate::damage_store::{
    Kind, MANY_FILES, ONE_LOG_FILE, Sizes, Written, files_of, frames_of, temporary_folder,
};

const CASE: &str = "PROMBUS_FILE_LIMIT_CASE";
const FOLDER: &str = "PROMBUS_FILE_LIMIT_FOLDER";
const CASES: [&str; 3] =
    ["commits_at_the_limit", "checkpoints_wait_for_space", "closes_without_space"];

pub(crate) fn trials() -> Vec<Trial> {
    CASES
        .iter()
        .map(|case| Trial::test(format!("damage::limit::{case}"), || in_child(case)))
        .collect()
}

/// Runs a case in a child that ignores SIGXFSZ; otherwise the limit would kill it instead of failing
/// the write.
fn in_child(case: &str) -> Result<(), Failed> {
    let folder = temporary_folder();
    let child = Command::new("sh")
        .args(["-c", "trap '' XFSZ; exec \"$0\""])
        .arg(env::current_exe()?)
        .env(CASE, case)
        .env(FOLDER, folder.path())
        .output()?;
    if child.status.success() {
        return Ok(());
    }
    Err(format!("{}: {}", child.status, String::from_utf8_lossy(&child.stderr)).into())
}

/// In the child process, runs its case. In the parent, returns `None`.
pub(crate) fn run_as_child() -> Option<ExitCode> {
    let case = env::var(CASE).ok()?;
    let folder = PathBuf::from(env::var_os(FOLDER)?);
    let result = run_checked(|| async {
        match case.as_str() {
            "commits_at_the_limit" => in_time(&case, commits_at_the_limit(folder)).await,
            "checkpoints_wait_for_space" => {
                in_time(&case, checkpoints_wait_for_space(folder)).await
            }
            "closes_without_space" => in_time(&case, closes_without_space(folder)).await,
            other => Err(format!("unknown case {other}")),
        }
    });
    Some(match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(detail) => {
            eprintln!("{detail}");
            ExitCode::FAILURE
        }
    })
}

/// Limits the size of files from now on; `None` removes the limit.
fn limit(bytes: Option<u64>) {
    let maximum = getrlimit(Resource::Fsize).maximum;
    let current = bytes.or(maximum);
    setrlimit(Resource::Fsize, Rlimit { current, maximum }).expect("a limit below the hard one");
}

async fn open_store(sizes: Sizes, folder: &Path) -> Checked<DiskEngine> {
    open(&sizes.options(folder)).await.map_err(|error| error.to_string())
}

async fn commits_at_the_limit(folder: PathBuf) -> Checked<()> {
    let mut engine = open_store(ONE_LOG_FILE, &folder).await?;
    let mut written = Written::default();
    for room in (0..900).step_by(37) {
        written.commit(&engine, written.next_batch(60)).await;
        let log = files_of(&folder, Kind::Wal).pop().expect("a log file");
        let end = frames_of(&fs::read(log).expect("its bytes")).last().map_or(32, |last| last.end);
        limit(Some(end as u64 + room));
        is_refused(&engine, &written, written.next_batch(1500)).await?;
        limit(None);
        written.commit(&engine, written.next_batch(1500)).await;
        is_healthy(&engine)?;
        if room % 3 == 0 {
            engine = reopen(engine, &ONE_LOG_FILE.options(&folder)).await?;
            is_healthy(&engine)?;
            read_back(&engine, &written).await?.nothing_lost()?;
        }
    }
    engine.close().await.map_err(|error| error.to_string())
}

/// Enough for a log file but not for a page of ids: no checkpoint succeeds.
const TOO_LITTLE_FOR_A_CHECKPOINT: u64 = 3700;

/// Commits until the log is full because no checkpoint succeeds.
async fn fill(engine: &DiskEngine, written: &mut Written) -> Checked<()> {
    for _ in 0..200 {
        let batch = written.next_batch(100);
        match engine.commit(batch.clone()).await {
            Ok(committed) => written.remember(&batch, &committed),
            Err(CommitError::Full(_)) => return read_back(engine, written).await?.nothing_lost(),
            Err(error) => return Err(error.to_string()),
        }
    }
    Err("the log grows without limit".to_owned())
}

async fn checkpoints_wait_for_space(folder: PathBuf) -> Checked<()> {
    let engine = open_store(MANY_FILES, &folder).await?;
    let mut written = Written::default();
    for _ in 0..3 {
        limit(Some(TOO_LITTLE_FOR_A_CHECKPOINT));
        fill(&engine, &mut written).await?;
        ensure(matches!(engine.health().condition, Condition::Full(_)), || "not full".to_owned())?;
        limit(None);
        // The engine must recover without a commit.
        while engine.health().condition != Condition::Healthy {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        written.commit(&engine, written.next_batch(100)).await;
        read_back(&engine, &written).await?.nothing_lost()?;
    }
    let engine = reopen(engine, &MANY_FILES.options(&folder)).await?;
    is_healthy(&engine)?;
    read_back(&engine, &written).await?.nothing_lost()?;
    engine.close().await.map_err(|error| error.to_string())
}

/// Closing does not wait for space: everything is durable in the log.
async fn closes_without_space(folder: PathBuf) -> Checked<()> {
    let mut engine = open_store(MANY_FILES, &folder).await?;
    let mut written = Written::default();
    for _ in 0..20 {
        written.commit(&engine, written.next_batch(100)).await;
    }
    limit(Some(TOO_LITTLE_FOR_A_CHECKPOINT));
    fill(&engine, &mut written).await?;
    let closed = async { engine.close().await.map_err(|error| error.to_string()) };
    in_time("close", closed).await?;
    drop(engine);
    limit(None);
    engine = open_store(MANY_FILES, &folder).await?;
    is_healthy(&engine)?;
    read_back(&engine, &written).await?.nothing_lost()?;
    written.commit(&engine, written.next_batch(100)).await;
    let engine = reopen(engine, &MANY_FILES.options(&folder)).await?;
    read_back(&engine, &written).await?.nothing_lost()
}
