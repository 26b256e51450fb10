//! How far publishing is, for a person who watches.

use std::io::{self, IsTerminal, Write};
use std::time::{Duration, Instant};

use prombus_proto::Topic;
use prombus_proto::frame::Published;

/// How often the line is written anew.
const INTERVAL: Duration = Duration::from_millis(200);

pub(super) struct Progress {
    topic: Topic,
    /// Whether somebody watches.
    is_shown: bool,
    began: Instant,
    shown_at: Instant,
    count: u64,
    duplicates: u64,
}

impl Progress {
    pub(super) fn new(topic: Topic) -> Self {
        let now = Instant::now();
        let is_shown = io::stderr().is_terminal();
        Self { topic, is_shown, began: now, shown_at: now, count: 0, duplicates: 0 }
    }

    pub(super) fn answered(&mut self, results: &[Published]) {
        self.count += results.len() as u64;
        self.duplicates += results.iter().filter(|result| result.duplicate).count() as u64;
        if self.shown_at.elapsed() >= INTERVAL {
            self.shown_at = Instant::now();
            self.show(&self.summary());
        }
    }

    /// Waits as long as the server's rate limit asks for.
    pub(super) async fn wait_out_the_limit(&mut self, ms: u64) {
        self.show(&format!("{}; the rate limit says to wait {ms} ms", self.summary()));
        tokio::time::sleep(Duration::from_millis(ms)).await;
    }

    /// The summary, unless it would only stand in the way of an error.
    pub(super) fn finish(&self, is_success: bool) {
        if self.is_shown && (is_success || self.count > 0) {
            self.show(&self.summary());
            eprintln!();
        }
    }

    fn summary(&self) -> String {
        let seconds = self.began.elapsed().as_secs_f64().max(0.001);
        let rate = self.count as f64 / seconds;
        let events = if self.count == 1 { "event" } else { "events" };
        let (count, topic) = (self.count, &self.topic);
        let mut summary = format!("published {count} {events} to {topic}, {rate:.0} a second");
        if self.duplicates > 0 {
            summary += &format!(", {} of them were there already", self.duplicates);
        }
        summary
    }

    fn show(&self, line: &str) {
        if self.is_shown {
            // Back to the start of the line, and nothing of the old one behind the new.
            eprint!("\r{line}\x1b[K");
            // A terminal that is gone is nobody's loss.
            let _ = io::stderr().flush();
        }
    }
}
