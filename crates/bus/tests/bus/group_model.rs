//! A group under random use, against a model: whatever its consumers, its storage and its bus do,
//! every event is acknowledged or a dead letter, and is so once.

use std::time::Duration;

use proptest::prelude::*;
use tokio::runtime::Builder;

use crate::group_world::{Pace, World};

#[derive(Clone, Debug)]
enum Step {
    Publish { count: usize },
    Join { place: usize, max_in_flight: u32 },
    Leave { place: usize },
    SetPaused { place: usize, paused: bool },
    SetStalled { place: usize, stalled: bool },
    Ack { place: usize, pick: usize, count: usize },
    Nack { place: usize, pick: usize, rest_ms: Option<u64> },
    Wait { ms: u64 },
    FailCommits { before: usize, after: usize },
    FailReads { count: usize },
    Restart { consumers_first: bool },
}

fn steps(most: usize) -> impl Strategy<Value = Vec<Step>> {
    let place = || 0..3_usize;
    let rest = proptest::option::of(0..3000_u64);
    let step = prop_oneof![
        4 => (1..8_usize).prop_map(|count| Step::Publish { count }),
        3 => (place(), 1..8_u32)
            .prop_map(|(place, max_in_flight)| Step::Join { place, max_in_flight }),
        1 => place().prop_map(|place| Step::Leave { place }),
        1 => (place(), any::<bool>())
            .prop_map(|(place, paused)| Step::SetPaused { place, paused }),
        1 => (place(), any::<bool>())
            .prop_map(|(place, stalled)| Step::SetStalled { place, stalled }),
        5 => (place(), 0..8_usize, 1..4_usize)
            .prop_map(|(place, pick, count)| Step::Ack { place, pick, count }),
        2 => (place(), 0..8_usize, rest)
            .prop_map(|(place, pick, rest_ms)| Step::Nack { place, pick, rest_ms }),
        3 => (1..7000_u64).prop_map(|ms| Step::Wait { ms }),
        1 => (0..3_usize, 0..3_usize)
            .prop_map(|(before, after)| Step::FailCommits { before, after }),
        1 => (1..3_usize).prop_map(|count| Step::FailReads { count }),
        1 => any::<bool>().prop_map(|consumers_first| Step::Restart { consumers_first }),
    ];
    proptest::collection::vec(step, 1..most)
}

async fn live(mut world: World, steps: &[Step]) {
    for step in steps {
        match *step {
            Step::Publish { count } => world.publish(count).await,
            Step::Join { place, max_in_flight } => world.join(place, max_in_flight).await,
            Step::Leave { place } => world.leave(place).await,
            Step::SetPaused { place, paused } => world.set_paused(place, paused).await,
            Step::SetStalled { place, stalled } => world.set_stalled(place, stalled),
            Step::Ack { place, pick, count } => world.ack(place, pick, count).await,
            Step::Nack { place, pick, rest_ms } => world.nack(place, pick, rest_ms).await,
            Step::Wait { ms } => world.wait(Duration::from_millis(ms)).await,
            Step::FailCommits { before, after } => {
                world.faults.fail_commits_before(before);
                world.faults.fail_commits_after(after);
            }
            Step::FailReads { count } => world.faults.fail_reads(count),
            Step::Restart { consumers_first } => world.restart(consumers_first).await,
        }
        world.read_outboxes().await;
        world.check().await;
    }
    world.finish().await;
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    #[test]
    fn every_event_is_done_once_in_memory(steps in steps(60)) {
        let mut runtime = Builder::new_current_thread();
        let runtime = runtime.enable_time().start_paused(true).build().unwrap();
        runtime.block_on(async { live(World::in_memory(), &steps).await });
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 12, max_shrink_iters: 50, ..ProptestConfig::default() })]

    #[test]
    fn every_event_is_done_once_on_a_disk(steps in steps(40)) {
        let runtime = Builder::new_current_thread().enable_time().build().unwrap();
        runtime.block_on(async { live(World::on_disk(Pace::Hundredfold), &steps).await });
    }
}
