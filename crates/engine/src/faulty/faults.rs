//! The switches of a faulty engine.

use std::sync::Arc;

use tokio::sync::watch;

use crate::Unavailable;

/// Switches the faults of a [`FaultyEngine`](super::FaultyEngine). Clones share the switches.
#[derive(Clone)]
pub struct Faults(Arc<watch::Sender<Switches>>);

/// Counts the faults injected so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FaultReport {
    /// Commits that the wrapped engine stored.
    pub commits_stored: u64,
    /// Commits that failed before they reached the wrapped engine.
    pub commits_failed_before: u64,
    /// Commits that were stored but reported as failed.
    pub commits_failed_after: u64,
    /// Reads that failed.
    pub reads_failed: u64,
    /// Commits that are waiting at the gate now.
    pub commits_waiting: usize,
    /// Reads of state entries that are waiting at their gate now.
    pub state_reads_waiting: usize,
}

/// What waits while a gate is shut.
#[derive(Clone, Copy)]
pub(super) enum Gate {
    Commits,
    StateReads,
}

#[derive(Default)]
struct Switches {
    fail_before: usize,
    fail_after: usize,
    fail_reads: usize,
    commits_shut: bool,
    state_reads_shut: bool,
    report: FaultReport,
}

impl Default for Faults {
    fn default() -> Self {
        Self::none()
    }
}

impl Faults {
    /// Creates switches with every fault off.
    #[must_use]
    pub fn none() -> Self {
        Self(Arc::new(watch::Sender::new(Switches::default())))
    }

    /// Makes the next `count` commits fail without being stored. `usize::MAX` means all of them.
    pub fn fail_commits_before(&self, count: usize) {
        self.0.send_modify(|switches| switches.fail_before = count);
    }

    /// Makes the next `count` commits that the wrapped engine stores fail nevertheless, as if the
    /// answer was lost.
    pub fn fail_commits_after(&self, count: usize) {
        self.0.send_modify(|switches| switches.fail_after = count);
    }

    /// Makes the next `count` reads of any kind fail.
    pub fn fail_reads(&self, count: usize) {
        self.0.send_modify(|switches| switches.fail_reads = count);
    }

    /// Makes commits wait before they reach the wrapped engine.
    pub fn shut_gate(&self) {
        self.0.send_modify(|switches| switches.commits_shut = true);
    }

    /// Releases the commits that wait at the gate.
    pub fn open_gate(&self) {
        self.0.send_modify(|switches| switches.commits_shut = false);
    }

    /// Waits until at least `count` commits are waiting at the gate.
    pub async fn until_waiting(&self, count: usize) {
        self.wait_for(|switches| switches.report.commits_waiting >= count).await;
    }

    /// Makes reads of single state entries wait before they reach the wrapped engine.
    pub fn shut_state_reads(&self) {
        self.0.send_modify(|switches| switches.state_reads_shut = true);
    }

    /// Releases the reads of state entries that wait.
    pub fn open_state_reads(&self) {
        self.0.send_modify(|switches| switches.state_reads_shut = false);
    }

    /// Waits until at least `count` reads of state entries are waiting.
    pub async fn until_state_reads_waiting(&self, count: usize) {
        self.wait_for(|switches| switches.report.state_reads_waiting >= count).await;
    }

    /// Switches every fault off and opens the gates.
    pub fn heal(&self) {
        self.0.send_modify(|switches| {
            *switches = Switches { report: switches.report, ..Switches::default() };
        });
    }

    /// Returns the counts of injected faults.
    #[must_use]
    pub fn report(&self) -> FaultReport {
        self.0.borrow().report
    }

    pub(super) async fn pass_gate(&self, gate: Gate) {
        let mut waiting = None;
        self.0.send_if_modified(|switches| {
            let is_shut = switches.is_shut(gate);
            if is_shut {
                *switches.waiting(gate) += 1;
                waiting = Some(Waiting(self, gate));
            }
            is_shut
        });
        if waiting.is_some() {
            self.wait_for(|switches| !switches.is_shut(gate)).await;
        }
    }

    pub(super) fn before_commit(&self) -> Result<(), Unavailable> {
        self.fail_if("the commit was not stored", |switches| {
            let fails = take_one(&mut switches.fail_before);
            switches.report.commits_failed_before += u64::from(fails);
            fails
        })
    }

    pub(super) fn after_commit(&self) -> Result<(), Unavailable> {
        self.fail_if("the commit was stored, but its answer was lost", |switches| {
            let fails = take_one(&mut switches.fail_after);
            switches.report.commits_stored += 1;
            switches.report.commits_failed_after += u64::from(fails);
            fails
        })
    }

    pub(super) fn before_read(&self) -> Result<(), Unavailable> {
        self.fail_if("the read failed", |switches| {
            let fails = take_one(&mut switches.fail_reads);
            switches.report.reads_failed += u64::from(fails);
            fails
        })
    }

    fn fail_if(
        &self,
        what: &'static str,
        fails: impl FnOnce(&mut Switches) -> bool,
    ) -> Result<(), Unavailable> {
        let mut failed = false;
        self.0.send_if_modified(|switches| {
            failed = fails(switches);
            failed
        });
        match failed {
            true => Err(Unavailable::Injected(what)),
            false => Ok(()),
        }
    }

    async fn wait_for(&self, condition: impl FnMut(&Switches) -> bool) {
        self.0.subscribe().wait_for(condition).await.expect("`self` owns the sender");
    }
}

fn take_one(count: &mut usize) -> bool {
    match *count {
        0 => false,
        usize::MAX => true,
        _ => {
            *count -= 1;
            true
        }
    }
}

impl Switches {
    const fn is_shut(&self, gate: Gate) -> bool {
        match gate {
            Gate::Commits => self.commits_shut,
            Gate::StateReads => self.state_reads_shut,
        }
    }

    const fn waiting(&mut self, gate: Gate) -> &mut usize {
        match gate {
            Gate::Commits => &mut self.report.commits_waiting,
            Gate::StateReads => &mut self.report.state_reads_waiting,
        }
    }
}

/// A call at a gate. Dropping it, also by cancellation, leaves the gate.
struct Waiting<'a>(&'a Faults, Gate);

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        let Self(faults, gate) = self;
        faults.0.send_modify(|switches| *switches.waiting(*gate) -= 1);
    }
}
