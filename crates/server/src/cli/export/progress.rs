//! Progress of an export, shown on a terminal.

use prombus_proto::{Seq, Topic};

use crate::cli::human_bytes::human_bytes;
use crate::cli::status_line::StatusLine;

pub(super) struct ExportProgress {
    line: StatusLine,
    written: Written,
}

struct Written {
    topic: Topic,
    events: u64,
    bytes: u64,
    /// The first and last `seq` of the topic when the export started.
    range: Option<(u64, u64)>,
    last: Option<Seq>,
}

impl ExportProgress {
    pub(super) fn new(topic: &Topic, output_is_terminal: bool) -> Self {
        let written =
            Written { topic: topic.clone(), events: 0, bytes: 0, range: None, last: None };
        Self { line: StatusLine::new(output_is_terminal), written }
    }

    pub(super) fn events(&self) -> u64 {
        self.written.events
    }

    /// Returns `true` if the percentage is shown and its range is still unknown.
    pub(super) fn needs_range(&self) -> bool {
        self.line.is_visible() && self.written.range.is_none()
    }

    pub(super) fn set_range(&mut self, first: Option<u64>, last: Option<u64>) {
        self.written.range = first.zip(last);
    }

    /// Records written lines, the last of which is `seq`.
    pub(super) fn written(&mut self, lines: &[u8], seq: Seq) {
        self.written.events += lines.iter().filter(|byte| **byte == b'\n').count() as u64;
        self.written.bytes += lines.len() as u64;
        self.written.last = Some(seq);
        let written = &self.written;
        self.line.update(|line| written.summary(line.seconds()));
    }

    pub(super) fn println(&self, message: &str) {
        self.line.println(message);
    }

    pub(super) fn finish(&self) {
        self.line.finish(&self.written.summary(self.line.seconds()));
    }
}

impl Written {
    fn summary(&self, seconds: f64) -> String {
        let Self { topic, events, bytes, .. } = self;
        let rate = *events as f64 / seconds;
        let size = human_bytes(*bytes as f64);
        let speed = human_bytes(*bytes as f64 / seconds);
        let percent = self.percent().map_or(String::new(), |percent| format!(", {percent}%"));
        format!("exported {events} events of {topic}, {size}, {rate:.0}/s, {speed}/s{percent}")
    }

    fn percent(&self) -> Option<u64> {
        let (first, last) = self.range?;
        let done = (self.last?.0 + 1).saturating_sub(first);
        let total = (last + 1).saturating_sub(first).max(1);
        // Events published since the start are beyond the total.
        Some((done.saturating_mul(100) / total).min(100))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shows_the_percentage_of_the_topic() {
        let topic = Topic::new("t").unwrap();
        let mut written =
            Written { topic, events: 50, bytes: 2048, range: None, last: Some(Seq(150)) };
        assert_eq!(written.summary(2.0), "exported 50 events of t, 2.0 KiB, 25/s, 1.0 KiB/s");
        for (range, percent) in [((101, 200), 50), ((101, 150), 100), ((1, 10), 100)] {
            written.range = Some(range);
            assert_eq!(written.percent(), Some(percent));
        }
        written.last = None;
        assert_eq!(written.percent(), None);
    }
}
