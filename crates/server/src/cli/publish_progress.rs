//! Progress of `publish` and `import`, shown on a terminal.

use prombus_proto::Topic;

use super::completed_share::describe_completion;
use super::human_count::human_count;
use super::status_line::StatusLine;

pub(super) struct PublishProgress {
    line: StatusLine,
    published: Published,
}

struct Published {
    topic: Topic,
    count: u64,
    duplicates: u64,
    /// Bytes of the input that are done, and in total, if that is known.
    bytes: Option<(u64, u64)>,
}

impl PublishProgress {
    pub(super) fn new(topic: Topic) -> Self {
        let published = Published { topic, count: 0, duplicates: 0, bytes: None };
        Self { line: StatusLine::new(false), published }
    }

    /// Sets the size of the input.
    pub(super) fn with_total(mut self, bytes: Option<u64>) -> Self {
        self.published.bytes = bytes.map(|total| (0, total));
        self
    }

    /// Records that this many bytes of the input are done.
    pub(super) fn consumed(&mut self, bytes: u64) {
        if let Some((done, _)) = &mut self.published.bytes {
            *done += bytes;
        }
    }

    /// Records `count` confirmed events, `duplicates` of which were stored before.
    pub(super) fn confirmed(&mut self, count: u64, duplicates: u64) {
        self.published.count += count;
        self.published.duplicates += duplicates;
        let published = &self.published;
        self.line.update(|line| published.summary(line.seconds()));
    }

    /// Shows that the command waits for the rate limit.
    pub(super) fn waiting(&self, ms: u64) {
        self.line.set(&format!("{}; rate limited, waiting {ms} ms", self.summary()));
    }

    /// Prints a message above the status line.
    pub(super) fn println(&self, message: &str) {
        self.line.println(message);
    }

    /// Shows the final summary, unless it would only distract from an error.
    pub(super) fn finish(&self, is_success: bool) {
        if is_success || self.published.count > 0 {
            self.line.finish(&self.summary());
        }
    }

    fn summary(&self) -> String {
        self.published.summary(self.line.seconds())
    }
}

impl Published {
    fn summary(&self, seconds: f64) -> String {
        let Self { topic, count, duplicates, bytes } = self;
        let rate = *count as f64 / seconds;
        let events = if *count == 1 { "event" } else { "events" };
        let mut summary =
            format!("published {} {events} to {topic}, {rate:.0}/s", human_count(*count));
        if *duplicates > 0 {
            summary += &format!(", {} duplicates", human_count(*duplicates));
        }
        let share = bytes.and_then(|(done, total)| describe_completion(done, total, seconds));
        if let Some(share) = share {
            summary += &format!(", {share}");
        }
        summary
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_known_size_gives_a_percentage() {
        let topic = Topic::new("t").unwrap();
        let mut published = Published { topic, count: 1200, duplicates: 0, bytes: None };
        assert_eq!(published.summary(2.0), "published 1,200 events to t, 600/s");
        published.bytes = Some((30, 120));
        published.duplicates = 1;
        let expected = "published 1,200 events to t, 600/s, 1 duplicates, 25%, 6s left";
        assert_eq!(published.summary(2.0), expected);
    }
}
