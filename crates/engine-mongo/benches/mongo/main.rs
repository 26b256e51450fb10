//! Compares commits and publishing with what the bare driver does with the same documents, on one
//! server in one run.
//!
//! `cargo bench -p prombus-engine-mongo --bench mongo -- [commits | bus]`. Starts a
//! replica set of one member in a temporary folder.

#![allow(clippy::unwrap_used, reason = "a benchmark that fails says where")]
#![allow(clippy::print_stdout, reason = "what it prints is what it is for")]

mod bare;
mod commits;
mod load;
mod publishing;

use prombus_engine::Durability;
use prombus_test_mongod::{Kind, shared, stop_shared};

use crate::load::{Load, Topics};

const ROUNDS: u32 = 3;

fn main() {
    let only = std::env::args().skip(1).find(|word| !word.starts_with('-'));
    let has = |part: &str| only.as_ref().is_none_or(|only| only == part);
    let url = shared(Kind::ReplicaSet).url();
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(async {
        if has("commits") {
            print_head("commit");
            for durability in [Durability::Buffered, Durability::Fsync] {
                for (writers, events) in [(1, 1), (1, 100), (16, 100), (1, 1000)] {
                    let topics = Topics::Each;
                    let load = Load { durability, writers, events, window: 1, topics };
                    let mut rates = Vec::new();
                    for _ in 0..ROUNDS {
                        // Alternating, so that both meet the same conditions.
                        rates.push((bare::rate(&url, load).await, commits::rate(&url, load).await));
                    }
                    print_line(load, &rates);
                }
            }
        }
        if has("bus") {
            print_head("publish");
            for durability in [Durability::Buffered, Durability::Fsync] {
                for (events, window) in [(100, 1), (1, 32)] {
                    for topics in [Topics::One, Topics::Each] {
                        let load = Load { durability, writers: 16, events, window, topics };
                        let mut rates = Vec::new();
                        for _ in 0..ROUNDS {
                            rates.push((
                                bare::rate(&url, load).await,
                                publishing::rate(&url, load).await,
                            ));
                        }
                        print_line(load, &rates);
                    }
                }
            }
        }
    });
    stop_shared();
}

fn print_head(ours: &str) {
    println!("{:<44}{:>12}{ours:>12}{:>8}   by round", "", "insert_many", "ratio");
}

fn print_line(load: Load, rates: &[(f64, f64)]) {
    let bare: f64 = rates.iter().map(|(bare, _)| bare).sum();
    let ours: f64 = rates.iter().map(|(_, ours)| ours).sum();
    let count = rates.len() as f64;
    let each: Vec<String> =
        rates.iter().map(|(bare, ours)| format!("{:.2}", ours / bare)).collect();
    println!(
        "{:<44}{:>10.0}/s{:>10.0}/s{:>8.2}   {}",
        load.name(),
        bare / count,
        ours / count,
        ours / bare,
        each.join(" ")
    );
}
