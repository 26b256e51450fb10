//! A group over a real bus under random use: whatever consumers, storage and bus do, every event is
//! acknowledged or dead-lettered, once.

use std::time::Duration;

use proptest::prelude::*;
use tokio::runtime::Builder;

use crate::group_world::{Pace, World};

#[derive(Clone, Debug)]
enum Step {
    Publish { count: usize },
    Join { index: usize, max_in_flight: u32 },
    Leave { index: usize },
    SetPaused { index: usize, paused: bool },
    SetStalled { index: usize, stalled: bool },
    Ack { index: usize, pick: usize, count: usize },
    Nack { index: usize, pick: usize, delay_ms: Option<u64> },
    Wait { ms: u64 },
    FailCommits { before: usize, after: usize },
    FailReads { count: usize },
    Restart { consumers_first: bool },
}

fn steps(most: usize) -> impl Strategy<Value = Vec<Step>> {
    let index = || 0..3_usize;
    let rest = proptest::option::of(0..3000_u64);
    let step = prop_oneof![
        4 => (1..8_usize).prop_map(|count| Step::Publish { count }),
        3 => (index(), 1..8_u32)
            .prop_map(|(index, max_in_flight)| Step::Join { index, max_in_flight }),
        1 => index().prop_map(|index| Step::Leave { index }),
        1 => (index(), any::<bool>())
            .prop_map(|(index, paused)| Step::SetPaused { index, paused }),
        1 => (index(), any::<bool>())
            .prop_map(|(index, stalled)| Step::SetStalled { index, stalled }),
        5 => (index(), 0..8_usize, 1..4_usize)
            .prop_map(|(index, pick, count)| Step::Ack { index, pick, count }),
        2 => (index(), 0..8_usize, rest)
            .prop_map(|(index, pick, delay_ms)| Step::Nack { index, pick, delay_ms }),
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
            Step::Join { index, max_in_flight } => world.join(index, max_in_flight).await,
            Step::Leave { index } => world.leave(index).await,
            Step::SetPaused { index, paused } => world.set_paused(index, paused).await,
            Step::SetStalled { index, stalled } => world.set_stalled(index, stalled),
            Step::Ack { index, pick, count } => world.ack(index, pick, count).await,
            Step::Nack { index, pick, delay_ms } => world.nack(index, pick, delay_ms).await,
            Step::Wait { ms } => world.wait(Duration::from_millis(ms)).await,
            Step::FailCommits { before, after } => {
                world.faults.fail_commits_before(before);
                world.faults.fail_commits_after(after);
            }
            Step::FailReads { count } => world.faults.fail_reads(count),
            Step::Restart { consumers_first } => world.restart(consumers_first).await,
        }
        world.drain_queues().await;
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
