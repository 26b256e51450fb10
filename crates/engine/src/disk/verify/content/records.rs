//! The records of segments, in a file of their own or in a pack.

use prombus_proto::Seq;

use super::{Counted, Units};
use crate::disk::record::{self, RecordFault};
use crate::disk::verify::contents::RecordRun;

pub(super) struct Records {
    /// By offset.
    runs: Vec<RecordRun>,
    /// The run that the next record belongs to.
    current: usize,
    last: Option<Seq>,
    events: u64,
}

impl Records {
    pub(super) fn new(runs: Vec<RecordRun>) -> Self {
        Self { runs, current: 0, last: None, events: 0 }
    }
}

impl Units for Records {
    fn take(&mut self, bytes: &[u8], offset: u64) -> Result<usize, String> {
        let Some(run) = self.runs.get(self.current).filter(|_| offset > 0) else {
            // The header, or what a later checkpoint appended.
            return Ok(if offset == 0 { 0 } else { bytes.len() });
        };
        if offset < run.start {
            // Segments that no topic has any more.
            let gap = usize::try_from(run.start - offset).unwrap_or(usize::MAX);
            return Ok(gap.min(bytes.len()));
        }
        if offset >= run.end {
            if self.last != Some(run.last) {
                return Err(format!("the record of event {} is missing before it", run.last));
            }
            (self.current, self.last) = (self.current + 1, None);
            return self.take(bytes, offset);
        }
        let left = usize::try_from(run.end - offset).unwrap_or(usize::MAX);
        let record = match record::decode(run.seed, &bytes[..bytes.len().min(left)]) {
            Ok(record) => record,
            Err(RecordFault::Truncated { needed }) if needed <= left && bytes.len() < left => {
                return Ok(0);
            }
            Err(_) => return Err("a record has a checksum mismatch".to_owned()),
        };
        // Events that were lost before are missing, and reported whenever they are read.
        let is_in_order = self.last.is_none_or(|last| last < record.seq)
            && (run.first..=run.last).contains(&record.seq);
        if !is_in_order {
            return Err(format!("the record of event {} is in the wrong place", record.seq));
        }
        self.last = Some(record.seq);
        self.events += 1;
        Ok(record.total_bytes())
    }

    fn finish(&mut self, _rest: &[u8]) -> Result<Counted, String> {
        let is_last_complete = match self.runs.get(self.current) {
            Some(run) => self.last == Some(run.last) && self.current + 1 == self.runs.len(),
            None => true,
        };
        match is_last_complete {
            true => Ok(Counted { events: self.events, ..Counted::default() }),
            false => Err("records are missing at the end".to_owned()),
        }
    }
}
