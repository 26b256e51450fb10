//! The series of a topic.

use prombus_engine::Position;
use prometheus::IntCounter;

#[derive(Debug)]
pub(crate) struct TopicSeries {
    pub(super) published: IntCounter,
    pub(super) duplicates: IntCounter,
}

impl TopicSeries {
    /// Records events committed at these positions.
    pub(crate) fn committed(&self, positions: &[Position]) {
        let duplicates = positions.iter().filter(|position| position.duplicate).count();
        self.published.inc_by((positions.len() - duplicates) as u64);
        if duplicates > 0 {
            self.duplicates.inc_by(duplicates as u64);
        }
    }
}
