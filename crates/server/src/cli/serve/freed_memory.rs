//! How much freed memory the process keeps for its next use.

/// The C library hands freed memory back to the system from 128 KiB on, and the system clears each
/// page before it gives it out again: an export, which takes and frees some buffers of half a
/// megabyte in every step, spent a quarter of its time on that. The library learns from the largest
/// block it has seen freed. Shown one of this size, it keeps buffers below it, and at most twice as
/// much free at the end of what it has.
const KEPT_BYTES: usize = 4 << 20;

/// To be called once, at the start.
pub(super) fn keep_some() {
    // Never touched: it costs no memory.
    drop(std::hint::black_box(Vec::<u8>::with_capacity(KEPT_BYTES)));
}
