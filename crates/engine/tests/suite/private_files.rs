//! Nobody but the owner of a store may read its files: not in a new store, and not in one that an older
//! version created.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use libtest_mimic::Trial;
use prombus_engine::{Batch, DiskEngine, DiskOptions, Durability, Engine};

use crate::damage_store::{event, put, temporary_folder};
use crate::disk::in_small_files;

pub(crate) fn trials() -> Vec<Trial> {
    let trial = |name: &str, test: fn()| {
        Trial::test(format!("disk::private_files::{name}"), move || {
            test();
            Ok(())
        })
    };
    vec![
        trial("a_new_store_belongs_to_its_owner_alone", a_new_store),
        trial("a_store_of_an_older_version_is_closed_to_others", an_older_store),
        trial("links_are_not_followed", links),
    ]
}

fn options(folder: &Path) -> DiskOptions {
    let mut options = DiskOptions::at(folder);
    in_small_files(&mut options);
    options
}

/// Opens the store, publishes enough for checkpoints, calls `look` while it is open, and closes it.
fn use_store(folder: &Path, look: impl FnOnce(&Path)) {
    let mut runtime = tokio::runtime::Builder::new_multi_thread();
    runtime.worker_threads(1).enable_all().build().unwrap().block_on(async {
        let engine = DiskEngine::open(&options(folder)).unwrap();
        for n in 0..60 {
            let events = ["a.large", "b"].map(|name| event(name, n, 100)).to_vec();
            let state = vec![put(&format!("key/{n}"), "value")];
            engine
                .commit(Batch { state, ..Batch::of_events(events, Durability::Fsync) })
                .await
                .unwrap();
        }
        look(folder);
        engine.close().await.unwrap();
    });
}

/// Returns everything below `folder`, itself included, without following links.
fn entries(folder: &Path) -> Vec<PathBuf> {
    let mut found = vec![folder.to_owned()];
    let mut next = 0;
    while let Some(path) = found.get(next).cloned() {
        next += 1;
        if fs::symlink_metadata(&path).is_ok_and(|metadata| metadata.is_dir()) {
            found.extend(fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path()));
        }
    }
    found
}

fn mode(path: &Path) -> u32 {
    fs::symlink_metadata(path).unwrap().permissions().mode() & 0o777
}

fn set_mode(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

#[track_caller]
fn assert_private(store: &Path) {
    let entries = entries(store);
    for name in ["LOCK", "catalog", "catalog.mirror", "wal", "topics", "state", "quarantine"] {
        assert!(entries.contains(&store.join(name)), "no {name} in {entries:?}");
    }
    for extension in ["edit", "seg", "ids", "kv"] {
        let is_there = entries.iter().any(|path| path.extension().is_some_and(|e| e == extension));
        assert!(is_there, "no .{extension} in {entries:?}");
    }
    for path in entries {
        // A checkpoint may just have removed it.
        let Ok(metadata) = fs::symlink_metadata(&path) else { continue };
        let mode = metadata.permissions().mode() & 0o777;
        let expected = if metadata.is_dir() { 0o700 } else { 0o600 };
        assert_eq!(mode, expected, "{}: {mode:o}", path.display());
    }
}

fn a_new_store() {
    let above = temporary_folder();
    let store = above.path().join("new/store");
    // Twice: recovery creates files as well.
    for _ in 0..2 {
        use_store(&store, assert_private);
        assert_private(&store);
    }
    // Only the store itself is private, not a folder that happened to be missing above it.
    assert_ne!(mode(&above.path().join("new")), 0o700);
}

fn an_older_store() {
    let store = temporary_folder();
    use_store(store.path(), |_| ());
    for path in entries(store.path()) {
        set_mode(&path, if path.is_dir() { 0o755 } else { 0o644 });
    }
    use_store(store.path(), assert_private);
    assert_private(store.path());
}

fn links() {
    let store = temporary_folder();
    use_store(store.path(), |_| ());
    let outside = temporary_folder();
    let file = outside.path().join("file");
    fs::write(&file, "not ours").unwrap();
    set_mode(&file, 0o644);
    set_mode(outside.path(), 0o755);
    symlink(&file, store.path().join("quarantine/file")).unwrap();
    symlink(outside.path(), store.path().join("quarantine/folder")).unwrap();
    set_mode(store.path(), 0o755);
    use_store(store.path(), |_| ());
    assert_eq!((mode(store.path()), mode(outside.path()), mode(&file)), (0o700, 0o755, 0o644));
}
