//! What the sorted runs of ids and of state have in common. A run is written once, by a checkpoint or
//! by a merge, and never changed.

pub(crate) mod filter;

use std::cmp::Ordering;
use std::io;
use std::iter::Peekable;
use std::path::Path;

use super::storage::checksum::checksum;
use super::storage::faults::is_damage;
use super::storage::file_header::{self, FileKind, HEADER_BYTES, HeaderFault};
use super::storage::file_system::{Access, File, FileSystem};

/// How many runs of one level are merged into one of the next.
pub(crate) const RUNS_PER_LEVEL: usize = 8;

/// Why a run could not be read.
#[derive(Debug)]
pub(crate) enum RunFault {
    /// What was read is lost: a checksum mismatch, a bad medium, a truncated or missing file.
    Damaged(String),
    /// The operating system refused, which says nothing about the content: retrying may help.
    Io(io::Error),
}

impl RunFault {
    /// The fault of a failed read; `what` was being read.
    pub(crate) fn of_read(what: &str, error: io::Error) -> Self {
        if is_damage(&error) { Self::Damaged(format!("{what}: {error}")) } else { Self::Io(error) }
    }

    /// An I/O error, which for damage is of the kind `InvalidData`.
    pub(crate) fn into_io(self) -> io::Error {
        match self {
            Self::Damaged(detail) => io::Error::new(io::ErrorKind::InvalidData, detail),
            Self::Io(error) => error,
        }
    }
}

/// Creates the file of a new run, or empties what an unfinished checkpoint left in its place.
pub(crate) fn create(fs: &FileSystem, path: &Path) -> io::Result<File> {
    fs.open(path, Access::CreateEmpty)
}

/// Returns the number and the format version in the header of a run.
pub(crate) fn read_header(file: &File, kind: FileKind) -> Result<(u64, u16), HeaderFault> {
    let mut header = [0; HEADER_BYTES];
    file.read_exact_at(&mut header, 0)
        .map_err(|_| HeaderFault::Damaged("the header is truncated"))?;
    let number = file_header::decode(kind, &header)?;
    Ok((number, file_header::version(&header)))
}

/// The checksum of a page, whose first four bytes are reserved for it. Covers the page's position as
/// well, so that a page in the place of another is detected.
pub(crate) fn page_checksum(position: u64, page: &[u8]) -> u32 {
    checksum(&page[4..]) ^ checksum(&position.to_le_bytes())
}

/// Merges sorted sources into one sorted sequence. Of equal items, those of earlier sources come
/// first. An error of any source comes before further items.
pub(crate) struct MergeSorted<I: Iterator, F> {
    sources: Vec<Peekable<I>>,
    compare: F,
}

impl<I: Iterator, F> MergeSorted<I, F> {
    pub(crate) fn new(sources: impl IntoIterator<Item = I>, compare: F) -> Self {
        Self { sources: sources.into_iter().map(Iterator::peekable).collect(), compare }
    }
}

impl<T, E, I, F> Iterator for MergeSorted<I, F>
where
    I: Iterator<Item = Result<T, E>>,
    F: Fn(&T, &T) -> Ordering,
{
    type Item = Result<T, E>;

    fn next(&mut self) -> Option<Self::Item> {
        let mut smallest: Option<(usize, &T)> = None;
        let mut failed = None;
        for (index, source) in self.sources.iter_mut().enumerate() {
            match source.peek() {
                Some(Ok(item))
                    if smallest.is_none_or(|(_, best)| (self.compare)(item, best).is_lt()) =>
                {
                    smallest = Some((index, item));
                }
                Some(Err(_)) => {
                    failed = Some(index);
                    break;
                }
                Some(Ok(_)) | None => {}
            }
        }
        let index = failed.or(smallest.map(|(index, _)| index))?;
        self.sources[index].next()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn merges_in_order_and_reports_an_error_at_once() {
        let merge = |sources: [Vec<Result<(u32, char), ()>>; 3]| -> Vec<_> {
            let by_number = |a: &(u32, char), b: &(u32, char)| a.0.cmp(&b.0);
            MergeSorted::new(sources.map(Vec::into_iter), by_number).collect()
        };
        let first = vec![Ok((1, 'a')), Ok((4, 'a'))];
        let second = vec![Ok((1, 'b')), Ok((2, 'b'))];
        let all = [Ok((1, 'a')), Ok((1, 'b')), Ok((2, 'b')), Ok((4, 'a'))];
        assert_eq!(merge([first.clone(), second.clone(), vec![]]), all);
        assert_eq!(merge([first, second, vec![Err(())]])[..2], [Err(()), Ok((1, 'a'))]);
    }
}
