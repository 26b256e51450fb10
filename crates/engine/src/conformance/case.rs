//! A test case and how it runs.

use std::pin::Pin;
use std::time::Duration;

use libtest_mimic::Trial;

use super::NewSubject;
use super::test_store::TestStore;
use crate::Capabilities;

/// One test of the contract. Every run gets its own store.
pub(super) struct Case {
    pub(super) module: &'static str,
    pub(super) name: &'static str,
    pub(super) run: fn(TestStore) -> Pin<Box<dyn Future<Output = ()>>>,
}

/// Lists cases by function name. The compiler reports a forgotten case as dead code.
macro_rules! cases {
    ($($case:ident),* $(,)?) => {
        vec![$($crate::conformance::case::Case {
            module: module_path!(),
            name: stringify!($case),
            run: |store| Box::pin($case(store)),
        }),*]
    };
}
pub(super) use cases;

impl Case {
    pub(super) fn into_trial(
        self,
        engine: &str,
        expected: Capabilities,
        new_subject: NewSubject,
    ) -> Trial {
        let module = self.module.rsplit("::").next().unwrap();
        Trial::test(format!("{engine}::{module}::{}", self.name), move || {
            run(async {
                let store = TestStore::open(new_subject()).await;
                assert_eq!(store.engine().capabilities(), expected);
                (self.run)(store).await;
            });
            Ok(())
        })
    }
}

/// A wake-up that never comes must not hang the suite. No case asserts how long anything takes.
const TIMEOUT: Duration = Duration::from_secs(60);

/// Runs `work` on two worker threads, so that concurrent tasks really overlap, with a pool for the
/// blocking calls of file-based engines.
pub(super) fn run<T>(work: impl Future<Output = T>) -> T {
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let done = runtime.block_on(async { tokio::time::timeout(TIMEOUT, work).await });
    match done {
        Ok(value) => value,
        Err(_) => {
            runtime.shutdown_background();
            panic!("timed out: something that the contract promises never happened");
        }
    }
}
