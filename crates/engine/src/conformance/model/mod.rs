//! Runs random sequences of operations on the engine and on a model that is too simple to be wrong.
//!
//! `PROPTEST_CASES` sets the number of sequences. A failure is shrunk to the shortest sequence that
//! shows it, and printed.

mod expected;
mod play;
mod step;

use libtest_mimic::{Failed, Trial};
use proptest::test_runner::{Config, TestError, TestRunner};

use super::NewSubject;
use super::case::run;
use crate::Capabilities;
use step::Step;

const DEFAULT_SEQUENCES: u32 = 64;
const MAX_STEPS: usize = 60;

pub(super) fn trial(engine: &str, capabilities: Capabilities, new_subject: NewSubject) -> Trial {
    let name = format!("{engine}::model::random_operations_match_the_model");
    Trial::test(name, move || {
        let defaults = Config::default();
        let config = Config {
            cases: match std::env::var_os("PROPTEST_CASES") {
                Some(_) => defaults.cases,
                None => DEFAULT_SEQUENCES,
            },
            // The failure message has the whole sequence, so no regression file is needed.
            failure_persistence: None,
            max_shrink_iters: 4096,
            ..defaults
        };
        let steps = proptest::collection::vec(step::any_step(capabilities), 1..=MAX_STEPS);
        TestRunner::new(config)
            .run(&steps, |steps| run(play::play(new_subject(), &steps)))
            .map_err(|error| Failed::from(message(error)))
    })
}

fn message(error: TestError<Vec<Step>>) -> String {
    match error {
        TestError::Abort(reason) => reason.to_string(),
        TestError::Fail(reason, steps) => {
            let listed: Vec<String> = steps.iter().map(|step| format!("  {step:?}")).collect();
            format!("{reason}\nthe operations:\n{}", listed.join("\n"))
        }
    }
}
