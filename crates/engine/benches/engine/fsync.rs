//! Fsynced commits of single events: many writers compared with one.

use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use prombus_engine::{Batch, DiskEngine, DiskOptions, Durability, Engine};

use crate::events;
use crate::report::{Report, median};
use crate::runtime;

const WRITERS: usize = 64;
/// Many short rounds, so that a disk that is slow for a while spoils some of them but not the median.
const ROUNDS: usize = 9;
const MAX_COMMITS: usize = 500_000;
const TIME: Duration = Duration::from_millis(700);

pub(crate) fn run(folder: &Path, report: &mut Report) {
    let (mut alone, mut together, mut gathered, mut plain) = (vec![], vec![], vec![], vec![]);
    let mut times_one = vec![];
    // Nothing is deleted before the end: freeing space would keep the disk busy during later rounds.
    for round in 0..ROUNDS {
        let (one, _) = rate(&folder.join(format!("alone-{round}")), 1);
        let (all, per_sync) = rate(&folder.join(format!("together-{round}")), WRITERS);
        plain.push(plain_loop(&folder.join(format!("plain-{round}"))));
        times_one.push(all / one);
        alone.push(one);
        together.push(all);
        gathered.push(per_sync);
    }
    let (alone, together, plain) = (median(alone), median(together), median(plain));
    report.row(
        &format!("(b) fsynced commits of one event, {WRITERS} writers"),
        format!("{together:.0}/s, {:.0} commits per sync", median(gathered)),
        format!("1 writer {alone:.0}/s"),
        format!("{:.1}", median(times_one)),
        "≥ 30",
    );
    report.row(
        "(b) fsynced commits of one event, 1 writer",
        format!("{alone:.0}/s"),
        format!("plain write and fdatasync {plain:.0}/s"),
        format!("{:.2}", alone / plain),
        "",
    );
}

fn plain_loop(path: &Path) -> f64 {
    use std::io::Write;
    let record = [b'x'; events::EVENT_BYTES];
    let mut file = std::fs::File::create(path).unwrap();
    let start = Instant::now();
    let mut writes = 0;
    while start.elapsed() < TIME / 2 {
        file.write_all(&record).unwrap();
        file.sync_data().unwrap();
        writes += 1;
    }
    f64::from(writes) / start.elapsed().as_secs_f64()
}

fn rate(folder: &Path, writers: usize) -> (f64, f64) {
    runtime().block_on(async {
        let options = DiskOptions::at(folder);
        let engine: Arc<dyn Engine> = Arc::new(DiskEngine::open(&options).unwrap());
        // Encoded before the measurement starts: encoding is the publisher's work.
        let events = events::batches(&events::topic(0), MAX_COMMITS, &events::ids());
        let events = Arc::new(Mutex::new(events.into_iter().flatten()));
        let (stop, commits) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let syncs_before = options.faults.syncs();
        let start = Instant::now();
        let tasks: Vec<_> = (0..writers)
            .map(|_| {
                let (engine, events) = (Arc::clone(&engine), Arc::clone(&events));
                let (stop, commits) = (Arc::clone(&stop), Arc::clone(&commits));
                tokio::spawn(async move {
                    while !stop.load(Ordering::Relaxed) {
                        let event = events.lock().unwrap().next().expect("enough events");
                        let batch = Batch::of_events(vec![event], Durability::Fsync);
                        engine.commit(batch).await.unwrap();
                        commits.fetch_add(1, Ordering::Relaxed);
                    }
                })
            })
            .collect();
        tokio::time::sleep(TIME).await;
        stop.store(true, Ordering::Relaxed);
        let commits = commits.load(Ordering::Relaxed) as f64;
        let rate = commits / start.elapsed().as_secs_f64();
        let per_sync = commits / (options.faults.syncs() - syncs_before) as f64;
        for task in tasks {
            task.await.unwrap();
        }
        engine.close().await.unwrap();
        (rate, per_sync)
    })
}
