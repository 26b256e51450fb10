//! Progress of `publish` and `import`, shown on a terminal.

use std::time::Duration;

use prombus_proto::Topic;

use super::status_line::StatusLine;

pub(super) struct PublishProgress {
    topic: Topic,
    line: StatusLine,
    count: u64,
    duplicates: u64,
}

impl PublishProgress {
    pub(super) fn new(topic: Topic) -> Self {
        Self { topic, line: StatusLine::new(false), count: 0, duplicates: 0 }
    }

    /// Records `count` confirmed events, `duplicates` of which were stored before.
    pub(super) fn confirmed(&mut self, count: u64, duplicates: u64) {
        self.count += count;
        self.duplicates += duplicates;
        let (topic, count, duplicates) = (&self.topic, self.count, self.duplicates);
        self.line.update(|line| summary(topic, count, duplicates, line));
    }

    /// Sleeps for as long as the server's rate limit requires.
    pub(super) async fn wait_for_rate_limit(&mut self, ms: u64) {
        self.line.set(&format!("{}; rate limited, waiting {ms} ms", self.summary()));
        tokio::time::sleep(Duration::from_millis(ms)).await;
    }

    /// Prints a message above the status line.
    pub(super) fn println(&self, message: &str) {
        self.line.println(message);
    }

    /// Shows the final summary, unless it would only distract from an error.
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
    let mut summary = format!("published {count} {events} to {topic}, {rate:.0}/s");
    if duplicates > 0 {
        summary += &format!(", {duplicates} duplicates");
    }
    summary
}
