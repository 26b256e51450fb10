//! The folder of the disk engine.

use std::fs::{self, Metadata};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use prombus_proto::{Clock, SystemClock, Timestamp};
use rustix::fs::{Access, access, statvfs};

use super::finding::{Finding, Findings};
use crate::cli::human_bytes::human_bytes;
use crate::cli::times::{human_duration, human_time};

const AREA: &str = "store";
/// With less free space, the store is about to fill up.
const LITTLE_SPACE: u64 = 1 << 30;
/// With less, the next log file may not fit.
const NO_SPACE: u64 = 128 << 20;
/// How far the clock may have been behind without anybody noticing.
const CLOCK_TOLERANCE_MS: u64 = 60_000;

pub(super) fn check(folder: &Path, findings: &mut Findings) {
    let path = folder.display();
    let metadata = match fs::metadata(folder) {
        Ok(metadata) if metadata.is_dir() => metadata,
        Ok(_) => {
            findings.push(Finding::problem(
                AREA,
                format!("{path} is not a folder"),
                "move the file away, or set server.data",
            ));
            return;
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            return check_missing(folder, findings);
        }
        Err(error) => {
            findings.push(Finding::problem(
                AREA,
                format!("{path}: {error}"),
                "run this command as the user of the server, and give that user access",
            ));
            return;
        }
    };
    let before = findings.has_problems();
    check_permissions(folder, &metadata, findings);
    check_space(folder, findings);
    check_quarantine(&folder.join("quarantine"), findings);
    check_newest_file(&folder.join("wal"), SystemClock.now(), findings);
    if before == findings.has_problems() {
        let lock = fs::metadata(folder.join("LOCK")).ok();
        let state = match lock.map_or(Some(false), |lock| is_locked(&lock)) {
            Some(true) => "in use by a running process",
            Some(false) => "not in use",
            None => "accessible",
        };
        findings.push(Finding::ok(AREA, format!("{path} is {state}")));
    }
}

fn check_missing(folder: &Path, findings: &mut Findings) {
    let path = folder.display();
    let existing = folder.ancestors().find(|above| above.as_os_str().is_empty() || above.exists());
    let existing = existing.filter(|path| !path.as_os_str().is_empty()).unwrap_or(Path::new("."));
    match access(existing, Access::WRITE_OK | Access::EXEC_OK) {
        Ok(()) => {
            findings
                .push(Finding::ok(AREA, format!("{path} does not exist yet; a start creates it")));
            check_space(existing, findings);
        }
        Err(error) => findings.push(Finding::problem(
            AREA,
            format!("{path} does not exist, and {} cannot be written: {error}", existing.display()),
            "create the folder for the user of the server, or set server.data",
        )),
    }
}

fn check_permissions(folder: &Path, metadata: &Metadata, findings: &mut Findings) {
    let path = folder.display();
    if metadata.mode() & 0o077 != 0 {
        findings.push(Finding::warning(
            AREA,
            format!("other users of this machine have access to {path}, which contains all events"),
            format!("run `chmod go= {path}`; a start does that too"),
        ));
    }
    let mut entries = vec![folder.to_owned()];
    entries.extend(
        ["LOCK", "catalog", "wal", "topics", "packs", "ids", "state"].map(|n| folder.join(n)),
    );
    for entry in entries.iter().filter(|entry| entry.exists()) {
        if let Err(error) = access(entry.as_path(), Access::READ_OK | Access::WRITE_OK) {
            let entry = entry.display();
            findings.push(Finding::problem(
                AREA,
                format!("{entry} cannot be read and written: {error}"),
                format!("run this command as the user of the server; if it still fails, run `chown -R` on {path}"),
            ));
        }
    }
}

fn check_space(folder: &Path, findings: &mut Findings) {
    let Ok(volume) = statvfs(folder) else { return };
    let free = volume.f_bavail.saturating_mul(volume.f_frsize);
    let total = volume.f_blocks.saturating_mul(volume.f_frsize);
    let (free_text, total_text) = (human_bytes(free as f64), human_bytes(total as f64));
    let message =
        format!("{free_text} of {total_text} are free on the volume of {}", folder.display());
    let advice = "make room, give the volume more space, or set topics.\"NAME\".retention_ms or \
                  retention_bytes; a full store refuses to publish until there is room";
    findings.push(match free {
        free if free < NO_SPACE => Finding::problem(AREA, message, advice),
        free if free < LITTLE_SPACE || free < total / 20 => Finding::warning(AREA, message, advice),
        _ => Finding::ok(AREA, message),
    });
    if volume.f_files > 0 && volume.f_favail < 1000 {
        findings.push(Finding::problem(
            AREA,
            format!("the volume has room for only {} more files", volume.f_favail),
            "remove files, or use a file system with more inodes",
        ));
    }
}

fn check_quarantine(folder: &Path, findings: &mut Findings) {
    let count = fs::read_dir(folder).map_or(0, Iterator::count);
    if count > 0 {
        let path = folder.display();
        findings.push(Finding::problem(
            AREA,
            format!("{count} damaged files are in {path}: the events or state they held may be lost"),
            "look for `damaged` in the log of the server, check the disk, restore what is missing from a \
             backup, then move the files away",
        ));
    }
}

/// A file from the future was written before the clock was set back.
fn check_newest_file(folder: &Path, now: Timestamp, findings: &mut Findings) {
    let Ok(entries) = fs::read_dir(folder) else { return };
    let modified =
        entries.flatten().filter_map(|entry| entry.metadata().ok()).map(|file| file.mtime());
    let newest = modified.max().and_then(|seconds| u64::try_from(seconds).ok());
    let Some(newest) = newest.map(|seconds| Timestamp(seconds.saturating_mul(1000))) else {
        return;
    };
    let ahead = newest.0.saturating_sub(now.0);
    if ahead > CLOCK_TOLERANCE_MS {
        findings.push(Finding::problem(
            "clock",
            format!(
                "the store was last written at {}, which is {} ahead of this machine's clock: the clock was \
                 set back",
                human_time(newest),
                human_duration(ahead)
            ),
            "correct the clock, and keep it correct with NTP; retention, deadlines and marks depend on it",
        ));
    }
}

/// Looks into the kernel's table, if there is one: taking the lock to find out could fail the start of a server.
fn is_locked(file: &Metadata) -> Option<bool> {
    let table = fs::read_to_string("/proc/locks").ok()?;
    Some(lists_lock(&table, file.ino()))
}

fn lists_lock(table: &str, inode: u64) -> bool {
    // 1: FLOCK  ADVISORY  WRITE 1234 08:01:5678 0 EOF. The device is not comparable on every file system.
    table.lines().any(|line| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let locked = fields.get(5).and_then(|place| place.rsplit(':').next());
        fields.get(1) == Some(&"FLOCK")
            && locked.and_then(|inode| inode.parse().ok()) == Some(inode)
    })
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::time::{Duration, UNIX_EPOCH};

    use super::*;

    #[test]
    fn finds_a_lock_in_the_kernels_table() {
        let table = "1: FLOCK  ADVISORY  WRITE 412 fe:01:5678 0 EOF\n\
                     2: POSIX  ADVISORY  READ  413 fe:01:99 0 EOF\n";
        assert!(lists_lock(table, 5678));
        assert!(!lists_lock(table, 99) && !lists_lock(table, 1));
        let file = tempfile::NamedTempFile::new().unwrap();
        let metadata = file.as_file().metadata().unwrap();
        assert_eq!(is_locked(&metadata), Some(false));
        file.as_file().lock().unwrap();
        assert_eq!(is_locked(&metadata), Some(true));
    }

    #[test]
    fn a_file_from_the_future_means_that_the_clock_was_set_back() {
        let folder = tempfile::tempdir().unwrap();
        let file = File::create(folder.path().join("1.wal")).unwrap();
        let now = Timestamp(1_700_000_000_000);
        for (seconds, problems) in [(1_700_000_030, 0), (1_700_003_600, 1)] {
            file.set_modified(UNIX_EPOCH + Duration::from_secs(seconds)).unwrap();
            let mut findings = Findings::default();
            check_newest_file(folder.path(), now, &mut findings);
            assert_eq!(findings.has_problems(), problems == 1, "{findings:?}");
        }
    }
}
