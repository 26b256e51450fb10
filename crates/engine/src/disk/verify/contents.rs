//! Which files a catalog names, and what each of them has to contain.

use std::collections::BTreeMap;

use prombus_proto::Seq;

use crate::disk::checkpoint::catalog::Catalog;
use crate::disk::ids::run::IdRunInfo;
use crate::disk::record::RecordSeed;
use crate::disk::segment::SegmentContent;
use crate::disk::segment::sparse_index::entry_offset;
use crate::disk::sorted_runs::filter::BLOCK_BYTES;
use crate::disk::state::run::StateRunInfo;
use crate::disk::storage::store_file::StoreFile;

/// What a file has to contain.
#[derive(Clone, Debug)]
pub(crate) enum Content {
    /// Frames of the write-ahead log, the first one with this number if it is known.
    Log {
        first_frame: Option<u64>,
    },
    /// The frames of a WAL file that became a segment, at least up to `end`.
    Adopted {
        end: u64,
    },
    /// Records, one after the other or with gaps in between.
    Records(Vec<RecordRun>),
    SparseIndex {
        entries: u32,
    },
    IdRun(IdRunInfo),
    StateRun(StateRunInfo),
}

/// Consecutive records of one topic.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RecordRun {
    pub(crate) start: u64,
    pub(crate) end: u64,
    pub(crate) seed: RecordSeed,
    pub(crate) first: Seq,
    pub(crate) last: Seq,
}

/// How long a file is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Length {
    /// The catalog tells. Whatever follows does not count.
    Known(u64),
    /// The file has nothing but its content, of at least this length.
    AtLeast(u64),
}

impl Content {
    pub(crate) fn length(&self) -> Length {
        match self {
            Self::Log { .. } => Length::AtLeast(0),
            Self::Adopted { end } => Length::AtLeast(*end),
            Self::Records(runs) => Length::Known(runs.last().map_or(0, |run| run.end)),
            Self::SparseIndex { entries } => Length::Known(entry_offset(*entries)),
            Self::IdRun(info) => Length::AtLeast(info.least_bytes()),
            Self::StateRun(info) => {
                Length::Known(info.filter + info.filter_blocks * BLOCK_BYTES as u64)
            }
        }
    }
}

/// Returns the files that `catalog` names. Those of the write-ahead log are not among them.
pub(crate) fn named_files(catalog: &Catalog) -> BTreeMap<StoreFile, Content> {
    let mut files = BTreeMap::new();
    let mut packs: BTreeMap<u64, Vec<RecordRun>> = BTreeMap::new();
    for (topic, row) in &catalog.topics {
        let seed = RecordSeed::of(topic);
        for segment in &row.segments {
            let run = RecordRun {
                start: segment.first_record(),
                end: segment.end,
                seed,
                first: segment.first,
                last: segment.last,
            };
            let content = match segment.content {
                SegmentContent::Packed { pack, .. } => {
                    packs.entry(pack).or_default().push(run);
                    continue;
                }
                SegmentContent::Records => Content::Records(vec![run]),
                SegmentContent::Frames { .. } => Content::Adopted { end: segment.end },
            };
            files.insert(StoreFile::Segment(topic.clone(), segment.first), content);
            if segment.index_entries > 0 {
                let index = Content::SparseIndex { entries: segment.index_entries };
                files.insert(StoreFile::SparseIndex(topic.clone(), segment.first), index);
            }
        }
    }
    for (number, mut runs) in packs {
        runs.sort_unstable_by_key(|run| run.start);
        files.insert(StoreFile::Pack(number), Content::Records(runs));
    }
    let ids =
        catalog.id_runs.iter().map(|run| (StoreFile::IdRun(run.number), Content::IdRun(*run)));
    files.extend(ids);
    let state = catalog.state_runs.iter();
    files.extend(state.map(|run| (StoreFile::StateRun(run.number), Content::StateRun(*run))));
    files
}

/// More than any store has of anything.
const IMPOSSIBLE: u64 = 1 << 56;

/// Returns an error if the fields of a catalog contradict each other. Its checksum does not tell who wrote
/// it.
pub(crate) fn check_plausible(catalog: &Catalog) -> Result<(), String> {
    let numbers =
        [catalog.checkpoint, catalog.checkpointed_wal, catalog.next_frame, catalog.next_run];
    if numbers.iter().any(|number| *number >= IMPOSSIBLE) {
        return Err("its numbers are impossible".to_owned());
    }
    let ids =
        catalog.id_runs.iter().map(|run| [run.number, run.home_pages.saturating_mul(1 << 14)]);
    let state = catalog.state_runs.iter();
    let state = state.map(|run| [run.number, run.filter.max(run.filter_blocks.saturating_mul(64))]);
    if ids.chain(state).flatten().any(|number| number >= IMPOSSIBLE) {
        return Err("its sorted runs are impossible".to_owned());
    }
    for (topic, row) in &catalog.topics {
        let mut next = Seq::ZERO;
        for segment in &row.segments {
            let is_plausible = next <= segment.first
                && segment.first <= segment.last
                && segment.last < row.next
                && segment.first_record() <= segment.end
                && segment.end < IMPOSSIBLE
                && segment.pack().is_none_or(|pack| pack < IMPOSSIBLE);
            if !is_plausible || row.next.0 >= IMPOSSIBLE {
                return Err(format!("the segments of {topic} are impossible"));
            }
            next = segment.last.next();
        }
    }
    Ok(())
}
