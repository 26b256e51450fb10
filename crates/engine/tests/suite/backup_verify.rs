//! `verify_store` finds every flipped bit in every kind of file, and names the file.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use libtest_mimic::Trial;
use prombus_engine::disk::{FileKindName, Report, verify_store};

use crate::damage_store::{ADOPTED_WAL, Killed, Kind, MANY_FILES, ONE_LOG_FILE, PACKED, Sizes};

pub(crate) fn trials() -> Vec<Trial> {
    let trial = |name: &str, sizes: Sizes, batches: usize| {
        Trial::test(format!("disk::verify::{name}"), move || {
            let mut runtime = tokio::runtime::Builder::new_current_thread();
            let runtime = runtime.enable_all().build().unwrap();
            let store = runtime.block_on(Killed::after(sizes, batches));
            finds_every_flipped_bit(&store);
            finds_what_is_missing(&store);
            Ok(())
        })
    };
    vec![
        trial("finds_flipped_bits_in_segments_and_runs", MANY_FILES, 60),
        trial("finds_flipped_bits_in_the_log", ONE_LOG_FILE, 30),
        trial("finds_flipped_bits_in_adopted_files", ADOPTED_WAL, 30),
        trial("finds_flipped_bits_in_packs", PACKED, 40),
    ]
}

fn verify(folder: &Path) -> Report {
    verify_store(folder, &mut |_, _| {}).unwrap()
}

/// How many places of each file are tried.
const PLACES: usize = 24;

fn finds_every_flipped_bit(store: &Killed) {
    let copy = store.copy();
    let report = verify(copy.folder.path());
    assert!(report.is_intact(), "{:?}", report.faults);
    check_totals(store, &report);
    let mut tried: BTreeMap<String, usize> = BTreeMap::new();
    for kind in Kind::ALL.into_iter().filter(|kind| *kind != Kind::Lock) {
        // The first and the last: those between are of the same kind.
        let files = copy.files(kind);
        let some = files.first().into_iter().chain(files.last().filter(|_| files.len() > 1));
        for file in some {
            let whole = fs::read(file).unwrap();
            let name = file.strip_prefix(copy.folder.path()).unwrap().display().to_string();
            let step = (whole.len() * 8 / PLACES).max(1);
            for bit in (0..whole.len() * 8).step_by(step).chain([whole.len() * 8 - 1]) {
                let mut flipped = whole.clone();
                flipped[bit / 8] ^= 1 << (bit % 8);
                fs::write(file, &flipped).unwrap();
                let report = verify(copy.folder.path());
                let found: Vec<_> = report.faults.iter().map(|fault| &fault.file).collect();
                assert!(
                    found.contains(&&name) && found.len() <= 2,
                    "bit {bit} of {} of {name}: {:?}",
                    whole.len() * 8,
                    report.faults
                );
                *tried.entry(format!("{kind:?}")).or_default() += 1;
            }
            fs::write(file, &whole).unwrap();
        }
    }
    assert!(tried.len() >= 3, "{tried:?}");
    assert!(verify(copy.folder.path()).is_intact());
}

fn check_totals(store: &Killed, report: &Report) {
    let events: u64 = report
        .kinds
        .iter()
        .filter(|kind| {
            matches!(kind.kind, FileKindName::Segments | FileKindName::Packs | FileKindName::Log)
        })
        .map(|kind| kind.items)
        .sum();
    let written: usize = store.written.topics.values().map(Vec::len).sum();
    // An adopted file counts the few events of other topics in it as well.
    assert!(events >= written as u64, "{events} of {written}");
    let topics = report.kinds.iter().find(|kind| kind.kind == FileKindName::Catalog).unwrap();
    assert!(topics.items <= store.written.topics.len() as u64);
    for kind in &report.kinds {
        assert!(kind.files > 0 && kind.bytes > 0 && !kind.kind.name().is_empty(), "{kind:?}");
    }
}

fn finds_what_is_missing(store: &Killed) {
    for kind in Kind::ALL.into_iter().filter(|kind| ![Kind::Lock, Kind::Wal].contains(kind)) {
        let copy = store.copy();
        let Some(file) = copy.files(kind).into_iter().next() else { continue };
        let name = file.strip_prefix(copy.folder.path()).unwrap().display().to_string();
        let whole = fs::read(&file).unwrap();
        let is_found = || verify(copy.folder.path()).faults.iter().any(|it| it.file == name);
        fs::write(&file, &whole[..whole.len() - 1]).unwrap();
        assert!(is_found(), "{name} is cut short");
        fs::write(&file, b"").unwrap();
        assert!(is_found(), "{name} is empty");
        fs::remove_file(&file).unwrap();
        // One copy of the last edit may be missing after a crash.
        let may_be_missing = matches!(kind, Kind::Edit | Kind::EditMirror);
        assert!(is_found() || may_be_missing, "{name} is missing");
    }
}
