//! The switches.

use std::sync::Arc;

use tokio::sync::watch;

use crate::Unavailable;

/// Switches the faults of a [`FaultyEngine`](super::FaultyEngine). Clones share the switches.
#[derive(Clone)]
pub struct Faults(Arc<watch::Sender<Switches>>);

/// What came of the faults so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FaultReport {
    /// Commits that reached the engine below and were stored there.
    pub commits_stored: u64,
    /// Commits that failed before they happened.
    pub commits_failed_before: u64,
    /// Commits that happened and whose answer was lost.
    pub commits_failed_after: u64,
    /// Reads that failed.
    pub reads_failed: u64,
    /// Commits that wait at the gate now.
    pub commits_waiting: usize,
}

#[derive(Default)]
struct Switches {
    fail_before: usize,
    fail_after: usize,
    fail_reads: usize,
    gate_shut: bool,
    report: FaultReport,
}

impl Default for Faults {
    fn default() -> Self {
        Self::none()
    }
}

impl Faults {
    /// No fault yet.
    #[must_use]
    pub fn none() -> Self {
        Self(Arc::new(watch::Sender::new(Switches::default())))
    }

    /// The next `count` commits fail and do not happen. `usize::MAX` is every one.
    pub fn fail_commits_before(&self, count: usize) {
        self.0.send_modify(|switches| switches.fail_before = count);
    }

    /// The next `count` commits that the engine below stores fail nevertheless: the answer is lost.
    pub fn fail_commits_after(&self, count: usize) {
        self.0.send_modify(|switches| switches.fail_after = count);
    }

    /// The next `count` reads of any kind fail.
    pub fn fail_reads(&self, count: usize) {
        self.0.send_modify(|switches| switches.fail_reads = count);
    }

    /// Commits wait from now on, before anything of them happens.
    pub fn shut_gate(&self) {
        self.0.send_modify(|switches| switches.gate_shut = true);
    }

    /// Lets go on what waits at the gate.
    pub fn open_gate(&self) {
        self.0.send_modify(|switches| switches.gate_shut = false);
    }

    /// Waits until at least `count` commits wait at the gate.
    pub async fn until_waiting(&self, count: usize) {
        self.wait_for(|switches| switches.report.commits_waiting >= count).await;
    }

    /// Switches every fault off and opens the gate.
    pub fn heal(&self) {
        self.0.send_modify(|switches| {
            *switches = Switches { report: switches.report, ..Switches::default() };
        });
    }

    /// What came of the faults so far.
    #[must_use]
    pub fn report(&self) -> FaultReport {
        self.0.borrow().report
    }

    pub(super) async fn pass_gate(&self) {
        let mut waiting = None;
        self.0.send_if_modified(|switches| {
            if switches.gate_shut {
                switches.report.commits_waiting += 1;
                waiting = Some(Waiting(self));
            }
            switches.gate_shut
        });
        if waiting.is_some() {
            self.wait_for(|switches| !switches.gate_shut).await;
        }
    }

    pub(super) fn before_commit(&self) -> Result<(), Unavailable> {
        self.fail_if("the commit did not happen", |switches| {
            let fails = take_one(&mut switches.fail_before);
            switches.report.commits_failed_before += u64::from(fails);
            fails
        })
    }

    pub(super) fn after_commit(&self) -> Result<(), Unavailable> {
        self.fail_if("the commit happened, its answer was lost", |switches| {
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
        self.0
            .subscribe()
            .wait_for(condition)
            .await
            .expect("the sender is ours and lives as long as this call");
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

/// A commit at the gate; no longer one when its caller gave up.
struct Waiting<'a>(&'a Faults);

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.0.send_modify(|switches| switches.report.commits_waiting -= 1);
    }
}
