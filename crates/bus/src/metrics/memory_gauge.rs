//! Memory that is shared and bounded.

use prometheus::IntGauge;

/// The bytes in use of one kind of memory. Cheap to clone.
#[derive(Clone, Debug)]
pub struct MemoryGauge(IntGauge);

impl MemoryGauge {
    pub(super) const fn new(bytes: IntGauge) -> Self {
        Self(bytes)
    }

    #[must_use]
    pub fn get(&self) -> usize {
        usize::try_from(self.0.get()).unwrap_or(0)
    }

    pub fn add(&self, bytes: usize) {
        self.0.add(i64::try_from(bytes).unwrap_or(i64::MAX));
    }

    pub fn sub(&self, bytes: usize) {
        self.0.sub(i64::try_from(bytes).unwrap_or(i64::MAX));
    }
}

impl Default for MemoryGauge {
    /// Returns a gauge that is not exposed.
    fn default() -> Self {
        let gauge = IntGauge::new("memory_bytes", "Bytes in use.");
        Self(gauge.expect("the name and the help are valid"))
    }
}
