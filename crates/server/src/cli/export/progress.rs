//! How far an export is, for a person who watches.

use prombus_proto::{Seq, Topic};

use crate::cli::status_line::{StatusLine, readable_bytes};

pub(super) struct Progress {
    line: StatusLine,
    done: Done,
}

struct Done {
    topic: Topic,
    events: u64,
    bytes: u64,
    /// The first and the last place of the topic, when it began.
    extent: Option<(u64, u64)>,
    at: Option<Seq>,
}

impl Progress {
    pub(super) fn new(topic: &Topic, output_is_a_terminal: bool) -> Self {
        let done = Done { topic: topic.clone(), events: 0, bytes: 0, extent: None, at: None };
        Self { line: StatusLine::beside(output_is_a_terminal), done }
    }

    pub(super) fn events(&self) -> u64 {
        self.done.events
    }

    /// Whether somebody would see how much of the topic is done.
    pub(super) fn wants_extent(&self) -> bool {
        self.line.is_shown() && self.done.extent.is_none()
    }

    pub(super) fn set_extent(&mut self, first: Option<u64>, last: Option<u64>) {
        self.done.extent = first.zip(last);
    }

    /// These lines are written, the last of which is at `seq`.
    pub(super) fn written(&mut self, lines: &[u8], seq: Seq) {
        self.done.events += lines.iter().filter(|byte| **byte == b'\n').count() as u64;
        self.done.bytes += lines.len() as u64;
        self.done.at = Some(seq);
        let done = &self.done;
        self.line.now_and_then(|line| done.summary(line.seconds()));
    }

    pub(super) fn say(&self, sentence: &str) {
        self.line.say(sentence);
    }

    pub(super) fn finish(&self) {
        self.line.finish(&self.done.summary(self.line.seconds()));
    }
}

impl Done {
    fn summary(&self, seconds: f64) -> String {
        let Self { topic, events, bytes, .. } = self;
        let rate = *events as f64 / seconds;
        let size = readable_bytes(*bytes as f64);
        let speed = readable_bytes(*bytes as f64 / seconds);
        let percent = self.percent().map_or(String::new(), |percent| format!(", {percent}%"));
        format!(
            "exported {events} events of {topic}, {size}, {rate:.0} a second, {speed}/s{percent}"
        )
    }

    fn percent(&self) -> Option<u64> {
        let (first, last) = self.extent?;
        let done = (self.at?.0 + 1).saturating_sub(first);
        let all = (last + 1).saturating_sub(first).max(1);
        // What was published since it began is more than all.
        Some((done.saturating_mul(100) / all).min(100))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn says_how_much_of_the_topic_is_done() {
        let topic = Topic::new("t").unwrap();
        let mut done = Done { topic, events: 50, bytes: 2048, extent: None, at: Some(Seq(150)) };
        assert_eq!(done.summary(2.0), "exported 50 events of t, 2.0 KiB, 25 a second, 1.0 KiB/s");
        for (extent, percent) in [((101, 200), 50), ((101, 150), 100), ((1, 10), 100)] {
            done.extent = Some(extent);
            assert_eq!(done.percent(), Some(percent));
        }
        done.at = None;
        assert_eq!(done.percent(), None);
    }
}
