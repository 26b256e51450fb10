//! What publishers, consumers and operators know together.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

use tokio::sync::RwLock;
use tokio::time::sleep;

use super::handled::Handled;
use super::letters::{Letter, Redrives, letters_of};
use super::moved::Moved;
use super::random::Random;

pub(crate) const TOPIC: &str = "orders";
/// The groups whose consumers give events up, and whose dead letters are redriven.
pub(crate) const WORKING: [&str; 2] = ["billing", "mail"];
/// The group that is moved back and forth.
pub(crate) const SOUGHT: &str = "audit";
/// The group that is deleted and created again.
pub(crate) const DELETED: &str = "preview";

pub(crate) struct Ledger {
    pub(crate) random: Random,
    working: [Mutex<Handled>; 2],
    sought: Mutex<Moved>,
    deleted: Mutex<Moved>,
    redrives: Mutex<Redrives>,
    /// The last event whose publish was answered. Event `e7` is at position 7.
    published: AtomicU64,
    /// Set when no event is given up any more.
    is_draining: AtomicBool,
    /// Held by those who subscribe to the deleted group, so that nobody creates it while an operator looks whether it is
    /// gone.
    pub(crate) joining: RwLock<()>,
}

impl Ledger {
    pub(crate) fn new() -> Self {
        Self::of([Handled::default(), Handled::default()])
    }

    pub(crate) fn of_several_gateways() -> Self {
        Self::of([Handled::at_several_gateways(), Handled::at_several_gateways()])
    }

    fn of(working: [Handled; 2]) -> Self {
        Self {
            random: Random::new(),
            working: working.map(Mutex::new),
            sought: Mutex::default(),
            deleted: Mutex::new(Moved::by_deletions()),
            redrives: Mutex::default(),
            published: AtomicU64::new(0),
            is_draining: AtomicBool::new(false),
            joining: RwLock::default(),
        }
    }

    pub(crate) fn working(&self, number: usize) -> MutexGuard<'_, Handled> {
        self.working[number].lock().unwrap()
    }

    pub(crate) fn sought(&self) -> MutexGuard<'_, Moved> {
        self.sought.lock().unwrap()
    }

    pub(crate) fn deleted(&self) -> MutexGuard<'_, Moved> {
        self.deleted.lock().unwrap()
    }

    pub(crate) fn redrives(&self) -> MutexGuard<'_, Redrives> {
        self.redrives.lock().unwrap()
    }

    pub(crate) fn last_published(&self) -> u64 {
        self.published.load(Ordering::Relaxed)
    }

    pub(crate) fn published(&self, last: u64) {
        self.published.store(last, Ordering::Relaxed);
    }

    pub(crate) fn is_draining(&self) -> bool {
        self.is_draining.load(Ordering::Relaxed)
    }

    pub(crate) fn drain(&self) {
        self.is_draining.store(true, Ordering::Relaxed);
    }

    /// Returns the least number of events that a working group has sent ACKs for.
    pub(crate) fn handled_events(&self) -> u64 {
        self.working.iter().map(|group| group.lock().unwrap().handled_events()).min().unwrap_or(0)
    }

    /// Waits until both working groups have sent ACKs for this many more events.
    pub(crate) async fn until_handled(&self, more: u64) {
        let target = self.handled_events() + more;
        until(|| self.handled_events() >= target).await;
    }

    pub(crate) fn killed(&self) {
        self.working.iter().for_each(|group| group.lock().unwrap().killed());
    }

    pub(crate) fn check_end(&self, letters: &[Letter]) {
        for (number, group) in WORKING.into_iter().enumerate() {
            self.working(number).check_end(self.last_published(), &letters_of(group, letters));
        }
        let is_of_working = |letter: &Letter| WORKING.contains(&letter.group.as_str());
        assert!(letters.iter().all(is_of_working), "other groups give nothing up");
        self.redrives().check_end(letters);
        self.sought().check_end();
        self.deleted().check_end();
    }
}

/// Waits for a condition.
pub(crate) async fn until(mut holds: impl FnMut() -> bool) {
    while !holds() {
        sleep(Duration::from_millis(5)).await;
    }
}
