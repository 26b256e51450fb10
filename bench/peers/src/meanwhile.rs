//! Something on a thread of its own for as long as something else is measured.

use std::panic::resume_unwind;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

/// What `measured` comes to, and what `beside` does, which ends soon after it is told that it does not go on.
pub(crate) fn meanwhile<T, B: Send>(
    measured: impl FnOnce() -> T,
    beside: impl FnOnce(&dyn Fn() -> bool) -> B + Send,
) -> (T, B) {
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        let beside = scope.spawn(|| beside(&|| !is_over.load(Ordering::Relaxed)));
        let outcome = measured();
        is_over.store(true, Ordering::Relaxed);
        (outcome, beside.join().unwrap_or_else(|panic| resume_unwind(panic)))
    })
}
