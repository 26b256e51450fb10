//! Reading a file of the write-ahead log back after a restart.
//!
//! What a crash leaves is told from what decay does by what follows: behind an unfinished batch
//! there is nothing, behind a damaged one there are more, in the same file or in a later one.

use std::borrow::Cow;

use bytes::Bytes;
use prombus_proto::{EventId, Seq, Timestamp, Topic};

use crate::disk::checksum::{BlockChecksum, checksum};
use crate::disk::ids::recent::RisingId;
use crate::disk::record::{self, Record, RecordFault, RecordSeed};
use crate::disk::wal::frame::{End, FrameHead, Run, StateChange};

/// Goes through bytes of one file, frame by frame.
pub(crate) struct WalScan<'a> {
    bytes: &'a [u8],
    /// Where in the file the bytes begin.
    base: u64,
    offset: usize,
    /// The number that the next frame has to have at least.
    next_number: u64,
    /// Whether a later file follows: all in this one was finished before that was begun.
    is_finished: bool,
}

/// What comes next in a file.
#[derive(Debug)]
pub(crate) enum Step {
    /// A frame, whole or with some damage inside.
    Frame(ScannedFrame),
    /// Bytes that belong to no frame anyone can tell, with frames behind them.
    Damage { offset: u64, bytes: u64 },
    /// An unfinished batch: all from here on.
    Torn { offset: u64 },
    /// Nothing more.
    End,
}

/// A frame and what of it can be read.
#[derive(Debug)]
pub(crate) struct ScannedFrame {
    pub(crate) head: FrameHead,
    pub(crate) pieces: Vec<Piece>,
    /// The ids of each run.
    pub(crate) ids: Vec<ScannedIds>,
    pub(crate) damaged_events: Vec<DamagedEvents>,
    /// The state changes, or nothing where their checksum does not fit.
    pub(crate) state: Option<Vec<StateChange>>,
    /// Whether one of the two heads could not be read.
    pub(crate) lost_an_end: bool,
}

/// Some records in a row in a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Piece {
    /// Which of the frame's runs it is a part of.
    pub(crate) run: usize,
    pub(crate) offset: u64,
    pub(crate) bytes: u32,
    pub(crate) first: Seq,
    pub(crate) count: u32,
    pub(crate) latest_ts: Timestamp,
    /// The newest UUIDv7 of the events before it, of the run at least.
    pub(crate) newest_id_before: u128,
}

/// The ids of a run.
#[derive(Debug, Default)]
pub(crate) struct ScannedIds {
    /// UUIDs of version 7.
    pub(crate) time_ordered: Vec<RisingId>,
    /// Whether each of those is newer than the one before it.
    pub(crate) rise: bool,
    pub(crate) others: Vec<(EventId, Seq)>,
}

impl ScannedIds {
    fn add(&mut self, record: &Record<'_>) {
        match record.time_ordered_id() {
            Some(id) => {
                self.rise &= self.time_ordered.last().is_none_or(|last| last.id() < id);
                self.time_ordered.push(RisingId::new(id, record.seq));
            }
            None => self.others.extend(record.id().map(|id| (id, record.seq))),
        }
    }
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) struct DamagedEvents {
    pub(crate) topic: Topic,
    pub(crate) first: Seq,
    pub(crate) last: Seq,
}

/// How much room is made for ids before any was read.
const MOST_IDS_AHEAD: u32 = 100_000;

/// How long a piece may become before the next is begun. A reader that starts within a piece
/// passes over what lies before.
pub(crate) const PIECE_BYTES: usize = 16 << 10;

impl<'a> WalScan<'a> {
    /// Goes through `bytes`, which begin with a frame and go on to the end of the file, unless only
    /// whole frames are asked for. Where they begin in the file is `base`.
    pub(crate) fn new(bytes: &'a [u8], base: u64, next_number: u64, is_finished: bool) -> Self {
        Self { bytes, base, offset: 0, next_number, is_finished }
    }

    /// The next frame, if all of it is here and as it was written.
    pub(crate) fn next_whole_frame(&mut self) -> Option<ScannedFrame> {
        let head = self.frame_head_at(self.offset)?;
        let end = self.offset + size(&head);
        let frame = self.frame(self.offset, head).filter(ScannedFrame::is_whole)?;
        if end > self.bytes.len() {
            return None;
        }
        self.offset = end;
        self.next_number = frame.head.number + 1;
        Some(frame)
    }

    /// Whether a frame begins here that goes on behind the bytes at hand.
    pub(crate) fn is_cut_off(&self) -> bool {
        let left = self.bytes.len() - self.offset;
        self.frame_head_at(self.offset).is_some_and(|head| size(&head) > left)
    }

    /// How many bytes it has gone through.
    pub(crate) fn passed(&self) -> usize {
        self.offset
    }

    pub(crate) fn next_step(&mut self) -> Step {
        let start = self.offset;
        let rest = &self.bytes[start..];
        if rest.iter().all(|byte| *byte == 0) {
            return Step::End;
        }
        if let Some(head) = self.frame_head_at(start) {
            let end = start + size(&head);
            if let Some(frame) = self.frame(start, head)
                && (frame.is_whole() || self.finds_a_frame_behind(end))
            {
                return self.step_over(frame, end);
            }
            return Step::Torn { offset: self.base + start as u64 };
        }
        // The head is damaged. Its repetition at the end, or the next frame, tells where to go on.
        match self.next_end_behind(start) {
            Some((End::Foot, end, head)) if end.checked_sub(size(&head)) == Some(start) => {
                if self.finds_a_frame_behind(end)
                    && let Some(frame) = self.frame(start, head)
                {
                    return self.step_over(frame, end);
                }
                Step::Torn { offset: self.base + start as u64 }
            }
            Some((End::Foot, end, head)) => self.pass_over(start, end, head.number + 1),
            Some((End::Head, at, head)) => self.pass_over(start, at, head.number),
            None => Step::Torn { offset: self.base + start as u64 },
        }
    }

    fn step_over(&mut self, frame: ScannedFrame, end: usize) -> Step {
        self.offset = end.min(self.bytes.len());
        self.next_number = frame.head.number + 1;
        Step::Frame(frame)
    }

    fn pass_over(&mut self, start: usize, to: usize, next_number: u64) -> Step {
        if !self.finds_a_frame_behind(to) {
            return Step::Torn { offset: self.base + start as u64 };
        }
        self.offset = to;
        self.next_number = next_number;
        Step::Damage { offset: self.base + start as u64, bytes: (to - start) as u64 }
    }

    fn frame_head_at(&self, offset: usize) -> Option<FrameHead> {
        match FrameHead::decode(&self.bytes[offset..])? {
            (End::Head, head) if head.number >= self.next_number => Some(head),
            _ => None,
        }
    }

    /// Whether a frame that was written later is behind `offset`: what lies before was finished.
    fn finds_a_frame_behind(&self, offset: usize) -> bool {
        self.is_finished
            || offset < self.bytes.len()
                && (self.frame_head_at(offset).is_some() || self.next_end_behind(offset).is_some())
    }

    /// The next undamaged head or foot from `offset` on. A foot answers where its frame ends.
    fn next_end_behind(&self, offset: usize) -> Option<(End, usize, FrameHead)> {
        (offset..self.bytes.len()).find_map(|at| {
            let rest = &self.bytes[at..];
            FrameHead::claimed_head_bytes(rest)?;
            let (end, head) = FrameHead::decode(rest)?;
            let at = if end == End::Foot { at + head.head_bytes() } else { at };
            (head.number >= self.next_number).then_some((end, at, head))
        })
    }

    /// The frame that begins at `start`. Where the file ends before it does, there is nothing, or
    /// what is left of a frame that was finished once.
    fn frame(&self, start: usize, head: FrameHead) -> Option<ScannedFrame> {
        let frame = match self.bytes.get(start..start + size(&head)) {
            Some(frame) => Cow::Borrowed(frame),
            None if self.is_finished => {
                let mut left = self.bytes[start..].to_vec();
                left.resize(size(&head), 0);
                Cow::Owned(left)
            }
            None => return None,
        };
        let ends = head.head_bytes();
        let lost_an_end = head.encode(End::Head) != frame[..ends]
            || head.encode(End::Foot) != frame[frame.len() - ends..];
        let mut scanned = ScannedFrame {
            pieces: Vec::with_capacity(head.runs.len()),
            ids: Vec::new(),
            damaged_events: Vec::new(),
            state: None,
            lost_an_end,
            head,
        };
        let mut offset = ends;
        let runs = std::mem::take(&mut scanned.head.runs);
        for (index, run) in runs.iter().enumerate() {
            let records = &frame[offset..offset + run.bytes as usize];
            scanned.scan_run(index, run, records, self.base + (start + offset) as u64);
            offset += run.bytes as usize;
        }
        scanned.head.runs = runs;
        let state = &frame[offset..offset + scanned.head.state_bytes as usize];
        scanned.state = state_changes(state, scanned.head.state_checksum);
        Some(scanned)
    }
}

fn size(head: &FrameHead) -> usize {
    usize::try_from(head.frame_bytes()).unwrap_or(usize::MAX)
}

fn state_changes(bytes: &[u8], expected: u32) -> Option<Vec<StateChange>> {
    if checksum(bytes) != expected {
        return None;
    }
    let mut bytes = Bytes::copy_from_slice(bytes);
    let mut changes = Vec::new();
    while !bytes.is_empty() {
        changes.push(StateChange::take_from(&mut bytes)?);
    }
    Some(changes)
}

impl ScannedFrame {
    /// Whether all of it is as it was written.
    fn is_whole(&self) -> bool {
        self.damaged_events.is_empty() && self.state.is_some() && !self.lost_an_end
    }

    fn scan_run(&mut self, index: usize, run: &Run, records: &[u8], offset: u64) {
        let seed = RecordSeed::of(&run.topic);
        let is_whole = BlockChecksum::default().finish(records) == run.checksum;
        let decode = |bytes| match is_whole {
            true => record::decode_trusted(bytes),
            false => record::decode(seed, bytes),
        };
        let room = run.count.min(MOST_IDS_AHEAD) as usize;
        let mut ids =
            ScannedIds { time_ordered: Vec::with_capacity(room), rise: true, others: Vec::new() };
        let end = run.first.plus(u64::from(run.count));
        let mut at = 0;
        let mut expected = run.first;
        let mut newest_id = 0;
        let mut piece: Option<Piece> = None;
        while expected < end {
            match decode(&records[at..]) {
                Ok(record) if record.seq == expected => {
                    let bytes = record.total_bytes();
                    let grown = piece.get_or_insert_with(|| Piece {
                        run: index,
                        offset: offset + at as u64,
                        bytes: 0,
                        first: expected,
                        count: 0,
                        latest_ts: Timestamp(0),
                        newest_id_before: newest_id,
                    });
                    grown.bytes += u32::try_from(bytes).unwrap_or(u32::MAX);
                    grown.count += 1;
                    grown.latest_ts = grown.latest_ts.max(record.ts);
                    if grown.bytes as usize >= PIECE_BYTES {
                        self.pieces.extend(piece.take());
                    }
                    newest_id = newest_id.max(record.time_ordered_id().unwrap_or(0));
                    ids.add(&record);
                    at += bytes;
                    expected = expected.next();
                }
                found => {
                    self.pieces.extend(piece.take());
                    // Where the next record follows at the believed place, only this one is lost.
                    let next = match found {
                        Err(RecordFault::Damaged { believed_bytes: Some(bytes) }) => at + bytes,
                        _ => records.len(),
                    };
                    let follows = expected.next() == end && next == records.len()
                        || record::decode(seed, &records[next.min(records.len())..])
                            .is_ok_and(|record| record.seq == expected.next());
                    let last = if follows { expected } else { end.previous() };
                    self.damaged_events.push(DamagedEvents {
                        topic: run.topic.clone(),
                        first: expected,
                        last,
                    });
                    at = next;
                    expected = last.next();
                }
            }
        }
        self.pieces.extend(piece.take());
        self.ids.push(ids);
    }
}
