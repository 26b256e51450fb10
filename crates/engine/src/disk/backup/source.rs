//! Reads the files of a moment, checks them and encodes them.

use std::io;

use super::archive::writer::ArchiveWriter;
use super::archive::{ArchiveHeader, CATALOG_NAME, MAX_CONTENT_BYTES};
use super::pins::Pin;
use super::{BackupChunk, BackupError, OnDamage};
use crate::disk::storage::faults::is_damage;
use crate::disk::storage::file_system::File;
use crate::disk::storage::store_file::StoreFile;
use crate::disk::verify::content::ContentCheck;
use crate::disk::verify::contents::{Content, Length, named_files};
use crate::disk::verify::report::Fault;
use crate::{Condition, Unavailable};

/// How much is encoded before it is passed on.
const CHUNK_BYTES: usize = 256 << 10;

/// A backup, as far as it is not read yet.
pub(crate) struct BackupSource {
    pin: Pin,
    on_damage: OnDamage,
    header: ArchiveHeader,
    writer: ArchiveWriter,
    stage: Stage,
    /// The next files, the last one first.
    files: Vec<PlannedFile>,
    buffer: Vec<u8>,
}

struct PlannedFile {
    file: StoreFile,
    content: Content,
    bytes: u64,
}

enum Stage {
    Catalog,
    BetweenFiles,
    InFile(OpenFile),
    /// The last bytes are encoded.
    Ended,
    /// Why, once the last bytes are taken.
    Failed(Option<BackupError>),
}

/// A file that is being read.
struct OpenFile {
    file: StoreFile,
    /// `None` if it is missing.
    opened: Option<File>,
    bytes: u64,
    offset: u64,
    check: ContentCheck,
    /// The first damage that reading met.
    fault: Option<String>,
}

impl BackupSource {
    /// Plans the backup. Reads nothing but the lengths of a few files.
    pub(crate) fn new(pin: Pin, on_damage: OnDamage) -> Result<Self, BackupError> {
        let mut files = Vec::new();
        let mut first_frame = Some(pin.moment.catalog.next_frame);
        for (number, end) in &pin.moment.wal_ends {
            let content = Content::Log { first_frame: first_frame.take() };
            files.push(PlannedFile { file: StoreFile::Wal(*number), content, bytes: *end });
        }
        for (file, content) in named_files(&pin.moment.catalog) {
            let bytes = match content.length() {
                Length::Known(bytes) => bytes,
                Length::AtLeast(least) => length_of(&pin, &file, least)?,
            };
            files.push(PlannedFile { file, content, bytes });
        }
        files.reverse();
        let catalog = pin.moment.catalog.encode();
        let of_files: u64 = files.iter().map(|file| file.bytes).sum();
        let header = ArchiveHeader {
            files: files.len() as u64 + 1,
            bytes: catalog.len() as u64 + of_files,
            moment: pin.shared.options.clock.now().0,
        };
        let failed = |source| BackupError::Io { file: CATALOG_NAME.to_owned(), source };
        let writer = ArchiveWriter::new(header).map_err(failed)?;
        let (stage, buffer) = (Stage::Catalog, Vec::new());
        Ok(Self { pin, on_damage, header, writer, stage, files, buffer })
    }

    pub(crate) const fn files(&self) -> u64 {
        self.header.files
    }

    pub(crate) const fn bytes(&self) -> u64 {
        self.header.bytes
    }

    /// Returns what comes next.
    pub(crate) fn next_chunk(&mut self) -> BackupChunk {
        while self.writer.len() < CHUNK_BYTES {
            match &mut self.stage {
                Stage::Ended | Stage::Failed(_) if self.writer.len() > 0 => break,
                Stage::Ended => return BackupChunk::Complete,
                Stage::Failed(error) => {
                    let error = error.take().unwrap_or(Unavailable::Closed.into());
                    return BackupChunk::Failed(error);
                }
                Stage::Catalog | Stage::BetweenFiles | Stage::InFile(_) => {}
            }
            if let Err(error) = self.check_condition().and_then(|()| self.step()) {
                self.writer.aborted(&error.to_string());
                self.stage = Stage::Failed(Some(error));
            }
        }
        BackupChunk::Bytes(self.writer.take())
    }

    /// Encodes as little as possible, and returns `true` when the backup is complete.
    #[cfg(test)]
    pub(crate) fn advance(&mut self) -> Result<bool, BackupError> {
        self.check_condition()?;
        self.step()?;
        Ok(matches!(self.stage, Stage::Ended))
    }

    /// Takes what is encoded.
    #[cfg(test)]
    pub(crate) fn take(&mut self) -> Vec<u8> {
        self.writer.take()
    }

    fn check_condition(&self) -> Result<(), BackupError> {
        match self.pin.shared.condition() {
            Condition::Closed => Err(Unavailable::Closed.into()),
            Condition::Full(_) => match self.pin.held_bytes() {
                0 => Ok(()),
                bytes => Err(BackupError::Full(bytes)),
            },
            Condition::Healthy | Condition::Poisoned(_) => Ok(()),
        }
    }

    /// Encodes a little more.
    fn step(&mut self) -> Result<(), BackupError> {
        match std::mem::replace(&mut self.stage, Stage::BetweenFiles) {
            Stage::Catalog => {
                let catalog = self.pin.moment.catalog.encode();
                self.writer.file(CATALOG_NAME, catalog.len() as u64);
                let failed = |source| BackupError::Io { file: CATALOG_NAME.to_owned(), source };
                self.writer.content(&catalog).map_err(failed)?;
                self.writer.file_end();
            }
            Stage::BetweenFiles => match self.files.pop() {
                Some(planned) => self.begin(planned)?,
                None => {
                    self.writer.end();
                    self.stage = Stage::Ended;
                }
            },
            Stage::InFile(open) if open.offset < open.bytes => self.read(open)?,
            Stage::InFile(open) => self.finish(open)?,
            Stage::Ended => self.stage = Stage::Ended,
            Stage::Failed(error) => self.stage = Stage::Failed(error),
        }
        Ok(())
    }

    fn begin(&mut self, planned: PlannedFile) -> Result<(), BackupError> {
        let PlannedFile { file, content, bytes } = planned;
        self.writer.file(&file.to_string(), bytes);
        let check = ContentCheck::new(&file, &content);
        let (opened, fault) = match self.pin.open(&file) {
            Ok(opened) => (Some(opened), None),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                (None, Some("it is missing".to_owned()))
            }
            Err(source) => return Err(BackupError::Io { file: file.to_string(), source }),
        };
        self.stage = Stage::InFile(OpenFile { file, opened, bytes, offset: 0, check, fault });
        Ok(())
    }

    /// Reads and encodes the next part of a file. What cannot be read is zeros.
    fn read(&mut self, mut open: OpenFile) -> Result<(), BackupError> {
        let left = usize::try_from(open.bytes - open.offset).unwrap_or(usize::MAX);
        self.buffer.resize(left.min(MAX_CONTENT_BYTES), 0);
        let failed = |source| BackupError::Io { file: open.file.to_string(), source };
        match &open.opened {
            None => self.buffer.fill(0),
            Some(opened) => match opened.read_exact_at(&mut self.buffer, open.offset) {
                Err(error) if is_damage(&error) => {
                    let detail = format!("cannot read it from byte {} on: {error}", open.offset);
                    open.fault.get_or_insert(detail);
                    let read = opened.read_undamaged_at(&mut self.buffer, open.offset);
                    read.map_err(failed)?;
                }
                read => read.map_err(failed)?,
            },
        }
        open.check.push(&self.buffer);
        self.writer.content(&self.buffer).map_err(failed)?;
        open.offset += self.buffer.len() as u64;
        self.stage = Stage::InFile(open);
        Ok(())
    }

    fn finish(&mut self, open: OpenFile) -> Result<(), BackupError> {
        let OpenFile { file, check, fault, .. } = open;
        self.writer.file_end();
        self.pin.release(&file);
        let fault = fault.or_else(|| check.finish().err().map(|fault| fault.to_string()));
        let Some(detail) = fault else { return Ok(()) };
        let fault = Fault { file: file.to_string(), detail };
        tracing::warn!("a backup found a damaged file: {fault}");
        self.writer.damaged(&fault.file, &fault.detail);
        match self.on_damage {
            OnDamage::Include => Ok(()),
            OnDamage::Stop => Err(BackupError::Damaged(fault)),
        }
    }
}

/// Returns the length of a file, and at least `least`: the rest of a file that was cut off is zeros.
fn length_of(pin: &Pin, file: &StoreFile, least: u64) -> Result<u64, BackupError> {
    let failed = |source| BackupError::Io { file: file.to_string(), source };
    match pin.open(file) {
        Ok(opened) => Ok(opened.len().map_err(failed)?.max(least)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(least),
        Err(error) => Err(failed(error)),
    }
}
