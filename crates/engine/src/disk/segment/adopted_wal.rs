//! A full file of the write-ahead log that stays as it is: it becomes a segment of the topic that most of
//! it is about, and only an index is written beside it.
//!
//! Moving the events of one busy topic into a segment would write each of them a second time, from a file of
//! about the same size and order. What lies between the rows of records, the heads of frames and what is
//! about others, stays in the file and is passed over.

use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;

use prombus_proto::{Timestamp, Topic};

use crate::disk::checkpoint::SealedWal;
use crate::disk::file_header::{self, SPARSE_INDEX};
use crate::disk::layout::{Layout, ignore_missing};
use crate::disk::options::DiskOptions;
use crate::disk::read::topic_view::{Content, Segment, WalPiece};
use crate::disk::record::RecordSeed;
use crate::disk::record::walk::RecordRange;
use crate::disk::segment::sparse_index::IndexEntry;
use crate::disk::wal::file::WalFile;
use crate::disk::wal::frame::{End, FrameHead};

/// Whether `pieces`, which are all of a topic in the log file `sealed`, are worth keeping it as it is, behind
/// the `segments` that the topic has.
pub(crate) fn is_worth_keeping(
    sealed: &SealedWal,
    pieces: &[WalPiece],
    segments: &[Segment],
    options: &DiskOptions,
) -> bool {
    let Some(first) = pieces.first() else { return false };
    let (rows, record_bytes) = (pieces.len() as u64, record_bytes(pieces));
    let in_a_row = pieces.windows(2).all(|two| two[0].last().next() == two[1].first);
    let here = pieces.iter().all(|piece| piece.file.number == sealed.file.number);
    // What segments have already is passed over when it is moved, and their files are not to be replaced.
    let is_new = segments.last().is_none_or(|segment| segment.last < first.first);
    // Of a damaged file only what is sound is moved.
    !sealed.damaged
        && here
        && in_a_row
        && is_new
        && record_bytes / rows >= options.kept_row_bytes
        && record_bytes >= sealed.end / 2
        && (options.segment_bytes / 4..=options.segment_bytes).contains(&sealed.end)
}

/// Makes the log file `sealed` the next segment of `topic`, whose events in it are `pieces`. Answers the
/// segment, and what has to be synced before it counts; nothing where the filesystem cannot give the file a
/// second name.
pub(crate) fn keep(
    layout: &Layout,
    topic: &Topic,
    sealed: &SealedWal,
    pieces: &[WalPiece],
    newest_id: u128,
    now: Timestamp,
) -> io::Result<Option<(Segment, Vec<PathBuf>)>> {
    let (Some(first), Some(last)) = (pieces.first(), pieces.last()) else { return Ok(None) };
    let mut index = file_header::encode(SPARSE_INDEX, first.first.0).to_vec();
    let mut latest_ts = Timestamp(0);
    for piece in pieces {
        let entry = IndexEntry {
            seq: piece.first,
            offset: piece.offset,
            latest_ts_before: latest_ts,
            newest_id_before: piece.newest_id_before,
        };
        entry.append_to(&mut index);
        latest_ts = latest_ts.max(piece.latest_ts);
    }
    let (path, index_path) =
        (layout.segment(topic, first.first), layout.sparse_index(topic, first.first));
    fs::create_dir_all(layout.topic(topic))?;
    // What an unfinished checkpoint left behind.
    ignore_missing(fs::remove_file(&path))?;
    match fs::hard_link(&sealed.file.path, &path) {
        Err(error) if has_no_second_names(&error) => return Ok(None),
        linked => linked?,
    }
    File::create(&index_path)?.write_all(&index)?;
    // Gives back the room that was taken ahead.
    sealed.file.cut(sealed.end)?;
    let segment = Segment {
        first: first.first,
        last: last.last(),
        end: last.end(),
        latest_ts,
        newest_id,
        index_entries: u32::try_from(pieces.len()).expect("a log file has few pieces"),
        begun: now,
        content: Content::Frames { first_record: first.offset, record_bytes: record_bytes(pieces) },
    };
    Ok(Some((segment, vec![path, index_path, layout.topic(topic), layout.topics()])))
}

fn record_bytes(pieces: &[WalPiece]) -> u64 {
    pieces.iter().map(|piece| u64::from(piece.bytes)).sum()
}

fn has_no_second_names(error: &io::Error) -> bool {
    use io::ErrorKind::{CrossesDevices, PermissionDenied, TooManyLinks, Unsupported};
    matches!(error.kind(), CrossesDevices | PermissionDenied | TooManyLinks | Unsupported)
}

/// The rows of records of `topic` in the kept log `file`, as far as the heads of its frames tell.
pub(crate) fn rows_of(file: &File, end: u64, topic: &Topic, seed: RecordSeed) -> Vec<RecordRange> {
    let mut rows = Vec::new();
    let mut offset = WalFile::first_frame_offset();
    while offset < end
        && let Some(head) = head_at(file, offset)
    {
        let mut start = offset + head.head_bytes() as u64;
        for run in &head.runs {
            let end = start + u64::from(run.bytes);
            if run.topic == *topic && run.count > 0 {
                let last = run.first.plus(u64::from(run.count)).previous();
                rows.push(RecordRange { seed, start, end, first: run.first, last });
            }
            start = end;
        }
        offset += head.frame_bytes();
    }
    rows
}

fn head_at(file: &File, offset: u64) -> Option<FrameHead> {
    let mut beginning = [0; 8];
    file.read_exact_at(&mut beginning, offset).ok()?;
    let claimed = FrameHead::claimed_head_bytes(&beginning)?;
    // A damaged length must not ask for more than there is.
    let left = file.metadata().ok()?.len().saturating_sub(offset);
    let mut head = vec![0; claimed.min(usize::try_from(left).unwrap_or(usize::MAX))];
    file.read_exact_at(&mut head, offset).ok()?;
    match FrameHead::decode(&head)? {
        (End::Head, head) => Some(head),
        (End::Foot, _) => None,
    }
}
