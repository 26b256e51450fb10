//! One case, and how it is run.

use std::pin::Pin;
use std::time::Duration;

use libtest_mimic::Trial;

use super::NewSubject;
use super::store::Store;
use crate::Capabilities;

/// A case gets a store of its own.
pub(super) struct Case {
    pub(super) module: &'static str,
    pub(super) name: &'static str,
    pub(super) run: fn(Store) -> Pin<Box<dyn Future<Output = ()>>>,
}

/// Lists cases. A case that is on no list is a function nobody calls, which the compiler reports.
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
        let idea = self.module.rsplit("::").next().unwrap();
        Trial::test(format!("{engine}::{idea}::{}", self.name), move || {
            run(async {
                let store = Store::open(new_subject()).await;
                assert_eq!(store.engine().capabilities(), expected);
                (self.run)(store).await;
            });
            Ok(())
        })
    }
}

/// A wake-up that never comes would hang the whole suite; no case asserts how long anything takes.
const TAKEN_FOR_HUNG: Duration = Duration::from_secs(60);

/// Runs `work` with two worker threads, so that what can happen at the same time does, and with
/// room for blocking calls, which engines on files make.
pub(super) fn run<T>(work: impl Future<Output = T>) -> T {
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let done = runtime.block_on(async { tokio::time::timeout(TAKEN_FOR_HUNG, work).await });
    match done {
        Ok(value) => value,
        Err(_) => {
            runtime.shutdown_background();
            panic!("hung: something the contract promises never came");
        }
    }
}
