//! By when half of a sorted file has expired: then it is worth writing again without that half.

use std::collections::BTreeMap;

use prombus_proto::Timestamp;

/// Counts entries by when they expire: in spans of time, few enough to be kept in memory whatever
/// the number of entries.
#[derive(Debug)]
pub(super) struct Expiries {
    span_ms: u64,
    /// How many expire in each span.
    spans: BTreeMap<u64, u64>,
    entries: u64,
}

const SHORTEST_SPAN_MS: u64 = 1000;
const MOST_SPANS: usize = 512;

impl Expiries {
    pub(super) const fn none() -> Self {
        Self { span_ms: SHORTEST_SPAN_MS, spans: BTreeMap::new(), entries: 0 }
    }

    /// Counts an entry, which may be one that never expires.
    pub(super) fn add(&mut self, expires_at: Option<Timestamp>) {
        self.entries += 1;
        let Some(Timestamp(at)) = expires_at else { return };
        *self.spans.entry(at / self.span_ms).or_default() += 1;
        while self.spans.len() > MOST_SPANS {
            self.span_ms *= 2;
            let mut wider = BTreeMap::new();
            for (span, count) in std::mem::take(&mut self.spans) {
                *wider.entry(span / 2).or_default() += count;
            }
            self.spans = wider;
        }
    }

    /// When half of all has expired, or a little later; never, where less than half ever does.
    pub(super) fn half_by(&self) -> Option<Timestamp> {
        let mut expired = 0;
        let span = self.spans.iter().find(|(_, count)| {
            expired += **count;
            expired * 2 >= self.entries
        });
        span.map(|(span, _)| Timestamp((span + 1).saturating_mul(self.span_ms)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn half_is_gone_by_then_and_not_long_before() {
        let mut expiries = Expiries::none();
        assert_eq!(expiries.half_by(), None);
        // A million over a year, and as many that stay.
        let year = 365 * 86_400_000_u64;
        let at = |n: u64| 1_700_000_000_000 + n * (year / 1_000_000);
        (0..1_000_000).for_each(|n| expiries.add(Some(Timestamp(at(n)))));
        assert!(expiries.spans.len() <= MOST_SPANS);
        let half = expiries.half_by().unwrap().0;
        assert!(half >= at(499_999) && half < at(500_000) + year / 200, "{half}");
        (0..500_000).for_each(|_| expiries.add(None));
        let most = expiries.half_by().unwrap().0;
        assert!(most >= at(749_999) && most < at(750_000) + year / 200, "{most}");
        (0..500_001).for_each(|_| expiries.add(None));
        assert_eq!(expiries.half_by(), None, "less than half ever expires");
    }
}
