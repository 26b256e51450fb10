use super::*;
use crate::measure::latencies::Latencies;

fn load(events: u64, rate: Option<f64>) -> Load {
    Load { events, rate, window: 10, ..Load::default() }
}

const MS: Duration = Duration::from_millis(1);

/// A peer that answers `answer_after` each frame, and nothing between `stall` and its end. Steps of
/// a tenth of a millisecond.
fn run(load: &Load, answer_after: Duration, stall: std::ops::Range<Duration>) -> (Latencies, u64) {
    let mut sending = Sending::new(load, 0);
    let mut latencies = Latencies::new();
    let mut answers = VecDeque::new();
    let mut now = Duration::ZERO;
    while !sending.is_done() {
        while sending.next(now).is_some() {
            answers.push_back(now + answer_after);
        }
        while !stall.contains(&now) && answers.front().is_some_and(|at| *at <= now) {
            answers.pop_front();
            sending.answered(now, |latency, events| latencies.record(latency, events)).unwrap();
        }
        now += MS / 10;
    }
    (latencies, sending.late())
}

#[test]
fn a_stall_is_charged_to_every_event_that_had_to_wait() {
    // 1,000 a second for three seconds; for one of them nothing is answered.
    let (latencies, late) =
        run(&load(3000, Some(1000.0)), MS, Duration::from_secs(1)..Duration::from_secs(2));
    let summary = latencies.summary();
    assert_eq!(latencies.count(), 3000);
    // Without the intended times there would be ten slow answers, those of the window, in 3,000:
    // even the 99th percentile would show none of it.
    assert!(summary.p50 < 2.0, "{summary:?}");
    assert!(summary.p90 > 500.0, "{summary:?}");
    assert!(summary.max > 990.0, "{summary:?}");
    // All that were meant for that second but those that the window took, and those a bit later,
    // while it caught up.
    assert!((980..=1200).contains(&late), "{late}");
}

#[test]
fn without_a_stall_nothing_is_late() {
    let (latencies, late) = run(&load(500, Some(1000.0)), MS, Duration::ZERO..Duration::ZERO);
    assert_eq!((latencies.count(), late), (500, 0));
    assert!(latencies.summary().max < 2.0);
}

#[test]
fn flat_out_counts_from_the_sending() {
    let (latencies, late) =
        run(&load(100, None), MS, Duration::from_millis(5)..Duration::from_millis(105));
    // Only the window was on its way.
    assert_eq!((latencies.count(), late), (100, 0));
    let summary = latencies.summary();
    assert!(summary.p50 < 2.0 && summary.max > 90.0, "{summary:?}");
}

#[test]
fn the_window_is_never_exceeded() {
    let mut sending = Sending::new(&load(100, None), 0);
    assert_eq!(std::iter::from_fn(|| sending.next(MS)).count(), 10);
    sending.answered(MS * 2, |_, _| {}).unwrap();
    assert_eq!(std::iter::from_fn(|| sending.next(MS)).count(), 1);
}

#[test]
fn connections_share_all_frames_and_the_last_is_as_large_as_what_is_left() {
    let load = Load { batch: 4, connections: 3, window: 1000, ..load(30, None) };
    let mut frames: Vec<_> = (0..3)
        .flat_map(|place| {
            let mut sending = Sending::new(&load, place);
            std::iter::from_fn(move || sending.next(MS)).collect::<Vec<_>>()
        })
        .collect();
    frames.sort_by_key(|frame| frame.number);
    let expected: Vec<_> = (0..8)
        .map(|n| Frame { number: n, first: n * 4, count: if n == 7 { 2 } else { 4 } })
        .collect();
    assert_eq!(frames, expected);
}

#[test]
fn a_batch_goes_when_its_last_event_is_due_and_each_counts_from_its_own_time() {
    let load = Load { batch: 4, ..load(4, Some(1000.0)) };
    let mut sending = Sending::new(&load, 0);
    assert_eq!(sending.next(MS * 2), None);
    assert!(sending.next(MS * 3).is_some());
    let mut latencies = Vec::new();
    sending.answered(MS * 5, |latency, events| latencies.push((latency, events)));
    assert_eq!(latencies, [(MS * 5, 1), (MS * 4, 1), (MS * 3, 1), (MS * 2, 1)]);
    assert!(sending.is_done());
}

#[test]
fn a_batch_that_is_larger_than_the_window_goes_alone() {
    let load = Load { batch: 100, ..load(200, None) };
    let mut sending = Sending::new(&load, 0);
    assert!(sending.next(MS).is_some());
    assert_eq!(sending.next(MS), None);
    sending.answered(MS, |_, _| {});
    assert!(sending.next(MS).is_some());
}
