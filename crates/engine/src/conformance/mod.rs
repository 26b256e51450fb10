//! The contract of [`Engine`] as tests.
//!
//! An engine runs the whole suite with one call to [`trials`], to which it passes its capabilities.
//! Cases for a capability that the engine does not have, such as surviving a restart, are left out.
//!
//! - `appends`: appended events are read back unchanged
//! - `ordering`: positions
//! - `idempotence`: an id is stored once
//! - `atomicity`: all of a batch or nothing, and expected positions
//! - `state`, `scanning`, `expiry`: the keyed state
//! - `reading`, `seeking`: pages, and positions by time and id
//! - `arrivals`: when events were stored
//! - `trimming`, `retention`: dropping events
//! - `deletion`: deleting topics
//! - `retention_by_arrival`: the age of an event counts from when it was stored
//! - `watching`: wake-ups
//! - `concurrency`: concurrent calls behave as if they ran one after another
//! - `gateways`: several engines on one store
//! - `restarts`: what survives a restart
//! - `sizes`: limits, and unusual text
//! - `closing`: the end of an engine
//! - `model`: random operations, compared with a simple model
//! - `case`, `test_store`: how a case runs, and its helpers
#![allow(clippy::unwrap_used, reason = "a panic fails the test and shows the line")]

mod appends;
mod arrivals;
mod atomicity;
mod case;
mod closing;
mod concurrency;
mod deletion;
mod expiry;
mod gateways;
mod idempotence;
mod model;
mod ordering;
mod reading;
mod restarts;
mod retention;
mod retention_by_arrival;
mod scanning;
mod seeking;
mod sizes;
mod state;
mod test_store;
mod trimming;
mod watching;

use std::sync::Arc;

use async_trait::async_trait;
use libtest_mimic::Trial;
use prombus_proto::ManualClock;

use crate::{Capabilities, Engine};

/// A store under test. Every case gets a new, empty one.
#[async_trait]
pub trait Subject: Send {
    /// Returns the clock that the engine uses. The suite moves it.
    fn clock(&self) -> ManualClock;

    /// Opens the store. Later calls open the same store again, with its contents. The suite closes and
    /// drops an engine before it opens the next one, unless the engine supports several gateways.
    async fn open(&mut self) -> Arc<dyn Engine>;
}

type NewSubject = Arc<dyn Fn() -> Box<dyn Subject> + Send + Sync>;

/// Returns the tests of one engine with the capabilities `expected`. Their names start with `engine`.
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
        arrivals::cases(),
        trimming::cases(),
        deletion::cases(),
        retention::cases(),
        retention_by_arrival::cases(),
        watching::cases(),
        concurrency::cases(),
        sizes::cases(),
        closing::cases(),
    ];
    if expected.atomic_across_topics {
        cases.push(concurrency::cases_across_topics());
    }
    if expected.gathers_commits {
        cases.push(concurrency::pipelined_cases());
    }
    if expected.several_gateways {
        cases.push(gateways::cases());
        cases.push(deletion::cases_with_gateways());
    }
    if expected.survives_restart {
        cases.push(deletion::cases_with_restart());
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
