//! Opening a store: the catalog first, then all that the write-ahead log has beyond it.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use prombus_proto::{EventId, Seq, Topic};
use uuid::Uuid;

use crate::disk::checkpoint::catalog::Catalog;
use crate::disk::checkpoint::{SealedWal, TouchedTopic};
use crate::disk::file_cache::read_header;
use crate::disk::file_header::{self, FileKind, HeaderFault, SPARSE_INDEX, WAL};
use crate::disk::ids::IdPlace;
use crate::disk::ids::recent::{RecentIds, RisingId};
use crate::disk::ids::run::IdRun;
use crate::disk::journal::JournalStart;
use crate::disk::layout::Layout;
use crate::disk::options::DiskOptions;
use crate::disk::read::topic_view::TopicView;
use crate::disk::read::view::View;
use crate::disk::shared::Shared;
use crate::disk::state::KeyedRuns;
use crate::disk::state::run::StateRun;
use crate::disk::wal::file::{WalFile, keep_copy};
use crate::disk::wal::read_ahead::read_ahead;
use crate::disk::wal::scan::{ScannedFrame, ScannedIds, Step, WalScan};
use crate::{Incident, OpenError};

/// More commits that store nothing than one process makes before it crashes.
const VERSIONS_PER_RUN: u64 = 1 << 32;

/// What a filesystem allocates at least.
const BLOCK_BYTES: u64 = 64 << 10;

/// A store as it was found.
pub(crate) struct Recovered {
    pub(crate) shared: Shared,
    pub(crate) catalog: Catalog,
    /// Log files that have to be moved.
    pub(crate) sealed: Vec<SealedWal>,
    pub(crate) start: JournalStart,
}

/// Reads the store in `options.folder`, or makes an empty one.
pub(crate) fn recover(options: &DiskOptions, layout: Layout) -> Result<Recovered, OpenError> {
    let found = Catalog::load(&layout)?;
    layout.create_folders().map_err(failed(layout.root()))?;
    let (catalog, incidents) = match found {
        Some(found) => found,
        None => (make_empty(&layout)?, Vec::new()),
    };
    let mut view = View::new(catalog.store_seed);
    show_catalog(&catalog, &mut view);
    let shared = Shared::new(layout, options.clone(), view);
    incidents.into_iter().for_each(|incident| shared.report(incident));
    report_quarantine(&shared)?;
    open_runs(&shared, &catalog)?;
    check_segments(&shared, &catalog)?;
    let mut recovery = Recovery {
        next_frame: catalog.next_frame,
        last_version: catalog.last_version,
        shared: &shared,
        end: None,
    };
    let mut sealed = Vec::new();
    let numbers = wal_numbers(&shared, &catalog)?;
    for (index, number) in numbers.iter().enumerate() {
        let is_newest = index + 1 == numbers.len();
        if index > 0 && numbers[index - 1] + 1 != *number {
            // A missing file is reported; what it held is missed, too.
            recovery.end = None;
        }
        sealed.push(recovery.wal(*number, is_newest)?);
    }
    let start = JournalStart {
        next_wal: numbers.last().copied().unwrap_or(0).max(catalog.moved_wal) + 1,
        next_frame: recovery.next_frame,
        // Commits that stored nothing before a crash got versions, too, which no file knows of.
        last_version: recovery.last_version + VERSIONS_PER_RUN,
    };
    Ok(Recovered { shared, catalog, sealed, start })
}

fn failed(path: &Path) -> impl Fn(io::Error) -> OpenError + '_ {
    |source| OpenError::Io { path: path.to_owned(), source }
}

/// A sound file, but another one than its name says: whatever it tells is about something else.
fn of_another_number(path: &Path) -> OpenError {
    let detail = "its header belongs to a file of another number".to_owned();
    OpenError::Damaged { path: path.to_owned(), detail }
}

fn make_empty(layout: &Layout) -> Result<Catalog, OpenError> {
    let seed = uuid::Uuid::new_v4().as_u64_pair().0;
    let catalog = Catalog::new(seed);
    catalog.store(layout).map_err(failed(&layout.catalog()))?;
    Ok(catalog)
}

fn show_catalog(catalog: &Catalog, view: &mut View) {
    for (name, topic) in &catalog.topics {
        view.add_topic(name, topic.ordinal);
        let shown = view.topic_mut(name);
        shown.first = topic.first;
        shown.next = topic.next;
        shown.newest_time_ordered = topic.newest_time_ordered;
        shown.rule = topic.rule;
        shown.set_segments(topic.segments.clone());
    }
}

fn open_runs(shared: &Shared, catalog: &Catalog) -> Result<(), OpenError> {
    let mut state = KeyedRuns::default();
    for info in &catalog.state_runs {
        let path = shared.layout.state_run(info.number);
        let run = StateRun::open(path.clone(), *info).map_err(failed(&path))?;
        match run.check_header() {
            Ok(number) if number != info.number => return Err(of_another_number(&path)),
            Ok(_) => {}
            Err(fault @ HeaderFault::Newer { .. }) => return Err(fault.into_open_error(&path)),
            Err(HeaderFault::Damaged(detail)) => shared.report_rebuilt(&path, detail),
        }
        state.runs.push(Arc::new(run));
    }
    shared.set_keyed(state);
    for info in &catalog.id_runs {
        let path = shared.layout.id_run(info.number);
        let mut run = match IdRun::open(path.clone(), *info) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                shared.ids_wanted.store(true, Ordering::SeqCst);
                shared.report_rebuilt(&path, "missing");
                IdRun::missing(path, *info)
            }
            run => run.map_err(failed(&path))?,
        };
        match run.check_header() {
            Err(fault @ HeaderFault::Newer { .. }) => {
                return Err(fault.into_open_error(&run.path));
            }
            Err(HeaderFault::Damaged(detail)) => {
                shared.report_rebuilt(&run.path, detail);
            }
            Ok(()) => {}
        }
        shared.ids_mut().index.runs.push(Arc::new(run));
    }
    Ok(())
}

/// Reports damaged log files of earlier starts: what they lost is still lost.
fn report_quarantine(shared: &Shared) -> Result<(), OpenError> {
    let folder = shared.layout.quarantine();
    for number in Layout::numbered(&folder, "wal").map_err(failed(&folder))? {
        let name = shared.layout.wal_file(number);
        let file = folder.join(name.file_name().unwrap_or_default());
        shared.report(Incident::InQuarantine { file });
    }
    Ok(())
}

/// Reports segments that are not there or cut off; what of them can be read is read. Refuses those
/// of a newer version, before anything is appended to them.
fn check_segments(shared: &Shared, catalog: &Catalog) -> Result<(), OpenError> {
    for (topic, row) in &catalog.topics {
        for segment in row.segments.iter().filter(|segment| segment.last >= row.first) {
            let file = shared.layout.segment(topic, segment.first);
            let found = length_of(shared, &file, segment.file_kind())?;
            if found < segment.end {
                shared.report(Incident::DamagedEvents {
                    topic: topic.clone(),
                    first: segment.first,
                    last: segment.last,
                    file,
                    detail: format!("{found} bytes of {} are left", segment.end),
                });
            }
            if segment.index_entries > 0 {
                let file = shared.layout.sparse_index(topic, segment.first);
                if length_of(shared, &file, SPARSE_INDEX)? == 0 {
                    shared.report_rebuilt(&file, "missing");
                }
            }
        }
    }
    Ok(())
}

/// How long a file is, which should be of `kind`; one that is not there has no length.
fn length_of(shared: &Shared, path: &Path, kind: FileKind) -> Result<u64, OpenError> {
    let file = match File::open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(0),
        file => file.map_err(failed(path))?,
    };
    match read_header(&file, kind).map_err(failed(path))? {
        Err(fault @ HeaderFault::Newer { .. }) => return Err(fault.into_open_error(path)),
        Err(HeaderFault::Damaged(detail)) => shared.report_rebuilt(path, detail),
        Ok(_) => {}
    }
    Ok(file.metadata().map_err(failed(path))?.len())
}

/// The log files that have to be read, oldest first. Those that were moved before are removed.
fn wal_numbers(shared: &Shared, catalog: &Catalog) -> Result<Vec<u64>, OpenError> {
    let folder = shared.layout.wal();
    let mut numbers = Layout::numbered(&folder, "wal").map_err(failed(&folder))?;
    for moved in numbers.iter().filter(|number| **number <= catalog.moved_wal) {
        let path = shared.layout.wal_file(*moved);
        fs::remove_file(&path).map_err(failed(&path))?;
    }
    numbers.retain(|number| *number > catalog.moved_wal);
    let mut expected = catalog.moved_wal + 1;
    for number in &numbers {
        for missing in expected..*number {
            let file = shared.layout.wal_file(missing);
            shared.report(Incident::DamagedLog { file, offset: 0, bytes: 0 });
        }
        expected = number + 1;
    }
    Ok(numbers)
}

struct Recovery<'a> {
    shared: &'a Shared,
    next_frame: u64,
    last_version: u64,
    /// Where the last file ended, as long as nothing damaged explains why a frame is missing
    /// behind that.
    end: Option<(PathBuf, u64)>,
}

impl Recovery<'_> {
    /// Reads a log file and shows what it holds.
    fn wal(&mut self, number: u64, is_newest: bool) -> Result<SealedWal, OpenError> {
        let path = self.shared.layout.wal_file(number);
        let faults = Arc::clone(&self.shared.options.faults);
        let file = WalFile::open(&self.shared.layout, number, faults).map_err(failed(&path))?;
        let file = Arc::new(file);
        let mut found = FoundInWal::default();
        let end = file.end_of_data().map_err(failed(&path))?;
        self.check_header(&file, end, is_newest)?;
        let from = self.scan_whole_frames(&file, end, &mut found).map_err(failed(&path))?;
        self.scan_the_rest(&file, from..end, is_newest, &mut found)?;
        // What the last process only handed to the operating system is acknowledged from now on.
        file.sync().map_err(failed(&path))?;
        // Again: what was torn is cut off.
        let end = file.end_of_data().map_err(failed(&path))?;
        let view = self.shared.view();
        let touched = found.touched.into_iter().map(|topic| {
            let touched = TouchedTopic::of(&view.topics[&topic]);
            (topic, touched)
        });
        let ids = Arc::new(found.ids);
        let sealed = SealedWal {
            file,
            touched: touched.collect(),
            ids: Arc::clone(&ids),
            end,
            next_frame: self.next_frame,
            last_version: self.last_version,
            damaged: found.damaged,
        };
        drop(view);
        self.shared.ids_mut().index.sealed.push(ids);
        Ok(sealed)
    }

    fn check_header(&self, file: &WalFile, end: u64, is_newest: bool) -> Result<(), OpenError> {
        let path = &file.path;
        let first_frame = WalFile::first_frame_offset();
        let mut header = Vec::new();
        file.read_range(0, end.min(first_frame), &mut header).map_err(failed(path))?;
        match file_header::decode(WAL, &header) {
            Ok(found) if found != file.number => Err(of_another_number(path)),
            Ok(_) => Ok(()),
            Err(fault @ HeaderFault::Newer { .. }) => Err(fault.into_open_error(path)),
            // A crash while the file was made: nothing was ever in it.
            Err(_) if is_newest && end <= BLOCK_BYTES && header.iter().all(|byte| *byte == 0) => {
                Ok(())
            }
            Err(HeaderFault::Damaged(detail)) => {
                self.shared.report_rebuilt(path, detail);
                Ok(())
            }
        }
    }

    /// Shows the frames that are as they were written, up to the first that is not, and answers
    /// where that is. That is all of most files, and it takes little more than reading them.
    fn scan_whole_frames(
        &mut self,
        file: &Arc<WalFile>,
        end: u64,
        found: &mut FoundInWal,
    ) -> io::Result<u64> {
        let mut offset = WalFile::first_frame_offset().min(end);
        read_ahead(file, offset..end, |mut parts| {
            let mut passed = 0;
            while parts.advance(passed)? {
                let mut scan = WalScan::new(parts.bytes(), offset, self.next_frame, false);
                while let Some(frame) = scan.next_whole_frame() {
                    self.frame(file, frame, found);
                }
                passed = scan.passed();
                if passed == 0 && !scan.is_cut_off() {
                    break;
                }
                offset += passed as u64;
            }
            Ok(offset)
        })
    }

    /// Goes through what is not in order, if anything is.
    fn scan_the_rest(
        &mut self,
        file: &Arc<WalFile>,
        range: Range<u64>,
        is_newest: bool,
        found: &mut FoundInWal,
    ) -> Result<(), OpenError> {
        let Range { start: from, end } = range;
        let mut rest = Vec::new();
        file.read_range(from, end, &mut rest).map_err(failed(&file.path))?;
        let mut scan = WalScan::new(&rest, from, self.next_frame, !is_newest);
        loop {
            match scan.next_step() {
                Step::Frame(frame) => self.frame(file, frame, found),
                Step::Damage { offset, bytes } => {
                    self.end = None;
                    found.damaged = true;
                    let file = file.path.clone();
                    self.shared.report(Incident::DamagedLog { file, offset, bytes });
                }
                Step::Torn { offset } if is_newest => {
                    let torn = &rest[usize::try_from(offset - from).unwrap_or(usize::MAX)..];
                    return self.cut_off(file, offset, torn);
                }
                Step::Torn { offset } => {
                    // There are later files: this was finished once.
                    found.damaged = true;
                    let (file, bytes) = (file.path.clone(), end - offset);
                    self.shared.report(Incident::DamagedLog { file, offset, bytes });
                    self.end = None;
                    return Ok(());
                }
                Step::End => {
                    self.end = Some((file.path.clone(), end));
                    return Ok(());
                }
            }
        }
    }

    fn cut_off(&self, file: &WalFile, offset: u64, torn: &[u8]) -> Result<(), OpenError> {
        let written = torn.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
        let copy = keep_copy(&self.shared.layout, &file.path, offset, &torn[..written])
            .map_err(failed(&file.path))?;
        file.cut(offset).map_err(failed(&file.path))?;
        self.shared.report(Incident::TornTail {
            file: file.path.clone(),
            kept_bytes: offset,
            cut_bytes: written as u64,
            copy,
        });
        Ok(())
    }

    fn frame(&mut self, file: &Arc<WalFile>, frame: ScannedFrame, found: &mut FoundInWal) {
        if let Some((file, offset)) =
            self.end.take().filter(|_| frame.head.number > self.next_frame)
        {
            self.shared.report(Incident::DamagedLog { file, offset, bytes: 0 });
        }
        self.next_frame = frame.head.number + 1;
        self.last_version = self.last_version.max(frame.head.last_version.0);
        self.report_damage(file, &frame, found);
        let mut view = self.shared.view_mut();
        let mut newest_time_ordered = Vec::with_capacity(frame.head.runs.len());
        for (run, ids) in frame.head.runs.iter().zip(&frame.ids) {
            let topic = view.topic_mut(&run.topic);
            if run.first > topic.next {
                self.report_gap(file, &run.topic, topic.next, run.first.previous());
                found.damaged = true;
            }
            newest_time_ordered.push(add_ids(topic, ids, &mut found.ids));
        }
        let state = frame.state.unwrap_or_default();
        view.apply(file, &frame.head, &frame.pieces, &newest_time_ordered, state);
        let trimmed = frame.head.trims.iter().map(|trim| &trim.topic);
        for topic in frame.head.runs.iter().map(|run| &run.topic).chain(trimmed) {
            if !found.touched.contains(topic) {
                found.touched.insert(topic.clone());
            }
        }
    }

    fn report_damage(&self, file: &WalFile, frame: &ScannedFrame, found: &mut FoundInWal) {
        for lost in &frame.damaged_events {
            found.damaged = true;
            self.report_gap(file, &lost.topic, lost.first, lost.last);
        }
        if frame.state.is_none() {
            found.damaged = true;
            let detail = format!("frame {} of {}", frame.head.number, file.path.display());
            self.shared.report(Incident::DamagedState { detail });
        }
        if frame.lost_an_end {
            let detail = format!("an end of frame {}", frame.head.number);
            self.shared.report_rebuilt(&file.path, detail);
        }
    }

    fn report_gap(&self, file: &WalFile, topic: &Topic, first: Seq, last: Seq) {
        self.shared.report(Incident::DamagedEvents {
            topic: topic.clone(),
            first,
            last,
            file: file.path.clone(),
            detail: "no record that fits".to_owned(),
        });
    }
}

/// Makes the ids of a run known, and answers the newest UUIDv7 of the topic.
fn add_ids(topic: &TopicView, ids: &ScannedIds, known: &mut RecentIds) -> u128 {
    let (ordinal, seed) = (topic.ordinal, topic.id_seed);
    for (id, seq) in &ids.others {
        known.insert(IdPlace { hash: seed.hash(id), topic: ordinal, seq: *seq }, None);
    }
    let mut newest = topic.newest_time_ordered;
    if ids.rise && ids.time_ordered.first().is_none_or(|first| first.id() > newest) {
        known.add_rising(ordinal, &ids.time_ordered);
        return ids.time_ordered.last().map_or(newest, RisingId::id);
    }
    for found in &ids.time_ordered {
        if found.id() > newest {
            newest = found.id();
            known.add_rising(ordinal, std::slice::from_ref(found));
        } else {
            let id = EventId::from_uuid(Uuid::from_u128(found.id()));
            let place = IdPlace { hash: seed.hash(&id), topic: ordinal, seq: found.seq() };
            known.insert(place, Some(found.id()));
        }
    }
    newest
}

#[derive(Default)]
struct FoundInWal {
    touched: BTreeSet<Topic>,
    ids: RecentIds,
    damaged: bool,
}
