//! Replays WAL files into the view and the id tables.

use std::collections::BTreeSet;
use std::io;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;

use prombus_proto::{EventId, Seq, Topic};
use uuid::Uuid;

use super::{failed, wrong_number};
use crate::disk::checkpoint::catalog::Catalog;
use crate::disk::checkpoint::sealed_wal::{SealedWal, TouchedTopic};
use crate::disk::ids::IdEntry;
use crate::disk::ids::ahead::{IdLimit, NewestIds};
use crate::disk::ids::recent::{MonotonicId, RecentIds};
use crate::disk::read::topic_view::TopicView;
use crate::disk::shared::Shared;
use crate::disk::storage::file_header::{self, HeaderFault, WAL};
use crate::disk::storage::quarantine::copy_to_quarantine;
use crate::disk::wal::file::WalFile;
use crate::disk::wal::frame::Deletion;
use crate::disk::wal::read_ahead::read_ahead;
use crate::disk::wal::scan::{ScanStep, WalScan};
use crate::disk::wal::scanned_frame::{ScannedFrame, ScannedIds};
use crate::{Incident, OpenError};

/// The largest allocation unit of a filesystem that we expect.
const BLOCK_BYTES: u64 = 64 << 10;

/// Replays WAL files, oldest first.
pub(super) struct WalReplay<'a> {
    shared: &'a Shared,
    pub(super) next_frame: u64,
    pub(super) last_version: u64,
    /// The end of the last file, unless known damage explains why frames are missing after it.
    end: Option<(PathBuf, u64)>,
}

/// What one WAL file contains.
#[derive(Default)]
struct ReplayedWal {
    touched: BTreeSet<Topic>,
    ids: RecentIds,
    damaged: bool,
}

impl<'a> WalReplay<'a> {
    pub(super) fn new(shared: &'a Shared, catalog: &Catalog) -> Self {
        let (next_frame, last_version) = (catalog.next_frame, catalog.last_version);
        Self { shared, next_frame, last_version, end: None }
    }

    /// Missing frames before the next file are not reported again.
    pub(super) fn expect_gap(&mut self) {
        self.end = None;
    }

    /// Replays the WAL file `number`.
    pub(super) fn replay(&mut self, number: u64, is_newest: bool) -> Result<SealedWal, OpenError> {
        let path = self.shared.layout.wal_file(number);
        let faults = Arc::clone(&self.shared.options.faults);
        let file = WalFile::open(&self.shared.layout, number, faults).map_err(failed(&path))?;
        let file = Arc::new(file);
        let mut replayed = ReplayedWal::default();
        let end = file.end_of_data().map_err(failed(&path))?;
        let has_header = self.check_header(&file, end, is_newest)?;
        let from = self.replay_intact_frames(&file, end, &mut replayed).map_err(failed(&path))?;
        self.replay_rest(&file, from..end, is_newest, &mut replayed)?;
        if file.unreadable_bytes() > 0 {
            replayed.damaged = true;
            let (path, bytes) = (path.clone(), file.unreadable_bytes());
            self.shared.report(Incident::DamagedLog { file: path, offset: 0, bytes });
        }
        if !has_header {
            // A crash tore it. The name of the file says all that it does, but backups copy no damage. If it cannot
            // be written, only they notice.
            let _ = file.write_at(0, &[&file_header::encode(WAL, number)]);
        }
        // The last process may have left unsynced frames, which readers see from now on.
        file.sync().map_err(failed(&path))?;
        // A torn tail was truncated.
        let end = file.end_of_data().map_err(failed(&path))?;
        self.shared.view_mut().wal_ends.insert(number, end);
        let view = self.shared.view();
        let touched = replayed.touched.into_iter().map(|topic| {
            let touched = TouchedTopic::of(&view.topics[&topic]);
            (topic, touched)
        });
        let ids = Arc::new(replayed.ids);
        let sealed = SealedWal {
            file,
            touched: touched.collect(),
            ids: Arc::clone(&ids),
            end,
            next_frame: self.next_frame,
            last_version: self.last_version,
            damaged: replayed.damaged,
        };
        drop(view);
        self.shared.ids_mut().index.sealed.push(ids);
        Ok(sealed)
    }

    /// Returns `true` if the header is intact.
    fn check_header(&self, file: &WalFile, end: u64, is_newest: bool) -> Result<bool, OpenError> {
        let path = &file.path;
        let first_frame = WalFile::first_frame_offset();
        let mut header = Vec::new();
        file.read_range(0, end.min(first_frame), &mut header).map_err(failed(path))?;
        match file_header::decode(WAL, &header) {
            Ok(found) if found != file.number => Err(wrong_number(path)),
            Ok(_) => Ok(true),
            Err(fault @ HeaderFault::Newer { .. }) => Err(fault.into_open_error(path)),
            // A crash while the file was created: nothing was ever written to it.
            Err(_) if is_newest && end <= BLOCK_BYTES && header.iter().all(|byte| *byte == 0) => {
                Ok(false)
            }
            Err(HeaderFault::Damaged(detail)) => {
                self.shared.report_rebuilt(path, detail);
                Ok(false)
            }
        }
    }

    /// Replays frames up to the first damaged one and returns its offset. For most files that is
    /// everything, and takes little longer than reading them.
    fn replay_intact_frames(
        &mut self,
        file: &Arc<WalFile>,
        end: u64,
        replayed: &mut ReplayedWal,
    ) -> io::Result<u64> {
        let mut offset = WalFile::first_frame_offset().min(end);
        read_ahead(file, offset..end, |mut chunks| {
            let mut consumed = 0;
            while chunks.advance(consumed)? {
                let mut scan = WalScan::new(chunks.bytes(), offset, self.next_frame, false);
                while let Some(frame) = scan.next_intact_frame() {
                    self.apply(file, frame, replayed);
                }
                consumed = scan.scanned();
                if consumed == 0 && !scan.is_cut_off() {
                    break;
                }
                offset += consumed as u64;
            }
            Ok(offset)
        })
    }

    /// Replays the rest of the file, from the first damage on.
    fn replay_rest(
        &mut self,
        file: &Arc<WalFile>,
        range: Range<u64>,
        is_newest: bool,
        replayed: &mut ReplayedWal,
    ) -> Result<(), OpenError> {
        let Range { start: from, end } = range;
        let mut rest = Vec::new();
        file.read_range(from, end, &mut rest).map_err(failed(&file.path))?;
        // Whether everything in the file was completely written.
        let mut is_complete = !is_newest;
        let mut scan = WalScan::new(&rest, from, self.next_frame, is_complete);
        loop {
            match scan.next_step() {
                ScanStep::Frame(frame) => self.apply(file, frame, replayed),
                ScanStep::Damage { offset, bytes } => {
                    self.end = None;
                    replayed.damaged = true;
                    let file = file.path.clone();
                    self.shared.report(Incident::DamagedLog { file, offset, bytes });
                }
                ScanStep::Torn { offset } if !is_complete => {
                    let torn = &rest[usize::try_from(offset - from).unwrap_or(usize::MAX)..];
                    if file.is_readable(offset, torn.len()).map_err(failed(&file.path))? {
                        return self.truncate_torn_tail(file, offset, torn);
                    }
                    // Nothing tells an unfinished batch from acknowledged ones on a bad medium. What
                    // can be read of them is kept.
                    is_complete = true;
                    scan = WalScan::new(torn, offset, self.next_frame, is_complete);
                }
                ScanStep::Torn { offset } => {
                    // Later files exist, so this one was complete once, or it cannot be read.
                    replayed.damaged = true;
                    let (file, bytes) = (file.path.clone(), end - offset);
                    self.shared.report(Incident::DamagedLog { file, offset, bytes });
                    self.end = None;
                    return Ok(());
                }
                ScanStep::End => {
                    self.end = Some((file.path.clone(), end));
                    return Ok(());
                }
            }
        }
    }

    fn truncate_torn_tail(
        &self,
        file: &WalFile,
        offset: u64,
        torn: &[u8],
    ) -> Result<(), OpenError> {
        let written = torn.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
        let copy = copy_to_quarantine(&self.shared.layout, &file.path, offset, &torn[..written])
            .map_err(failed(&file.path))?;
        file.truncate(offset).map_err(failed(&file.path))?;
        self.shared.report(Incident::TornTail {
            file: file.path.clone(),
            kept_bytes: offset,
            cut_bytes: written as u64,
            copy,
        });
        Ok(())
    }

    fn apply(&mut self, file: &Arc<WalFile>, frame: ScannedFrame, replayed: &mut ReplayedWal) {
        if let Some((file, offset)) =
            self.end.take().filter(|_| frame.header.number > self.next_frame)
        {
            self.shared.report(Incident::DamagedLog { file, offset, bytes: 0 });
        }
        self.next_frame = frame.header.number + 1;
        self.last_version = self.last_version.max(frame.header.last_version.0);
        self.report_damage(file, &frame, replayed);
        let mut view = self.shared.view_mut();
        let limit = IdLimit::of_frame(frame.header.arrived);
        let mut newest_ids = Vec::with_capacity(frame.header.sections.len());
        for (section, ids) in frame.header.sections.iter().zip(&frame.ids) {
            let topic = view.topic_mut(&section.topic);
            let follows = |deletion: &Deletion| {
                deletion.topic == section.topic && deletion.below >= section.first
            };
            if section.first > topic.next && frame.header.deletions.iter().any(follows) {
                // A checkpoint has removed the deleted topic from the catalog.
                topic.delete(section.first);
            }
            if section.first > topic.next {
                let last = section.first.previous();
                self.report_lost_events(file, &section.topic, topic.next, last);
                replayed.damaged = true;
            }
            newest_ids.push(add_ids(topic, ids, limit, &mut replayed.ids));
        }
        let state = frame.state.unwrap_or_default();
        view.apply(file, &frame.header, &frame.extents, &newest_ids, state);
        let trimmed = frame.header.trims.iter().map(|trim| &trim.topic);
        let deleted = frame.header.deletions.iter().map(|deletion| &deletion.topic);
        let appended = frame.header.sections.iter().map(|section| &section.topic);
        for topic in appended.chain(trimmed).chain(deleted) {
            if !replayed.touched.contains(topic) {
                replayed.touched.insert(topic.clone());
            }
        }
    }

    fn report_damage(&self, file: &WalFile, frame: &ScannedFrame, replayed: &mut ReplayedWal) {
        for lost in &frame.damaged_events {
            replayed.damaged = true;
            self.report_lost_events(file, &lost.topic, lost.first, lost.last);
        }
        if frame.state.is_none() {
            replayed.damaged = true;
            let detail = format!("frame {} of {}", frame.header.number, file.path.display());
            self.shared.report(Incident::DamagedState { detail });
        }
        if frame.lost_an_end {
            let detail = format!("the header or footer of frame {}", frame.header.number);
            self.shared.report_rebuilt(&file.path, detail);
        }
    }

    fn report_lost_events(&self, file: &WalFile, topic: &Topic, first: Seq, last: Seq) {
        self.shared.report(Incident::DamagedEvents {
            topic: topic.clone(),
            first,
            last,
            file: file.path.clone(),
            detail: "no valid record".to_owned(),
        });
    }
}

/// Adds the ids of a section to `table` and returns the newest ids of the topic.
fn add_ids(
    topic: &TopicView,
    ids: &ScannedIds,
    limit: IdLimit,
    table: &mut RecentIds,
) -> NewestIds {
    let (ordinal, seed) = (topic.ordinal, topic.id_seed);
    for (id, seq) in &ids.others {
        table.insert(IdEntry { hash: seed.hash(id), topic: ordinal, seq: *seq }, None);
    }
    let mut newest = topic.newest_ids;
    if ids.is_monotonic
        && ids.time_ordered.first().is_none_or(|first| first.id() > newest.monotonic)
        && ids.time_ordered.last().is_none_or(|last| limit.allows(last.id()))
    {
        table.add_monotonic(ordinal, &ids.time_ordered);
        newest.monotonic = ids.time_ordered.last().map_or(newest.monotonic, MonotonicId::id);
        return newest;
    }
    for found in &ids.time_ordered {
        if newest.add(found.id(), limit) {
            table.add_monotonic(ordinal, std::slice::from_ref(found));
        } else {
            let id = EventId::from_uuid(Uuid::from_u128(found.id()));
            let entry = IdEntry { hash: seed.hash(&id), topic: ordinal, seq: found.seq() };
            table.insert(entry, Some(found.id()));
        }
    }
    newest
}
