//! The contract of [`Engine`] as tests.
//!
//! An engine adds all of it with one call, [`trials`], and says what it can do. Cases whose promise
//! that engine does not make (what is there after a restart, where nothing survives one) are not
//! listed for it; everything listed is checked.
//!
//! | idea | file |
//! |---|---|
//! | what is appended is what is read | `appends` |
//! | positions | `ordering` |
//! | the same id is stored once | `idempotence` |
//! | all or nothing | `atomicity` |
//! | the keyed state, and its end | `state`, `scanning`, `expiry` |
//! | pages, and places in a topic | `reading`, `seeking` |
//! | what is forgotten | `trimming`, `retention` |
//! | wake-ups | `watching` |
//! | many at a time | `concurrency` |
//! | several engines on one store | `gateways` |
//! | what survives | `restarts` |
//! | the largest and the strangest | `sizes` |
//! | the end | `closing` |
//! | everything at once, against a simple model | `model` |
#![allow(
    clippy::unwrap_used,
    reason = "in a test, what is not as expected ends it; the place is what helps"
)]

mod appends;
mod atomicity;
mod case;
mod closing;
mod concurrency;
mod expiry;
mod gateways;
mod idempotence;
mod model;
mod ordering;
mod reading;
mod restarts;
mod retention;
mod scanning;
mod seeking;
mod sizes;
mod state;
mod store;
mod trimming;
mod watching;

use std::sync::Arc;

use async_trait::async_trait;
use libtest_mimic::Trial;
use prombus_proto::ManualClock;

use crate::{Capabilities, Engine};

/// A store under test. Each case gets a new one, empty.
#[async_trait]
pub trait Subject: Send {
    /// The clock that the engine asks. The suite moves it.
    fn clock(&self) -> ManualClock;

    /// Opens the store, or opens it again: the same store, with what it still holds. The suite has
    /// closed and dropped the engine it got before; only where the engine allows several gateways,
    /// it also opens one beside another.
    async fn open(&mut self) -> Arc<dyn Engine>;
}

type NewSubject = Arc<dyn Fn() -> Box<dyn Subject> + Send + Sync>;

/// The whole contract for one engine that can do `expected`. Names start with `engine`.
#[must_use]
pub fn trials<S: Subject + 'static>(
    engine: &str,
    expected: Capabilities,
    new_subject: impl Fn() -> S + Send + Sync + 'static,
) -> Vec<Trial> {
    let new_subject: NewSubject = Arc::new(move || Box::new(new_subject()));
    let mut cases = vec![
        appends::cases(),
        ordering::cases(),
        idempotence::cases(),
        atomicity::cases(),
        state::cases(),
        scanning::cases(),
        expiry::cases(),
        reading::cases(),
        seeking::cases(),
        trimming::cases(),
        retention::cases(),
        watching::cases(),
        concurrency::cases(),
        sizes::cases(),
        closing::cases(),
    ];
    if expected.atomic_across_topics {
        cases.push(concurrency::cases_across_topics());
    }
    if expected.gathers_commits {
        cases.push(concurrency::cases_under_way());
    }
    if expected.several_gateways {
        cases.push(gateways::cases());
    }
    if expected.survives_restart {
        cases.push(restarts::cases());
        cases.push(closing::cases_with_restart());
    }
    let mut trials: Vec<Trial> = cases
        .into_iter()
        .flatten()
        .map(|case| case.into_trial(engine, expected, new_subject.clone()))
        .collect();
    trials.push(model::trial(engine, expected, new_subject));
    trials
}
