//! Backups that are cut off, damaged or hostile.

use super::reader::{ArchiveError, ArchiveReader, Item};
use super::writer::ArchiveWriter;
use super::*;
use crate::disk::checkpoint::catalog::Catalog;
use crate::disk::verify::archive::{OnlyCheck, read_archive};

fn header(files: u64, bytes: u64) -> ArchiveHeader {
    ArchiveHeader { files, bytes, moment: 7 }
}

fn content(bytes: usize) -> Vec<u8> {
    (0..bytes).map(|i| u8::try_from(i * i % 7).expect("small")).collect()
}

fn two_files() -> Vec<u8> {
    let mut writer = ArchiveWriter::new(header(2, 2003)).unwrap();
    writer.file("a", 3);
    writer.content(b"abc").unwrap();
    writer.file_end();
    writer.damaged("a", "a flipped bit");
    writer.file("b", 2000);
    writer.content(&content(2000)).unwrap();
    writer.file_end();
    writer.end();
    writer.take()
}

fn read_all(bytes: &[u8]) -> Result<Vec<String>, ArchiveError> {
    let mut reader = ArchiveReader::open(bytes)?;
    let mut items = Vec::new();
    loop {
        let item = match reader.next()? {
            Item::Content(content) => format!("{} bytes", content.len()),
            item => format!("{item:?}"),
        };
        let is_end = item == "End";
        items.push(item);
        if is_end {
            return Ok(items);
        }
    }
}

#[test]
fn round_trips() {
    let expected = [
        r#"File { name: "a", bytes: 3 }"#,
        "3 bytes",
        "FileEnd",
        r#"Damaged { name: "a", detail: "a flipped bit" }"#,
        r#"File { name: "b", bytes: 2000 }"#,
        "2000 bytes",
        "FileEnd",
        "End",
    ];
    assert_eq!(read_all(&two_files()).unwrap(), expected);
    let bytes = two_files();
    assert!(bytes.len() < 1000, "it is compressed: {}", bytes.len());
}

#[test]
fn content_of_any_length_round_trips() {
    for bytes in [0, 1, MAX_CONTENT_BYTES - 1, MAX_CONTENT_BYTES, 3 * MAX_CONTENT_BYTES + 5] {
        let mut writer = ArchiveWriter::new(header(1, bytes as u64)).unwrap();
        writer.file("a", bytes as u64);
        writer.content(&content(bytes)).unwrap();
        writer.file_end();
        writer.end();
        let archive = writer.take();
        let mut reader = ArchiveReader::open(&archive[..]).unwrap();
        let mut found = Vec::new();
        loop {
            match reader.next().unwrap() {
                Item::Content(content) => found.extend_from_slice(content),
                Item::End => break,
                _ => {}
            }
        }
        assert!(found == content(bytes), "{bytes}");
    }
}

#[test]
fn every_cut_and_every_flipped_bit_is_noticed() {
    let whole = two_files();
    for cut in 0..whole.len() {
        assert!(read_all(&whole[..cut]).is_err(), "cut at {cut}");
    }
    for bit in 0..whole.len() * 8 {
        let mut flipped = whole.clone();
        flipped[bit / 8] ^= 1 << (bit % 8);
        assert!(read_all(&flipped).is_err(), "bit {bit}");
    }
    let longer = [&whole[..], b"x"].concat();
    assert!(read_all(&longer).is_err());
}

#[test]
fn an_aborted_backup_says_why() {
    let mut writer = ArchiveWriter::new(header(2, 2003)).unwrap();
    writer.file("a", 3);
    writer.aborted("the disk is full");
    match read_all(&writer.take()) {
        Err(ArchiveError::Aborted(reason)) => assert_eq!(reason, "the disk is full"),
        found => panic!("{found:?}"),
    }
}

#[test]
fn other_files_and_newer_versions_are_refused() {
    assert!(matches!(read_all(b""), Err(ArchiveError::NotABackup)));
    assert!(matches!(read_all(b"PK\x03\x04 and more"), Err(ArchiveError::NotABackup)));
    let mut newer = two_files();
    newer[8] = 2;
    let sum = checksum(&newer[..40]).to_le_bytes();
    newer[40..44].copy_from_slice(&sum);
    let found = read_all(&newer);
    assert!(matches!(found, Err(ArchiveError::NewerVersion { found: 2, supported: 1 })));
}

/// Returns a backup of one file with this block in it.
fn with_block(kind: BlockKind, payload: &[u8]) -> Vec<u8> {
    let mut writer = ArchiveWriter::new(header(1, 2000)).unwrap();
    writer.file("a", 2000);
    let mut bytes = writer.take();
    bytes.extend_from_slice(&BlockHead::encode(kind, &[payload]));
    bytes.extend_from_slice(payload);
    bytes
}

fn refused_because(bytes: &[u8], reason: &str) {
    let error = read_all(bytes).unwrap_err().to_string();
    assert!(error.contains(reason), "{reason} is not in {error}");
}

/// The checksums of these are right: somebody means harm.
#[test]
fn hostile_lengths_are_refused() {
    let bomb = zstd::bulk::compress(&vec![0; 512 << 20], 1).unwrap();
    assert!(bomb.len() < MAX_CONTENT_BYTES);
    let claimed = |bytes: u32| [&bytes.to_le_bytes()[..], &bomb].concat();
    refused_because(&with_block(BlockKind::Compressed, &claimed(2000)), "cannot decompress");
    refused_because(&with_block(BlockKind::Compressed, &claimed(2001)), "longer than announced");
    refused_because(&with_block(BlockKind::Compressed, &claimed(u32::MAX)), "too long");
    refused_because(&with_block(BlockKind::Plain, &[0; 2001]), "longer than announced");
    refused_because(&with_block(BlockKind::FileEnd, &[0; 8]), "2000 bytes of the file are missing");
    refused_because(&with_block(BlockKind::File, &[0; 9]), "in the wrong place");
    refused_because(&with_block(BlockKind::End, &[0; 32]), "in the wrong place");

    let mut absurd = with_block(BlockKind::Plain, b"");
    let length = absurd.len() - 8;
    absurd[length..length + 4].copy_from_slice(&u32::MAX.to_le_bytes());
    refused_because(&absurd, "no block starts here");

    let mut writer = ArchiveWriter::new(header(1, 10)).unwrap();
    writer.file("a", u64::MAX);
    refused_because(&writer.take(), "more than the header announced");
    let mut writer = ArchiveWriter::new(header(0, 10)).unwrap();
    writer.file("a", 1);
    refused_because(&writer.take(), "more than the header announced");
}

/// Returns a backup of an empty store and of these files.
fn with_files(names: &[&str]) -> Vec<u8> {
    let catalog = Catalog::new(1).encode();
    let files = names.len() as u64;
    let mut writer = ArchiveWriter::new(header(files + 1, catalog.len() as u64 + files)).unwrap();
    writer.file(CATALOG_NAME, catalog.len() as u64);
    writer.content(&catalog).unwrap();
    writer.file_end();
    for name in names {
        writer.file(name, 1);
        writer.content(b"x").unwrap();
        writer.file_end();
    }
    writer.end();
    writer.take()
}

#[test]
fn only_files_that_the_catalog_names_can_be_in_a_backup() {
    let read = |bytes: &[u8]| read_archive(bytes, &mut OnlyCheck, &mut |_, _| {});
    let segment = "topics/a/00000000000000000001.seg";
    for (name, reason) in [
        ("../evil", "is not the name of a file of a store"),
        ("/etc/cron.d/evil", "is not the name of a file of a store"),
        ("topics/../../evil/00000000000000000001.seg", "is not the name of a file of a store"),
        ("wal/../../00000000000000000001.wal", "is not the name of a file of a store"),
        ("LOCK", "is not the name of a file of a store"),
        (CATALOG_NAME, "is not the name of a file of a store"),
        (segment, "does not name"),
        ("wal/00000000000000000002.wal", "does not name"),
        ("packs/00000000000000000001.pack", "does not name"),
    ] {
        let error = read(&with_files(&[name])).unwrap_err().to_string();
        assert!(error.contains(reason), "{name}: {error}");
    }
    let wal = "wal/00000000000000000001.wal";
    let error = read(&with_files(&[wal, wal])).unwrap_err().to_string();
    assert!(error.contains("out of order"), "{error}");
    // A log that is none is damaged, and named.
    let report = read(&with_files(&[wal])).unwrap();
    assert_eq!(report.faults[0].file, wal);
    assert!(read(&with_files(&[])).unwrap().is_intact());
    let error = read(&two_files()).unwrap_err().to_string();
    assert!(error.contains("does not start with a catalog"), "{error}");
}

#[test]
fn a_catalog_that_contradicts_itself_is_refused() {
    let impossible = [
        Catalog { checkpointed_wal: u64::MAX, ..Catalog::new(1) },
        Catalog { next_frame: u64::MAX, ..Catalog::new(1) },
        Catalog { next_run: u64::MAX, ..Catalog::new(1) },
    ];
    for catalog in impossible {
        let catalog = catalog.encode();
        let mut writer = ArchiveWriter::new(header(1, catalog.len() as u64)).unwrap();
        writer.file(CATALOG_NAME, catalog.len() as u64);
        writer.content(&catalog).unwrap();
        writer.file_end();
        writer.end();
        let error = read_archive(&writer.take()[..], &mut OnlyCheck, &mut |_, _| {}).unwrap_err();
        assert!(error.to_string().contains("impossible"), "{error}");
    }
}
