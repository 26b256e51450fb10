//! Three real buses over one store with random faults: nothing is lost, and nothing is redelivered after
//! its ACK.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use prombus_bus::Delivery;
use prombus_engine::{Faults, FaultyEngine};
use prombus_proto::{RandomSource, SeededRandom, Seq};

use crate::harness::{
    Consumer, Harness, at_most, billing, event, memory, orders, settle, stored, stored_cursor,
    unlimited,
};
use crate::watched_engine::WatchedEngine;

const LEASE: Duration = Duration::from_secs(10);
const GATEWAYS: u64 = 3;
const STEPS: usize = 120;
const RUNS: u64 = 400;

struct Gateway {
    harness: Harness,
    faults: Faults,
    consumer: Option<Consumer>,
    /// Deliveries that its consumer has not acknowledged.
    open: Vec<Delivery>,
}

struct World {
    store: Arc<WatchedEngine>,
    random: SeededRandom,
    lives: u64,
    gateways: Vec<Gateway>,
    done: BTreeSet<u64>,
}

impl World {
    fn new(seed: u64) -> Self {
        let mut world = Self {
            store: WatchedEngine::for_several(memory()),
            random: SeededRandom::new(seed),
            lives: 0,
            gateways: vec![],
            done: BTreeSet::new(),
        };
        for _ in 0..GATEWAYS {
            let gateway = world.new_gateway();
            world.gateways.push(gateway);
        }
        world
    }

    fn new_gateway(&mut self) -> Gateway {
        self.lives += 1;
        let faults = Faults::none();
        let engine = Arc::new(FaultyEngine::new(self.store.clone(), faults.clone()));
        let settings = prombus_bus::Settings { group_lease: LEASE, ..unlimited() };
        let harness = Harness::numbered(1000 + self.lives, engine, settings);
        Gateway { harness, faults, consumer: None, open: vec![] }
    }

    fn below(&self, end: u64) -> u64 {
        self.random.next_u64() % end
    }

    fn any(&self) -> usize {
        usize::try_from(self.below(GATEWAYS)).unwrap()
    }

    async fn step(&mut self) {
        let index = self.any();
        match self.below(12) {
            0 | 1 => {
                let count = usize::try_from(self.below(5)).unwrap() + 1;
                let gateway = &self.gateways[index];
                let events = (0..count).map(|n| event(&n.to_string())).collect();
                // Refused if the gateway is cut off.
                let connection = gateway.harness.bus.connect();
                let _ = gateway.harness.try_publish(&connection, &orders(), events).await;
            }
            2..=4 => self.acknowledge(index).await,
            5 => {
                if self.gateways[index].consumer.is_none() {
                    let options = at_most(5);
                    let joined =
                        self.gateways[index].harness.try_subscribe(&orders(), options).await;
                    self.gateways[index].consumer = joined.ok();
                }
            }
            6 => {
                self.gateways[index].consumer = None;
                self.gateways[index].open.clear();
            }
            7 => {
                let faults = &self.gateways[index].faults;
                faults.fail_commits_before(usize::MAX);
                faults.fail_reads(usize::MAX);
            }
            8 => self.gateways[index].faults.heal(),
            9 => self.gateways[index].faults.fail_commits_after(1),
            10 => {
                if self.below(4) == 0 {
                    // The gateway dies: its bus first, so that nothing can be released.
                    let new = self.new_gateway();
                    let Gateway { harness, consumer, .. } =
                        std::mem::replace(&mut self.gateways[index], new);
                    drop(harness);
                    drop(consumer);
                }
            }
            _ => {
                let time = Duration::from_millis(self.below(15_000));
                tokio::time::sleep(time).await;
            }
        }
        self.look().await;
    }

    /// Takes what was delivered.
    async fn look(&mut self) {
        settle().await;
        for gateway in &mut self.gateways {
            let Some(consumer) = &gateway.consumer else { continue };
            for delivery in consumer.arrived().await {
                let seq = delivery.event.seq.0;
                assert!(!self.done.contains(&seq), "{seq} comes again after its acknowledgement");
                gateway.open.push(delivery);
            }
        }
    }

    async fn acknowledge(&mut self, index: usize) {
        let gateway = &mut self.gateways[index];
        let Some(consumer) = &gateway.consumer else { return };
        let open = std::mem::take(&mut gateway.open);
        let ids = open.iter().map(|delivery| delivery.event.id.clone()).collect();
        if let Ok(Ok(acked)) = consumer.subscription.ack(ids, None, None).await {
            let stale: BTreeSet<usize> = acked.stale.into_iter().collect();
            let kept = open.iter().enumerate().filter(|(index, _)| !stale.contains(index));
            self.done.extend(kept.map(|(_, delivery)| delivery.event.seq.0));
        }
    }

    /// Checks that every event is delivered and acknowledged once everything works again.
    async fn finish(mut self) {
        for index in 0..self.gateways.len() {
            self.gateways[index].faults.heal();
        }
        let all = stored(self.store.as_ref(), &orders()).await.len() as u64;
        for _ in 0..200 {
            if self.gateways[0].consumer.is_none() {
                let joined = self.gateways[0].harness.try_subscribe(&orders(), at_most(5)).await;
                self.gateways[0].consumer = joined.ok();
            }
            tokio::time::sleep(LEASE).await;
            self.look().await;
            for index in 0..self.gateways.len() {
                self.acknowledge(index).await;
            }
            let cursor = stored_cursor(self.store.as_ref(), &orders(), &billing()).await;
            if cursor.floor >= Seq(all) {
                return;
            }
        }
        panic!("not all of {all} events were delivered");
    }
}

#[test]
fn nothing_is_lost_or_redelivered_after_its_ack_whatever_happens_to_gateways() {
    for seed in 0..RUNS {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .start_paused(true)
            .build()
            .unwrap();
        let steps = std::panic::AssertUnwindSafe(|| {
            runtime.block_on(async {
                let mut world = World::new(seed);
                for _ in 0..STEPS {
                    world.step().await;
                }
                world.finish().await;
            });
        });
        if let Err(failed) = std::panic::catch_unwind(steps) {
            eprintln!("with seed {seed}");
            std::panic::resume_unwind(failed);
        }
    }
}
