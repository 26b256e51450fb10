//! Runs something on a second thread during a measurement.

use std::panic::resume_unwind;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

/// Runs `measured`, and `background` on a second thread until soon after `measured` has returned. The argument of
/// `background` tells whether `measured` is still running. Returns both results.
pub(crate) fn run_with_background<T, B: Send>(
    measured: impl FnOnce() -> T,
    background: impl FnOnce(&dyn Fn() -> bool) -> B + Send,
) -> (T, B) {
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        let background = scope.spawn(|| background(&|| !is_over.load(Ordering::Relaxed)));
        let outcome = measured();
        is_over.store(true, Ordering::Relaxed);
        (outcome, background.join().unwrap_or_else(|panic| resume_unwind(panic)))
    })
}
