//! Estimates when half of a run has expired: then it is worth rewriting without that half.

use std::collections::BTreeMap;

use prombus_proto::Timestamp;

/// Counts entries by their expiry, in buckets of time. Buckets widen as needed, so that memory is
/// bounded whatever the number of entries.
#[derive(Debug)]
pub(super) struct ExpiryHistogram {
    bucket_ms: u64,
    /// How many entries expire in each bucket.
    buckets: BTreeMap<u64, u64>,
    entries: u64,
}

const MIN_BUCKET_MS: u64 = 1000;
const MAX_BUCKETS: usize = 512;

impl ExpiryHistogram {
    pub(super) const fn new() -> Self {
        Self { bucket_ms: MIN_BUCKET_MS, buckets: BTreeMap::new(), entries: 0 }
    }

    /// Counts an entry; `None` never expires.
    pub(super) fn add(&mut self, expires_at: Option<Timestamp>) {
        self.entries += 1;
        let Some(Timestamp(at)) = expires_at else { return };
        *self.buckets.entry(at / self.bucket_ms).or_default() += 1;
        while self.buckets.len() > MAX_BUCKETS {
            self.bucket_ms *= 2;
            let mut wider = BTreeMap::new();
            for (bucket, count) in std::mem::take(&mut self.buckets) {
                *wider.entry(bucket / 2).or_default() += count;
            }
            self.buckets = wider;
        }
    }

    /// Returns the time at which half of the entries have expired, rounded up to a bucket. `None` if
    /// less than half ever expire.
    pub(super) fn half_expired_by(&self) -> Option<Timestamp> {
        let mut expired = 0;
        let bucket = self.buckets.iter().find(|(_, count)| {
            expired += **count;
            expired * 2 >= self.entries
        });
        bucket.map(|(bucket, _)| Timestamp((bucket + 1).saturating_mul(self.bucket_ms)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn half_have_expired_by_then_and_not_long_before() {
        let mut histogram = ExpiryHistogram::new();
        assert_eq!(histogram.half_expired_by(), None);
        // A million that expire over a year, then as many that never do.
        let year = 365 * 86_400_000_u64;
        let at = |n: u64| 1_700_000_000_000 + n * (year / 1_000_000);
        (0..1_000_000).for_each(|n| histogram.add(Some(Timestamp(at(n)))));
        assert!(histogram.buckets.len() <= MAX_BUCKETS);
        let half = histogram.half_expired_by().unwrap().0;
        assert!(half >= at(499_999) && half < at(500_000) + year / 200, "{half}");
        (0..500_000).for_each(|_| histogram.add(None));
        let most = histogram.half_expired_by().unwrap().0;
        assert!(most >= at(749_999) && most < at(750_000) + year / 200, "{most}");
        (0..500_001).for_each(|_| histogram.add(None));
        assert_eq!(histogram.half_expired_by(), None, "less than half ever expires");
    }
}
