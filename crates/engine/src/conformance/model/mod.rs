//! Everything at once: random steps, on the engine and on a model that is too simple to be wrong.
//!
//! `PROPTEST_CASES` says how many sequences are tried. A failure is shrunk and printed as the
//! shortest sequence of steps that shows it.

mod expected;
mod play;
mod step;

use libtest_mimic::{Failed, Trial};
use proptest::test_runner::{Config, TestError, TestRunner};

use super::NewSubject;
use super::case::run;
use crate::Capabilities;
use step::Step;

const SEQUENCES_UNLESS_SET: u32 = 64;
const MOST_STEPS: usize = 60;

pub(super) fn trial(engine: &str, capabilities: Capabilities, new_subject: NewSubject) -> Trial {
    let name = format!("{engine}::model::random_steps_do_what_the_model_does");
    Trial::test(name, move || {
        let defaults = Config::default();
        let config = Config {
            cases: match std::env::var_os("PROPTEST_CASES") {
                Some(_) => defaults.cases,
                None => SEQUENCES_UNLESS_SET,
            },
            // The shortest sequence is in the failure; a file beside the sources is not needed.
            failure_persistence: None,
            max_shrink_iters: 4096,
            ..defaults
        };
        let steps = proptest::collection::vec(step::any_step(capabilities), 1..=MOST_STEPS);
        TestRunner::new(config)
            .run(&steps, |steps| run(play::play(new_subject(), &steps)))
            .map_err(|error| Failed::from(told(error)))
    })
}

fn told(error: TestError<Vec<Step>>) -> String {
    match error {
        TestError::Abort(reason) => reason.to_string(),
        TestError::Fail(reason, steps) => {
            let listed: Vec<String> = steps.iter().map(|step| format!("  {step:?}")).collect();
            format!("{reason}\nthe steps:\n{}", listed.join("\n"))
        }
    }
}
