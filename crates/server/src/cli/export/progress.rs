//! Progress of an export, shown on a terminal.

use prombus_proto::{Seq, Topic};

use crate::cli::completed_share::describe_completion;
use crate::cli::event_line::EventLine;
use crate::cli::human_bytes::human_bytes;
use crate::cli::human_count::human_count;
use crate::cli::status_line::StatusLine;

pub(super) struct ExportProgress {
    line: StatusLine,
    written: Written,
}

struct Written {
    topic: Topic,
    events: u64,
    bytes: u64,
    /// The last `seq` of the topic when the export started.
    end: End,
    /// The first and last `seq` that were written.
    range: Option<(Seq, Seq)>,
}

/// Where the export ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    NotAsked,
    At(Seq),
    /// It ends at a time, or the topic has no events.
    Unknown,
}

impl ExportProgress {
    /// `ends_at_time` tells that the export does not go to the end of the topic.
    pub(super) fn new(topic: &Topic, output_is_terminal: bool, ends_at_time: bool) -> Self {
        let end = if ends_at_time { End::Unknown } else { End::NotAsked };
        let written = Written { topic: topic.clone(), events: 0, bytes: 0, end, range: None };
        Self { line: StatusLine::new(output_is_terminal), written }
    }

    pub(super) fn events(&self) -> u64 {
        self.written.events
    }

    /// Returns `true` if the percentage is shown and the end is still unknown.
    pub(super) fn needs_end(&self) -> bool {
        self.line.is_visible() && self.written.end == End::NotAsked
    }

    pub(super) fn set_end(&mut self, last: Option<Seq>) {
        self.written.end = last.map_or(End::Unknown, End::At);
    }

    /// Records written lines, the last of which is `seq`.
    pub(super) fn written(&mut self, lines: &[u8], seq: Seq) {
        self.written.events += lines.iter().filter(|byte| **byte == b'\n').count() as u64;
        self.written.bytes += lines.len() as u64;
        self.written.range = match self.written.range {
            Some((first, _)) => Some((first, seq)),
            None => {
                let line = lines.split(|byte| *byte == b'\n').next().unwrap_or_default();
                EventLine::parse(line).map(|line| (line.seq, seq))
            }
        };
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
        let share = self.share(seconds).map_or(String::new(), |share| format!(", {share}"));
        let events = human_count(*events);
        format!("exported {events} events of {topic}, {size}, {rate:.0}/s, {speed}/s{share}")
    }

    fn share(&self, seconds: f64) -> Option<String> {
        let End::At(end) = self.end else { return None };
        let (first, last) = self.range?;
        let up_to = |last: Seq| (last.0 + 1).saturating_sub(first.0);
        describe_completion(up_to(last), up_to(end), seconds)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shows_the_percentage_and_the_time_left() {
        let topic = Topic::new("t").unwrap();
        let range = Some((Seq(101), Seq(150)));
        let mut written = Written { topic, events: 1050, bytes: 2048, end: End::Unknown, range };
        let without = "exported 1,050 events of t, 2.0 KiB, 525/s, 1.0 KiB/s";
        assert_eq!(written.summary(2.0), without);
        written.end = End::At(Seq(200));
        assert_eq!(written.summary(2.0), format!("{without}, 50%, 2s left"));
        written.end = End::At(Seq(150));
        assert_eq!(written.summary(2.0), format!("{without}, 100%"));
        written.range = None;
        assert_eq!(written.summary(2.0), without);
    }
}
