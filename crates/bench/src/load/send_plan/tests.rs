use super::*;
use crate::measure::latencies::Latencies;

fn load(events: u64, rate: Option<f64>) -> Load {
    Load { events, rate, window: 10, ..Load::default() }
}

const MS: Duration = Duration::from_millis(1);

/// Simulates a peer that answers after `answer_after`, and not at all during `stall`, in steps of a
/// tenth of a millisecond.
fn run(load: &Load, answer_after: Duration, stall: std::ops::Range<Duration>) -> (Latencies, u64) {
    let mut plan = SendPlan::new(load, 0);
    let mut latencies = Latencies::new();
    let mut answers = VecDeque::new();
    let mut now = Duration::ZERO;
    while !plan.is_done() {
        while plan.next(now).is_some() {
            answers.push_back(now + answer_after);
        }
        while !stall.contains(&now) && answers.front().is_some_and(|at| *at <= now) {
            answers.pop_front();
            plan.answered(now, |latency, events| latencies.record(latency, events)).unwrap();
        }
        now += MS / 10;
    }
    (latencies, plan.late())
}

#[test]
fn a_stall_counts_for_every_event_that_had_to_wait() {
    // 1,000 events per second for three seconds, with no answers for one of them.
    let (latencies, late) =
        run(&load(3000, Some(1000.0)), MS, Duration::from_secs(1)..Duration::from_secs(2));
    let summary = latencies.summary();
    assert_eq!(latencies.count(), 3000);
    // Without scheduled times, only the ten answers in the window would be slow, and even the 99th
    // percentile would not show the stall.
    assert!(summary.p50 < 2.0, "{summary:?}");
    assert!(summary.p90 > 500.0, "{summary:?}");
    assert!(summary.max > 990.0, "{summary:?}");
    // The events of that second except those in the window, and some while it caught up.
    assert!((980..=1200).contains(&late), "{late}");
}

#[test]
fn without_a_stall_nothing_is_late() {
    let (latencies, late) = run(&load(500, Some(1000.0)), MS, Duration::ZERO..Duration::ZERO);
    assert_eq!((latencies.count(), late), (500, 0));
    assert!(latencies.summary().max < 2.0);
}

#[test]
fn without_a_rate_latency_starts_with_sending() {
    let (latencies, late) =
        run(&load(100, None), MS, Duration::from_millis(5)..Duration::from_millis(105));
    // Only the window was in flight.
    assert_eq!((latencies.count(), late), (100, 0));
    let summary = latencies.summary();
    assert!(summary.p50 < 2.0 && summary.max > 90.0, "{summary:?}");
}

#[test]
fn the_window_is_never_exceeded() {
    let mut plan = SendPlan::new(&load(100, None), 0);
    assert_eq!(std::iter::from_fn(|| plan.next(MS)).count(), 10);
    plan.answered(MS * 2, |_, _| {}).unwrap();
    assert_eq!(std::iter::from_fn(|| plan.next(MS)).count(), 1);
}

#[test]
fn connections_share_the_frames_and_the_last_one_may_be_smaller() {
    let load = Load { batch: 4, connections: 3, window: 1000, ..load(30, None) };
    let mut frames: Vec<_> = (0..3)
        .flat_map(|index| {
            let mut plan = SendPlan::new(&load, index);
            std::iter::from_fn(move || plan.next(MS)).collect::<Vec<_>>()
        })
        .collect();
    frames.sort_by_key(|frame| frame.number);
    let expected: Vec<_> = (0..8)
        .map(|n| Frame { number: n, first: n * 4, count: if n == 7 { 2 } else { 4 } })
        .collect();
    assert_eq!(frames, expected);
}

#[test]
fn sends_a_batch_when_its_last_event_is_due() {
    let load = Load { batch: 4, ..load(4, Some(1000.0)) };
    let mut plan = SendPlan::new(&load, 0);
    assert_eq!(plan.next(MS * 2), None);
    assert!(plan.next(MS * 3).is_some());
    let mut latencies = Vec::new();
    plan.answered(MS * 5, |latency, events| latencies.push((latency, events)));
    assert_eq!(latencies, [(MS * 5, 1), (MS * 4, 1), (MS * 3, 1), (MS * 2, 1)]);
    assert!(plan.is_done());
}

#[test]
fn sends_a_batch_that_exceeds_the_window_on_its_own() {
    let load = Load { batch: 100, ..load(200, None) };
    let mut plan = SendPlan::new(&load, 0);
    assert!(plan.next(MS).is_some());
    assert_eq!(plan.next(MS), None);
    plan.answered(MS, |_, _| {});
    assert!(plan.next(MS).is_some());
}
