//! How far publishing is, for a person who watches.

use std::time::Duration;

use prombus_proto::Topic;

use super::status_line::StatusLine;

pub(super) struct Progress {
    topic: Topic,
    line: StatusLine,
    count: u64,
    duplicates: u64,
}

impl Progress {
    pub(super) fn new(topic: Topic) -> Self {
        Self { topic, line: StatusLine::beside(false), count: 0, duplicates: 0 }
    }

    /// So many events more are stored, or were already.
    pub(super) fn answered(&mut self, count: u64, duplicates: u64) {
        self.count += count;
        self.duplicates += duplicates;
        let (topic, count, duplicates) = (&self.topic, self.count, self.duplicates);
        self.line.now_and_then(|line| summary(topic, count, duplicates, line));
    }

    /// Waits as long as the server's rate limit asks for.
    pub(super) async fn wait_out_the_limit(&mut self, ms: u64) {
        self.line.show(&format!("{}; the rate limit says to wait {ms} ms", self.summary()));
        tokio::time::sleep(Duration::from_millis(ms)).await;
    }

    /// Says something that stays.
    pub(super) fn say(&self, sentence: &str) {
        self.line.say(sentence);
    }

    /// The summary, unless it would only stand in the way of an error.
    pub(super) fn finish(&self, is_success: bool) {
        if is_success || self.count > 0 {
            self.line.finish(&self.summary());
        }
    }

    fn summary(&self) -> String {
        summary(&self.topic, self.count, self.duplicates, &self.line)
    }
}

fn summary(topic: &Topic, count: u64, duplicates: u64, line: &StatusLine) -> String {
    let rate = count as f64 / line.seconds();
    let events = if count == 1 { "event" } else { "events" };
    let mut summary = format!("published {count} {events} to {topic}, {rate:.0} a second");
    if duplicates > 0 {
        summary += &format!(", {duplicates} of them were there already");
    }
    summary
}
