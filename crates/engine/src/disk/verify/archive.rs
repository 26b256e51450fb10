//! Checks a backup, and passes on what is in it.
//!
//! Only what the catalog at its start names can be in a backup, at most once, in order, and no longer than
//! the catalog says. So a hostile backup cannot name other files, and no file twice.

use std::collections::{BTreeMap, HashSet};
use std::io::Read;

use super::content::{ContentCheck, Counted};
use super::contents::{Content, Length, check_plausible, named_files};
use super::report::{Fault, FileKindName, Report};
use crate::disk::backup::archive::CATALOG_NAME;
use crate::disk::backup::archive::reader::{ArchiveError, ArchiveReader, Item};
use crate::disk::checkpoint::catalog::Catalog;
use crate::disk::storage::file_header::HeaderFault;
use crate::disk::storage::store_file::StoreFile;

/// The largest catalog that is read: that of millions of topics.
const MAX_CATALOG_BYTES: u64 = 1 << 30;

/// Takes the files of a backup.
pub(crate) trait Receiver {
    type Error: From<ArchiveError>;

    /// Comes first.
    fn catalog(&mut self, catalog: Catalog) -> Result<(), Self::Error>;
    fn begin(&mut self, file: &StoreFile, bytes: u64) -> Result<(), Self::Error>;
    fn content(&mut self, bytes: &[u8]) -> Result<(), Self::Error>;
    fn end(&mut self) -> Result<(), Self::Error>;
}

/// Takes nothing: the backup is only checked.
pub(crate) struct OnlyCheck;

impl Receiver for OnlyCheck {
    type Error = ArchiveError;

    fn catalog(&mut self, _: Catalog) -> Result<(), ArchiveError> {
        Ok(())
    }

    fn begin(&mut self, _: &StoreFile, _: u64) -> Result<(), ArchiveError> {
        Ok(())
    }

    fn content(&mut self, _: &[u8]) -> Result<(), ArchiveError> {
        Ok(())
    }

    fn end(&mut self) -> Result<(), ArchiveError> {
        Ok(())
    }
}

/// Reads a whole backup and checks all of it. `progress` gets the bytes of content so far, and in total.
///
/// # Errors
///
/// If it cannot be read to its end. What is damaged in the files of the store is in the report.
pub(crate) fn read_archive<T: Receiver>(
    source: impl Read,
    receiver: &mut T,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<Report, T::Error> {
    let mut reader = ArchiveReader::open(source)?;
    let mut contents = None;
    loop {
        match &mut contents {
            None => contents = Some(Contents::new(read_catalog(&mut reader)?, receiver)?),
            Some(contents) => match reader.next()? {
                Item::File { name, bytes } => contents.begin(name, bytes, receiver)?,
                Item::Content(content) => contents.content(content, receiver)?,
                Item::FileEnd => contents.end(receiver)?,
                Item::Damaged { name, detail } => {
                    let (file, detail) = (name.to_owned(), detail.to_owned());
                    contents.recorded.push(Fault { file, detail });
                }
                Item::End => break,
            },
        }
        progress(reader.content_bytes(), reader.header.bytes);
    }
    Ok(contents.map(Contents::finish).unwrap_or_default())
}

fn read_catalog(reader: &mut ArchiveReader<impl Read>) -> Result<(Catalog, u64), ArchiveError> {
    let invalid = |detail: &str| ArchiveError::Invalid(detail.to_owned());
    match reader.next()? {
        Item::File { name: CATALOG_NAME, bytes } if bytes <= MAX_CATALOG_BYTES => {}
        _ => return Err(invalid("it does not start with a catalog")),
    }
    let mut encoded = Vec::new();
    while let Item::Content(content) = reader.next()? {
        encoded.extend_from_slice(content);
    }
    let catalog = match Catalog::decode(&encoded) {
        Ok((catalog, _)) => catalog,
        Err(HeaderFault::Damaged(detail)) => {
            return Err(ArchiveError::Invalid(format!("its catalog: {detail}")));
        }
        Err(HeaderFault::Newer { found, supported }) => {
            return Err(ArchiveError::NewerVersion { found, supported });
        }
    };
    check_plausible(&catalog)
        .map_err(|detail| ArchiveError::Invalid(format!("its catalog: {detail}")))?;
    Ok((catalog, encoded.len() as u64))
}

/// What a backup may still contain, and what it contained so far.
struct Contents {
    left: BTreeMap<StoreFile, Content>,
    /// The number of the next file of the write-ahead log.
    next_wal: u64,
    /// The number of the next frame, unless damage hides it.
    next_frame: Option<u64>,
    last: Option<StoreFile>,
    current: Option<Current>,
    report: Report,
    recorded: Vec<Fault>,
}

struct Current {
    file: StoreFile,
    bytes: u64,
    check: ContentCheck,
}

impl Contents {
    fn new<T: Receiver>(
        (catalog, bytes): (Catalog, u64),
        receiver: &mut T,
    ) -> Result<Self, T::Error> {
        let mut report = Report::default();
        report.add(FileKindName::Catalog, 1, bytes, catalog.topics.len() as u64);
        let contents = Self {
            left: named_files(&catalog),
            next_wal: catalog.checkpointed_wal + 1,
            next_frame: Some(catalog.next_frame),
            last: None,
            current: None,
            report,
            recorded: Vec::new(),
        };
        receiver.catalog(catalog)?;
        Ok(contents)
    }

    fn begin<T: Receiver>(
        &mut self,
        name: &str,
        bytes: u64,
        receiver: &mut T,
    ) -> Result<(), T::Error> {
        let invalid = |detail: String| T::Error::from(ArchiveError::Invalid(detail));
        let file = StoreFile::parse(name)
            .ok_or_else(|| invalid(format!("{name:?} is not the name of a file of a store")))?;
        if self.last.as_ref().is_some_and(|last| *last >= file) {
            return Err(invalid(format!("{file} is out of order")));
        }
        let content = match &file {
            StoreFile::Wal(number) if *number == self.next_wal => {
                self.next_wal += 1;
                Content::Log { first_frame: self.next_frame }
            }
            _ => {
                let content = self.left.remove(&file);
                content.ok_or_else(|| invalid(format!("its catalog does not name {file}")))?
            }
        };
        if let Length::Known(most) = content.length()
            && bytes > most
        {
            return Err(invalid(format!("{file} is longer than its catalog says")));
        }
        receiver.begin(&file, bytes)?;
        let check = ContentCheck::new(&file, &content);
        self.last = Some(file.clone());
        self.current = Some(Current { file, bytes, check });
        Ok(())
    }

    fn content<T: Receiver>(&mut self, bytes: &[u8], receiver: &mut T) -> Result<(), T::Error> {
        if let Some(current) = &mut self.current {
            current.check.push(bytes);
        }
        receiver.content(bytes)
    }

    fn end<T: Receiver>(&mut self, receiver: &mut T) -> Result<(), T::Error> {
        if let Some(Current { file, bytes, check }) = self.current.take() {
            let checked = check.finish();
            if let StoreFile::Wal(_) = file {
                self.next_frame = checked.as_ref().ok().and_then(|it: &Counted| it.next_frame);
            }
            self.report.add_checked(&file, bytes, &checked);
        }
        receiver.end()
    }

    fn finish(self) -> Report {
        let Self { left, mut report, recorded, .. } = self;
        for file in left.keys() {
            report.fault(file, "it is missing");
        }
        let known: HashSet<_> = recorded.iter().map(|fault| &fault.file).collect();
        report.faults.retain(|fault| !known.contains(&fault.file));
        report.recorded = recorded;
        report
    }
}
