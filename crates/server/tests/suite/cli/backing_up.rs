//! `backup`, `restore` and `verify`.

#![allow(clippy::unwrap_used, reason = "a failed step fails the test")]

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use serde_json::json;
use tempfile::TempDir;

use crate::cli::proxy::{Fate, Proxy};
use crate::cli::server::{Ran, Server, prombus, run};

fn command(arguments: &[&str]) -> Ran {
    run(prombus(arguments), "")
}

fn text(path: &Path) -> &str {
    path.to_str().expect("the path is UTF-8")
}

/// A server on disk with a few events, of which a group has handled one.
struct Store {
    folder: TempDir,
    server: Server,
}

impl Store {
    fn start() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let server = Server::on_disk(&folder.path().join("data"));
        let store = Self { folder, server };
        let lines: String =
            (1..=5000).map(|n| format!("{{\"id\":\"n-{n}\",\"payload\":{n}}}\n")).collect();
        store.server.run(&["import", "orders"], &lines).lines();
        store
            .server
            .run(&["subscribe", "orders", "--group", "g", "--from", "earliest", "--count", "3"], "")
            .lines();
        store
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn back_up(&self, name: &str) -> Ran {
        self.server.run(&["backup", "--output", text(&self.path(name))], "")
    }

    /// The names in the folder, without the data folder.
    fn files(&self) -> Vec<String> {
        let entries = fs::read_dir(self.folder.path()).unwrap();
        let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        let mut names: Vec<_> = names.filter(|name| name != "data").collect();
        names.sort_unstable();
        names
    }
}

#[test]
fn a_backup_is_private_checked_and_never_replaces_a_file() {
    let store = Store::start();
    let summary = store.back_up("a.backup").lines().remove(0);
    assert_eq!(summary["file"], text(&store.path("a.backup")));
    assert_eq!(summary["damaged"], json!([]));
    let metadata = fs::metadata(store.path("a.backup")).unwrap();
    assert_eq!(metadata.permissions().mode() & 0o777, 0o600);
    assert_eq!(summary["compressed_bytes"], metadata.len());
    assert_eq!(store.files(), ["a.backup"]);

    fs::write(store.path("precious"), "precious").unwrap();
    store.back_up("precious").failed_with("already exists: pass --force to replace it");
    assert_eq!(fs::read_to_string(store.path("precious")).unwrap(), "precious");
    store.server.run(&["backup", "--force", "-o", text(&store.path("precious"))], "").lines();
    assert!(command(&["verify", text(&store.path("precious"))]).is_success);
    store.back_up("data").failed_with("is a folder");
    store.back_up("no/such/folder").failed_with("cannot write");
    assert_eq!(store.files(), ["a.backup", "precious"]);

    let mut to_stdout = store.server.command(&["backup", "--output", "-"]);
    let output = to_stdout.output().unwrap();
    assert!(output.status.success(), "{output:?}");
    fs::write(store.path("piped"), output.stdout).unwrap();
    let verified = command(&["verify", text(&store.path("piped"))]).lines().remove(0);
    assert_eq!(verified["intact"], true);
    assert!(verified["kinds"]["catalog"]["topics"].is_u64());
}

#[test]
fn everything_goes_on_where_it_was() {
    let store = Store::start();
    let (data, backup) = (store.path("restored"), store.path("a.backup"));
    let set = ["topics", "orders", "--set", "retention_ms=604800000"];
    store.server.run(&set, "").lines();
    // Publishers go on, and what they publish is there up to one moment.
    let (stop, published) = (AtomicBool::new(false), AtomicU64::new(0));
    let (before, after) = std::thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(Ordering::SeqCst) {
                let lines: String = (0..200).map(|n| format!("{{\"payload\":{n}}}\n")).collect();
                store.server.run(&["import", "busy"], &lines).lines();
                published.fetch_add(200, Ordering::SeqCst);
            }
        });
        while published.load(Ordering::SeqCst) < 400 {
            std::thread::yield_now();
        }
        let before = published.load(Ordering::SeqCst);
        store.back_up("a.backup").lines();
        let after = published.load(Ordering::SeqCst) + 200;
        stop.store(true, Ordering::SeqCst);
        (before, after)
    });
    store.server.run(&["publish", "orders", "\"later\""], "").lines();
    let all = store.server.run(&["export", "orders"], "").out;

    let restored = command(&["restore", text(&backup), "--data", text(&data)]).lines().remove(0);
    assert_eq!((&restored["damaged"], &restored["data"]), (&json!(0), &json!(text(&data))));
    assert!(command(&["verify", text(&data)]).lines()[0]["intact"].as_bool().unwrap());
    let server = Server::on_disk(&data);
    let expected: String = all.lines().take(5000).map(|line| format!("{line}\n")).collect();
    assert!(server.run(&["export", "orders"], "").out == expected, "the events differ");
    let busy = server.run(&["export", "busy"], "").out.lines().count() as u64;
    assert!((before..=after).contains(&busy), "{busy} of {before} to {after}");
    assert_eq!(busy % 200, 0, "imports are stored as a whole");
    let settings = server.run(&["topics", "orders"], "").out;
    assert!(settings.contains("\"retention_ms\":604800000"), "{settings}");
    let next = server.run(&["subscribe", "orders", "--group", "g", "--count", "1"], "").lines();
    assert_eq!(next[0]["seq"], 4);
    // Ids are known: publishing again what was stored before stores nothing.
    let again = server.run(&["import", "orders"], "{\"id\":\"n-77\",\"payload\":77}\n").lines();
    assert_eq!(again[0]["duplicates"], 1);
    // A folder that is in use, or not empty, is left alone.
    let refused = command(&["verify", text(&data)]);
    refused.failed_with("is in use by another process: stop the server first");
    assert_eq!(refused.code, Some(1));
    command(&["restore", text(&backup), "--data", text(&data)]).failed_with("is not empty");
}

#[test]
fn an_incomplete_or_damaged_backup_is_named_and_leaves_nothing() {
    let store = Store::start();
    store.back_up("a.backup").lines();
    let whole = fs::read(store.path("a.backup")).unwrap();
    let broken = store.path("broken");
    for (bytes, reason) in [
        (whole[..whole.len() - 1].to_vec(), "it is incomplete"),
        (b"{\"payload\":1}\n".to_vec(), "it is not a backup of Prombus"),
        ([&whole[..], b"x"].concat(), "something follows the end"),
    ] {
        fs::write(&broken, bytes).unwrap();
        command(&["verify", text(&broken)]).failed_with(reason);
        let target = store.path("target");
        command(&["restore", text(&broken), "--data", text(&target)]).failed_with(reason);
        assert!(!target.exists());
    }
    // A connection that is lost in the middle, or a server that is none.
    let proxy = Proxy::start(&store.server, &[Fate::CutAfter(2000)]);
    let cut = proxy.run(&["backup", "-o", text(&store.path("cut"))], "");
    assert!(!cut.is_success, "{cut:?}");
    assert_eq!(store.files(), ["a.backup", "broken"]);
    command(&["verify", text(&store.path("nowhere"))]).failed_with("nowhere");
    command(&["verify", text(store.folder.path())])
        .failed_with("is not the data folder of a store");
    command(&["restore", "-", "--data", "x"]).failed_with("store it in a file first");
}

#[test]
fn a_damaged_store_is_named_and_backed_up_only_if_asked_to() {
    let mut store = Store::start();
    let data = store.path("data");
    store.server.stop();
    store.server.wait();
    let segment = find(&data.join("topics/orders"), "seg");
    let mut bytes = fs::read(&segment).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    fs::write(&segment, bytes).unwrap();
    let name = text(segment.strip_prefix(&data).unwrap()).to_owned();
    let verified = command(&["verify", text(&data)]);
    assert_eq!(verified.code, Some(1));
    verified.failed_with(&format!("damaged: {name}: at byte "));
    assert_eq!(verified.json()[0]["damaged"], json!([name]));

    let server = Server::on_disk(&data);
    let backup = store.folder.path().join("a.backup");
    server.run(&["backup", "-o", text(&backup)], "").failed_with(&name);
    assert!(!backup.exists());
    let included = server.run(&["backup", "-o", text(&backup), "--include-damaged"], "");
    assert_eq!(included.lines()[0]["damaged"], json!([name]));
    assert!(included.err.contains(&name));
    let verified = command(&["verify", text(&backup)]);
    verified.failed_with(&format!("damaged when the backup was taken: {name}"));
    let target = store.folder.path().join("target");
    let restore = ["restore", text(&backup), "--data", text(&target)];
    command(&restore).failed_with("--include-damaged");
    assert!(!target.exists());
    let restored = command(&[&restore[..], &["--include-damaged"]].concat());
    assert_eq!(restored.lines()[0]["damaged"], 1);
    let restored = Server::on_disk(&target);
    let (here, there) = (["export", "orders", "--skip-damaged"], "");
    assert_eq!(restored.run(&here, there).out, server.run(&here, there).out);
}

fn find(folder: &Path, extension: &str) -> PathBuf {
    let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let mut found = entries.filter(|path| path.extension().is_some_and(|it| it == extension));
    found.next().expect("there is such a file")
}

#[test]
fn an_unfinished_restore_does_not_start() {
    let store = Store::start();
    store.back_up("a.backup").lines();
    let target = store.path("target");
    let restore =
        ["restore", text(&store.path("a.backup")).to_owned().leak(), "--data", text(&target)];
    command(&restore).lines();
    fs::write(target.join("RESTORING"), "").unwrap();
    for arguments in [["serve", "--data", text(&target)], ["verify", text(&target), "--"]] {
        command(&arguments).failed_with("holds an unfinished restore of a backup");
    }
    command(&restore).lines();
    Server::on_disk(&target);
}

#[test]
fn only_the_disk_engine_has_backups() {
    let server = Server::start(&[]);
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("a.backup");
    server.run(&["backup", "-o", text(&file)], "").failed_with("use the disk engine");
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
}
