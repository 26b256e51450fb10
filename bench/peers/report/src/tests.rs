//! The page and the charts, from fixed measurements.

use std::time::{Duration, Instant};

use crate::chart::{Bar, bars};
use crate::page::{SECTION_END, SECTION_START, grouped, section};
use crate::{
    DiskLatency, Machine, Measurement, MissingSystem, Outcome, Plan, Results, Span, StealFree,
    StealSamples, SystemInfo, Workload, median, write_docs,
};

fn system(name: &str, label: &str, fsynced: bool) -> SystemInfo {
    SystemInfo {
        name: name.to_owned(),
        label: label.to_owned(),
        version: "1.2.3".to_owned(),
        client: "client 4.5.6".to_owned(),
        settings: "defaults".to_owned(),
        usage: "one by one".to_owned(),
        publish_guarantee: "stored".to_owned(),
        ack_guarantee: "confirmed".to_owned(),
        fsynced,
    }
}

fn rate(system: &str, workload: Workload, round: u32, rate: u64) -> Measurement {
    let outcome = Outcome::Rate { events: rate * 2, seconds: 2.0 };
    Measurement { system: system.to_owned(), workload, round, outcome }
}

fn results() -> Results {
    let latency = Outcome::Latency {
        events: 5000,
        undelivered: 0,
        p50_us: 400,
        p99_us: 1500,
        p999_us: 2000,
        max_us: 2500,
        disk: DiskLatency {
            scheduled_p99_us: 500,
            calls_p99_us: 300,
            back_to_back_p99_us: 250,
            plain_file_p99_us: 1000,
            plain_file_calls_p99_us: 250,
        },
        stolen_ms: 1230,
        steal_free: StealFree {
            events_percent: 80,
            p99_us: 900,
            scheduled_p99_us: 450,
            calls_p99_us: 300,
        },
    };
    let mut always_stolen = latency.clone();
    if let Outcome::Latency { steal_free, .. } = &mut always_stolen {
        *steal_free =
            StealFree { scheduled_p99_us: 600, calls_p99_us: 500, ..StealFree::default() };
    }
    let always_stolen = Measurement {
        system: "nats".to_owned(),
        workload: Workload::Steady,
        round: 1,
        outcome: always_stolen,
    };
    let steady = Measurement {
        system: "prombus".to_owned(),
        workload: Workload::Steady,
        round: 1,
        outcome: latency,
    };
    let reason = "took too long".to_owned();
    let failed = Measurement {
        system: "nats".to_owned(),
        workload: Workload::Backlog,
        round: 2,
        outcome: Outcome::Failed { reason },
    };
    Results {
        date: "2026-01-02".to_owned(),
        revision: "abc".to_owned(),
        remark: Some("a short run".to_owned()),
        machine: Machine {
            processor: "a processor".to_owned(),
            cores: 2,
            memory_gib: 8,
            kernel: "Linux".to_owned(),
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
        systems: vec![system("prombus", "Prombus", true), system("nats", "NATS <default>", false)],
        missing: vec![MissingSystem {
            label: "Redis".to_owned(),
            reason: "not installed".to_owned(),
        }],
        measurements: vec![
            rate("prombus", Workload::PublishEach, 1, 200_000),
            rate("nats", Workload::PublishEach, 1, 100_000),
            rate("prombus", Workload::PublishEach, 2, 20_000),
            rate("nats", Workload::PublishEach, 2, 5_000),
            rate("prombus", Workload::PublishEach, 3, 300_000),
            rate("nats", Workload::PublishEach, 3, 100_000),
            rate("prombus", Workload::PublishBatches, 1, 900_000),
            steady,
            always_stolen,
            failed,
        ],
    }
}

#[test]
fn the_median_of_an_even_number_is_the_mean_of_the_middle_two() {
    assert_eq!(median(vec![]), None);
    assert_eq!(median(vec![3.0, 1.0, 2.0]), Some(2.0));
    assert_eq!(median(vec![4.0, 1.0, 2.0, 3.0]), Some(2.5));
}

#[test]
fn ratios_compare_rates_of_the_same_round() {
    let results = results();
    let workload = Workload::PublishEach;
    assert_eq!(results.rate("prombus", workload), Some(200_000.0));
    // 2, 4 and 3: not the ratio of the medians, which is 2.
    assert_eq!(results.ratio("nats", workload, workload), Some(3.0));
    assert_eq!(results.ratio("nats", Workload::Backlog, Workload::Backlog), None);
    assert_eq!(results.ratio("nats", Workload::PublishBatches, workload), Some(9.0));
}

#[test]
fn the_page_shows_rates_ratios_failures_and_missing_systems() {
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
    assert!(!page.contains("c.svg"), "that chart would be empty");
}

#[test]
fn the_length_of_a_bar_is_its_share_of_the_largest_value() {
    let bar = |label: &str, value, fsynced| Bar {
        label: label.to_owned(),
        value,
        is_prombus: false,
        fsynced,
    };
    let svg = bars("a & b", "/s", &[bar("full", 1000.0, true), bar("half", 500.0, false)]);
    assert!(svg.contains(r##"width="430.0" height="18" fill="#475569""##), "{svg}");
    assert!(svg.contains(r##"width="215.0" height="18" fill="#ffffff""##), "{svg}");
    assert!(svg.contains("a &amp; b") && svg.contains("1,000/s"), "{svg}");
    assert!(svg.starts_with("<svg ") && svg.ends_with("</svg>\n"), "{svg}");
}

#[test]
fn thousands_are_separated_by_commas() {
    assert_eq!([0.0, 999.4, 1000.0, 1_234_567.0].map(grouped), ["0", "999", "1,000", "1,234,567"]);
}

#[test]
fn only_the_generated_section_of_the_page_is_rewritten() {
    let json = serde_json::to_string(&results()).unwrap();
    let read: Results = serde_json::from_str(&json).unwrap();
    assert_eq!(section(&read), section(&results()));

    let folder = std::env::temp_dir().join(format!("prombus-peers-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let page = folder.join("benchmarks.md");
    std::fs::write(&page, "# Before\n").unwrap();
    assert!(write_docs(&read, &folder).unwrap_err().to_string().contains("no generated section"));
    std::fs::write(
        &page,
        format!("# Before\n\n{SECTION_START}the last run\n{SECTION_END}\n## After\n"),
    )
    .unwrap();
    write_docs(&read, &folder).unwrap();
    // Writing it again changes nothing.
    write_docs(&read, &folder).unwrap();
    let written = std::fs::read_to_string(page).unwrap();
    let chart = std::fs::read_to_string(folder.join("benchmarks-peers/a.svg")).unwrap();
    std::fs::remove_dir_all(&folder).unwrap();
    assert_eq!(
        written,
        format!("# Before\n\n{SECTION_START}\n{}\n{SECTION_END}\n## After\n", section(&read))
    );
    assert!(chart.contains("NATS &lt;default&gt;"));
}

#[test]
fn spans_near_steal_are_not_free_of_it() {
    let start = Instant::now() + Duration::from_secs(10);
    let at = |ms: u64| start + Duration::from_millis(ms);
    let mut samples = StealSamples::new(at(0), Duration::from_millis(70));
    for ms in (20..2000).step_by(20) {
        samples.push(at(ms), Duration::from_millis(if ms < 1000 { 70 } else { 90 }));
    }
    let is_free = |from, to| samples.is_free_of_steal(&Span { from: at(from), to: at(to) });
    assert_eq!(samples.total(), Duration::from_millis(20));
    assert!(is_free(100, 800) && is_free(1100, 1900));
    assert!(!is_free(100, 950) && !is_free(1050, 1900) && !is_free(995, 996));
    // Outside the samples, the first and the last one count.
    assert!(is_free(0, 10) && is_free(1990, 5000) && !is_free(0, 5000));
}
