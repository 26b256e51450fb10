//! Adopts a sealed WAL file as a segment: most of it belongs to one topic, so the file gets a second
//! name in that topic's folder, and only an index is written.
//!
//! Copying the events of one busy topic into a segment would write each of them a second time, into
//! a file of about the same size and order. Whatever lies between the topic's extents (frame headers,
//! records of other topics, state changes) stays in the file, and readers skip it.

use std::io;
use std::ops::Range;
use std::path::PathBuf;

use prombus_proto::{Timestamp, Topic};

use super::sparse_index::IndexEntry;
use super::{Segment, SegmentContent};
use crate::disk::checkpoint::sealed_wal::SealedWal;
use crate::disk::options::DiskOptions;
use crate::disk::record::RecordSeed;
use crate::disk::record::walk::RecordRange;
use crate::disk::storage::faults::is_damage;
use crate::disk::storage::file_header::{self, SPARSE_INDEX};
use crate::disk::storage::file_system::{Access, File};
use crate::disk::storage::layout::Layout;
use crate::disk::wal::WalExtent;
use crate::disk::wal::file::WalFile;
use crate::disk::wal::frame::{FrameEnd, FrameHeader};
use crate::disk::wal::scan::{ScanStep, WalScan};

/// Returns `true` if the file `sealed` should become a segment as it is. `extents` are all of the
/// topic's records in it; `segments` are those the topic already has.
pub(crate) fn is_worth_adopting(
    sealed: &SealedWal,
    extents: &[WalExtent],
    segments: &[Segment],
    options: &DiskOptions,
) -> bool {
    let Some(first) = extents.first() else { return false };
    let (count, record_bytes) = (extents.len() as u64, record_bytes(extents));
    let has_no_gap = extents.windows(2).all(|two| two[0].last().next() == two[1].first);
    let in_this_file = extents.iter().all(|extent| extent.file.number == sealed.file.number);
    // Copying skips events that the segments already have. Adopting cannot: it would replace the
    // file of an existing segment.
    let is_new = segments.last().is_none_or(|segment| segment.last < first.first);
    // Only the intact records of a damaged file are copied.
    !sealed.damaged
        && in_this_file
        && has_no_gap
        && is_new
        && record_bytes / count >= options.min_adopted_extent_bytes
        && record_bytes >= sealed.end / 2
        && (options.segment_bytes / 4..=options.segment_bytes).contains(&sealed.end)
}

/// Makes the file `sealed` the next segment of `topic`, whose records in it are `extents`. Returns the
/// segment and the paths to sync before the catalog may name it, or `None` if the filesystem cannot
/// link the file.
pub(crate) fn adopt(
    layout: &Layout,
    topic: &Topic,
    sealed: &SealedWal,
    extents: &[WalExtent],
    newest_id: u128,
    now: Timestamp,
) -> io::Result<Option<(Segment, Vec<PathBuf>)>> {
    let (Some(first), Some(last)) = (extents.first(), extents.last()) else { return Ok(None) };
    let mut index = file_header::encode(SPARSE_INDEX, first.first.0).to_vec();
    let mut latest_ts = Timestamp(0);
    for extent in extents {
        let entry = IndexEntry {
            seq: extent.first,
            offset: extent.offset,
            latest_ts_before: latest_ts,
            newest_id_before: extent.newest_id_before,
        };
        entry.append_to(&mut index);
        latest_ts = latest_ts.max(extent.latest_ts);
    }
    let (path, index_path) =
        (layout.segment(topic, first.first), layout.sparse_index(topic, first.first));
    let fs = layout.fs();
    fs.create_folder(&layout.topic(topic))?;
    // An unfinished checkpoint may have left a file here.
    fs.remove_if_exists(&path)?;
    match fs.hard_link(&sealed.file.path, &path) {
        Err(error) if cannot_link(&error) => return Ok(None),
        linked => linked?,
    }
    fs.open(&index_path, Access::CreateEmpty)?.write_all_at(&index, 0)?;
    // Releases the preallocated space.
    sealed.file.truncate(sealed.end)?;
    let record_bytes = record_bytes(extents);
    let mut segment = Segment {
        first: first.first,
        last: last.last(),
        end: last.end(),
        latest_ts,
        arrived: Timestamp(0),
        newest_id_before: first.newest_id_before,
        newest_id,
        index_entries: u32::try_from(extents.len()).expect("a WAL file has few extents"),
        created_at: now,
        content: SegmentContent::Frames { first_record: first.offset, record_bytes },
    };
    extents.iter().for_each(|extent| segment.add_arrival(extent.arrived, now));
    Ok(Some((segment, vec![path, index_path, layout.topic(topic), layout.topics()])))
}

fn record_bytes(extents: &[WalExtent]) -> u64 {
    extents.iter().map(|extent| u64::from(extent.bytes)).sum()
}

fn cannot_link(error: &io::Error) -> bool {
    use io::ErrorKind::{CrossesDevices, PermissionDenied, TooManyLinks, Unsupported};
    matches!(error.kind(), CrossesDevices | PermissionDenied | TooManyLinks | Unsupported)
}

/// Finds the records of `topic` in an adopted WAL file by reading its frame headers, for when the
/// index is damaged.
pub(crate) fn ranges_by_headers(
    file: &File,
    end: u64,
    topic: &Topic,
    seed: RecordSeed,
) -> io::Result<Vec<RecordRange>> {
    let mut ranges = Vec::new();
    let (mut offset, mut next_number) = (WalFile::first_frame_offset(), 0);
    while offset < end {
        let Some(header) = header_at(file, offset)? else {
            ranges.extend(ranges_by_scan(file, offset..end, next_number, topic, seed)?);
            break;
        };
        next_number = header.number + 1;
        let mut start = offset + header.header_bytes() as u64;
        for section in &header.sections {
            let end = start + u64::from(section.bytes);
            if section.topic == *topic && section.count > 0 {
                let last = section.first.plus(u64::from(section.count)).previous();
                ranges.push(RecordRange { seed, start, end, first: section.first, last });
            }
            start = end;
        }
        offset += header.frame_bytes();
    }
    Ok(ranges)
}

/// The same from the first damaged header on, by searching for the next intact one.
fn ranges_by_scan(
    file: &File,
    range: Range<u64>,
    next_number: u64,
    topic: &Topic,
    seed: RecordSeed,
) -> io::Result<Vec<RecordRange>> {
    let bytes = usize::try_from(range.end - range.start).map_err(io::Error::other)?;
    let mut content = vec![0; bytes];
    file.read_undamaged_at(&mut content, range.start)?;
    let mut ranges = Vec::new();
    let mut scan = WalScan::new(&content, range.start, next_number, true);
    loop {
        let frame = match scan.next_step() {
            ScanStep::Frame(frame) => frame,
            ScanStep::Damage { .. } => continue,
            ScanStep::Torn { .. } | ScanStep::End => return Ok(ranges),
        };
        for extent in &frame.extents {
            if frame.header.sections[extent.section].topic == *topic {
                let (start, end) = (extent.offset, extent.offset + u64::from(extent.bytes));
                let last = extent.first.plus(u64::from(extent.count)).previous();
                ranges.push(RecordRange { seed, start, end, first: extent.first, last });
            }
        }
    }
}

/// Reads the frame header at `offset`. `None` if it is damaged.
fn header_at(file: &File, offset: u64) -> io::Result<Option<FrameHeader>> {
    let read = |buffer: &mut [u8]| match file.read_exact_at(buffer, offset) {
        Err(error) if is_damage(&error) => Ok(false),
        read => read.map(|()| true),
    };
    let mut start = [0; 8];
    if !read(&mut start)? {
        return Ok(None);
    }
    let Some(claimed) = FrameHeader::claimed_header_bytes(&start) else { return Ok(None) };
    // A damaged length must not allocate more than the file has.
    let left = file.len()?.saturating_sub(offset);
    let mut header = vec![0; claimed.min(usize::try_from(left).unwrap_or(usize::MAX))];
    if !read(&mut header)? {
        return Ok(None);
    }
    Ok(FrameHeader::decode(&header).and_then(|(end, header)| match end {
        FrameEnd::Header => Some(header),
        FrameEnd::Footer => None,
    }))
}
