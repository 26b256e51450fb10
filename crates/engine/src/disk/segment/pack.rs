//! Packs: files that contain small segments of many topics, one after the other.
//!
//! ```text
//! header | records of a segment | records of the next…
//! ```
//!
//! The catalog knows where each segment starts and ends. A pack is written once and never appended to.

use std::io;
use std::path::{Path, PathBuf};

use prombus_proto::Timestamp;

use super::record_block::{DamagedRange, RecordBlock, for_each_record};
use super::{Segment, SegmentContent};
use crate::disk::record::RecordSeed;
use crate::disk::storage::faults::is_damage;
use crate::disk::storage::file_header::{self, HEADER_BYTES, PACK};
use crate::disk::storage::file_system::{Access, File};
use crate::disk::storage::layout::Layout;

/// How many bytes are buffered before they are written.
const WRITE_BYTES: usize = 1 << 20;

/// Writes a new pack.
pub(crate) struct PackWriter {
    number: u64,
    path: PathBuf,
    file: File,
    /// What is not written yet.
    buffer: Vec<u8>,
    /// The file offset at which the buffer ends.
    end: u64,
    now: Timestamp,
}

impl PackWriter {
    pub(crate) fn create(layout: &Layout, number: u64, now: Timestamp) -> io::Result<Self> {
        let path = layout.pack(number);
        // An unfinished checkpoint may have left a file here.
        let file = layout.fs().open(&path, Access::CreateEmpty)?;
        let buffer = file_header::encode(PACK, number).to_vec();
        Ok(Self { number, path, file, buffer, end: HEADER_BYTES as u64, now })
    }

    /// Starts a segment after `before`, the last one of its topic.
    pub(crate) fn start_segment(
        &self,
        block: &RecordBlock,
        before: Option<&Segment>,
        created_at: Timestamp,
    ) -> Segment {
        let newest_id = before.map_or(0, |segment| segment.newest_id).max(block.newest_id_before);
        let content = SegmentContent::Packed { pack: self.number, offset: self.end };
        Segment::empty(block.first, content, self.end, newest_id, created_at)
    }

    /// Appends the records of `block`, whose content is `bytes`, to `segment`, the newest one. Skips
    /// events that it already has. Returns the damaged events.
    pub(crate) fn append(
        &mut self,
        segment: &mut Segment,
        seed: RecordSeed,
        block: &RecordBlock,
        bytes: &[u8],
    ) -> io::Result<Vec<DamagedRange>> {
        for_each_record(seed, block, bytes, |record, bytes| {
            if record.seq > segment.last {
                segment.add(block, record, self.now);
                self.write(bytes)?;
            }
            Ok(())
        })
    }

    /// Appends all records of `copied`, which are `bytes`, to `segment`, the newest one.
    pub(crate) fn append_segment(
        &mut self,
        segment: &mut Segment,
        copied: &Segment,
        bytes: &[u8],
    ) -> io::Result<()> {
        segment.add_segment(copied, self.now);
        self.write(bytes)
    }

    /// Copies the records of `segment`, which are `bytes`, and returns the segment as it is here.
    pub(crate) fn copy(&mut self, segment: &Segment, bytes: &[u8]) -> io::Result<Segment> {
        let content = SegmentContent::Packed { pack: self.number, offset: self.end };
        self.write(bytes)?;
        Ok(Segment { content, end: self.end, ..*segment })
    }

    fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.buffer.extend_from_slice(bytes);
        self.end += bytes.len() as u64;
        if self.buffer.len() >= WRITE_BYTES { self.flush() } else { Ok(()) }
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.write_all_at(&self.buffer, self.end - self.buffer.len() as u64)?;
        self.buffer.clear();
        Ok(())
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Writes the rest. The caller syncs the file.
    pub(crate) fn finish(mut self) -> io::Result<()> {
        self.flush()
    }
}

/// Reads the records of a packed segment. Returns `None` if some of them are damaged or missing.
pub(crate) fn read_intact(
    layout: &Layout,
    segment: &Segment,
    seed: RecordSeed,
) -> io::Result<Option<Vec<u8>>> {
    let SegmentContent::Packed { pack, offset } = segment.content else { return Ok(None) };
    let file = match layout.fs().open(&layout.pack(pack), Access::Read) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        file => file?,
    };
    let mut bytes = vec![0; usize::try_from(segment.end - offset).map_err(io::Error::other)?];
    match file.read_exact_at(&mut bytes, offset) {
        Err(error) if is_damage(&error) => return Ok(None),
        read => read?,
    }
    let mut last = None;
    let damaged = for_each_record(seed, &RecordBlock::from(segment), &bytes, |record, _| {
        last = Some(record.seq);
        Ok(())
    })?;
    Ok((damaged.is_empty() && last == Some(segment.last)).then_some(bytes))
}
