//! The page and the charts, on fixed measurements.

use std::time::{Duration, Instant};

use crate::chart::{Bar, bars};
use crate::page::{BEGIN, END, grouped, section};
use crate::{
    Disk, Facts, Machine, Measurement, Missing, Outcome, Plan, Results, Span, Spared, Stolen, Work,
    median, write_docs,
};

fn facts(name: &str, label: &str, fsynced: bool) -> Facts {
    Facts {
        name: name.to_owned(),
        label: label.to_owned(),
        version: "1.2.3".to_owned(),
        client: "client 4.5.6".to_owned(),
        settings: "defaults".to_owned(),
        usage: "one by one".to_owned(),
        publish_promise: "stored".to_owned(),
        ack_promise: "answered".to_owned(),
        fsynced,
    }
}

fn seen(system: &str, work: Work, round: u32, rate: u64) -> Measurement {
    let outcome = Outcome::Rate { events: rate * 2, seconds: 2.0 };
    Measurement { system: system.to_owned(), work, round, outcome }
}

fn results() -> Results {
    let latency = Outcome::Latency {
        events: 5000,
        undelivered: 0,
        p50_us: 400,
        p99_us: 1500,
        p999_us: 2000,
        max_us: 2500,
        disk: Disk {
            meanwhile_p99_us: 500,
            calls_p99_us: 300,
            flat_out_p99_us: 250,
            file_p99_us: 1000,
            file_calls_p99_us: 250,
        },
        stolen_ms: 1230,
        spared: Spared {
            events_percent: 80,
            p99_us: 900,
            meanwhile_p99_us: 450,
            calls_p99_us: 300,
        },
    };
    let mut never_spared = latency.clone();
    if let Outcome::Latency { spared, .. } = &mut never_spared {
        *spared = Spared { meanwhile_p99_us: 600, calls_p99_us: 500, ..Spared::default() };
    }
    let never_spared = Measurement {
        system: "nats".to_owned(),
        work: Work::Steady,
        round: 1,
        outcome: never_spared,
    };
    let steady = Measurement {
        system: "prombus".to_owned(),
        work: Work::Steady,
        round: 1,
        outcome: latency,
    };
    let why = "took too long".to_owned();
    let failed = Measurement {
        system: "nats".to_owned(),
        work: Work::Backlog,
        round: 2,
        outcome: Outcome::Failed { why },
    };
    Results {
        today: "2026-01-02".to_owned(),
        revision: "abc".to_owned(),
        remark: Some("a short run".to_owned()),
        machine: Machine {
            processor: "a processor".to_owned(),
            cores: 2,
            memory_gib: 8,
            system: "Linux".to_owned(),
        },
        plan: Plan {
            events: 100_000,
            seconds: 2,
            rounds: 3,
            window: 1000,
            batch: 100,
            per_second: 5000,
            steady_seconds: 6,
            sync_every_ms: 2,
            event_bytes: 236,
        },
        systems: vec![facts("prombus", "Prombus", true), facts("nats", "NATS <default>", false)],
        missing: vec![Missing { label: "Redis".to_owned(), why: "not installed".to_owned() }],
        measurements: vec![
            seen("prombus", Work::PublishEach, 1, 200_000),
            seen("nats", Work::PublishEach, 1, 100_000),
            seen("prombus", Work::PublishEach, 2, 20_000),
            seen("nats", Work::PublishEach, 2, 5_000),
            seen("prombus", Work::PublishEach, 3, 300_000),
            seen("nats", Work::PublishEach, 3, 100_000),
            seen("prombus", Work::PublishBatches, 1, 900_000),
            steady,
            never_spared,
            failed,
        ],
    }
}

#[test]
fn the_median_is_the_middle_one() {
    assert_eq!(median(vec![]), None);
    assert_eq!(median(vec![3.0, 1.0, 2.0]), Some(2.0));
    assert_eq!(median(vec![4.0, 1.0, 2.0, 3.0]), Some(2.5));
}

#[test]
fn a_ratio_is_of_the_same_round() {
    let results = results();
    let work = Work::PublishEach;
    assert_eq!(results.rate("prombus", work), Some(200_000.0));
    // 2, 4 and 3: not the ratio of the medians, which is 2.
    assert_eq!(results.ratio("nats", work, work), Some(3.0));
    assert_eq!(results.ratio("nats", Work::Backlog, Work::Backlog), None);
    assert_eq!(results.ratio("nats", Work::PublishBatches, work), Some(9.0));
}

#[test]
fn the_page_names_rates_ratios_failures_and_who_is_missing() {
    let page = section(&results());
    for line in [
        "| Prombus (fsynced) | 200,000 | 900,000 | – | – |",
        "| NATS <default> (not fsynced) | 100,000 | – | – | – |",
        "| NATS <default> | 3.00 | – | – | – |",
        "| (a) publish one at a time | NATS <default>, (a) publish one at a time | 3.00 | ≥ 2 |",
        "| Prombus | 0.40 | 1.50 | 2.00 | 2.50 | 0 |",
        "| Prombus | 0.30 | 5.00 | 0.50 | 3.00 | 1.00 | 1.50 | 4.00 | 0.25 |",
        "| Prombus | 1,230 | 80 | 0.90 | 0.30 | 3.00 | 0.45 | 2.00 |",
        "| NATS <default> | 1,230 | 0 | – | 0.50 | – | 0.60 | – |",
        "**Not measured: Redis: not installed.**",
        "**Failed: nats, (d), round 2: took too long.**",
        "**a short run**",
        "![(a) publish one at a time](benchmarks-peers/a.svg)",
        "| NATS <default> | 1.2.3 | client 4.5.6 | `defaults` | one by one |",
    ] {
        assert!(page.lines().any(|found| found == line), "{line}\nis not in\n{page}");
    }
    assert!(!page.contains("c.svg"), "there is nothing to see in that chart");
}

#[test]
fn a_bar_is_as_long_as_its_share() {
    let bar =
        |label: &str, value, fsynced| Bar { label: label.to_owned(), value, ours: false, fsynced };
    let svg = bars("a & b", "/s", &[bar("full", 1000.0, true), bar("half", 500.0, false)]);
    assert!(svg.contains(r##"width="430.0" height="18" fill="#475569""##), "{svg}");
    assert!(svg.contains(r##"width="215.0" height="18" fill="#ffffff""##), "{svg}");
    assert!(svg.contains("a &amp; b") && svg.contains("1,000/s"), "{svg}");
    assert!(svg.starts_with("<svg ") && svg.ends_with("</svg>\n"), "{svg}");
}

#[test]
fn numbers_have_commas() {
    assert_eq!([0.0, 999.4, 1000.0, 1_234_567.0].map(grouped), ["0", "999", "1,000", "1,234,567"]);
}

#[test]
fn results_survive_their_file_and_become_files() {
    let json = serde_json::to_string(&results()).unwrap();
    let read: Results = serde_json::from_str(&json).unwrap();
    assert_eq!(section(&read), section(&results()));

    let folder = std::env::temp_dir().join(format!("prombus-peers-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let page = folder.join("benchmarks.md");
    std::fs::write(&page, "# Before\n").unwrap();
    assert!(write_docs(&read, &folder).unwrap_err().to_string().contains("no section"));
    std::fs::write(&page, format!("# Before\n\n{BEGIN}what was seen then\n{END}\n## After\n"))
        .unwrap();
    write_docs(&read, &folder).unwrap();
    // Twice: nothing but the section changes.
    write_docs(&read, &folder).unwrap();
    let written = std::fs::read_to_string(page).unwrap();
    let chart = std::fs::read_to_string(folder.join("benchmarks-peers/a.svg")).unwrap();
    std::fs::remove_dir_all(&folder).unwrap();
    assert_eq!(written, format!("# Before\n\n{BEGIN}\n{}\n{END}\n## After\n", section(&read)));
    assert!(chart.contains("NATS &lt;default&gt;"));
}

#[test]
fn what_is_near_to_a_theft_was_not_spared() {
    let start = Instant::now() + Duration::from_secs(10);
    let at = |ms: u64| start + Duration::from_millis(ms);
    let mut seen = Stolen::at_first(at(0), Duration::from_millis(70));
    for ms in (20..2000).step_by(20) {
        seen.then(at(ms), Duration::from_millis(if ms < 1000 { 70 } else { 90 }));
    }
    let spared = |from, to| seen.spared(&Span { from: at(from), to: at(to) });
    assert_eq!(seen.total(), Duration::from_millis(20));
    assert!(spared(100, 800) && spared(1100, 1900));
    assert!(!spared(100, 950) && !spared(1050, 1900) && !spared(995, 996));
    // Before the first look and behind the last, these count.
    assert!(spared(0, 10) && spared(1990, 5000) && !spared(0, 5000));
}
