use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use prombus_engine::{Engine, MemoryEngine};
use prombus_proto::{Group, IdSource, ManualClock, SeededRandom, Timestamp, Topic};

use super::effects::{GroupKeys, GroupStore};
use super::*;
use crate::groups::{Groups, RetryDelays, RetryRules};
use crate::memory::{Memory, MemoryLimits};
use crate::metrics::Metrics;
use crate::publish::Committer;
use crate::sharing::GroupLeases;
use crate::topics::{FeedMemory, Settings, SubscriptionDefaults, Topics};

const LEASE: Duration = Duration::from_secs(10);
const DELAYS: RetryDelays =
    RetryDelays { first: Duration::from_secs(1), factor: 5, max: Duration::from_secs(600) };

/// What every task of the group `g` on `t` shares, at a gateway that shares its store.
struct Gateway {
    ctx: GroupContext,
    topics: Arc<Topics>,
}

impl Gateway {
    fn start() -> Self {
        let clock = Arc::new(ManualClock::at(Timestamp(1)));
        let engine: Arc<dyn Engine> = Arc::new(MemoryEngine::new(clock.clone()));
        let ids = Arc::new(IdSource::new(clock.clone(), Arc::new(SeededRandom::new(1))));
        let metrics = Arc::new(Metrics::new());
        let subscription =
            SubscriptionDefaults { max_in_flight: 1, ack_timeout: LEASE, max_attempts: 5 };
        let settings = Settings {
            connection_rate: None,
            connection_bytes_per_sec: None,
            principal_rate: None,
            max_counts: None,
            topic_rate: None,
            topics: crate::topics::ConfiguredTopics::default(),
            max_outbox_bytes: 1 << 20,
            memory: MemoryLimits::of_each(1 << 20),
            subscription,
            retry: DELAYS,
            group_lease: LEASE,
            spans: None,
        };
        let memory = Memory::new(settings.memory);
        let feeds = FeedMemory::new(memory.feeds);
        let topics = Arc::new(Topics::new(Arc::new(settings), 1, feeds, Arc::clone(&metrics)));
        let (committer, _) =
            Committer::start(Arc::clone(&engine), Arc::clone(&topics), metrics.commit_meter());
        let group_leases = Some(Arc::new(GroupLeases::new(&ids, LEASE)));
        let ctx = GroupContext {
            census: Arc::clone(topics.census()),
            engine,
            committer,
            clock,
            ids,
            groups: Arc::new(Groups::default()),
            metrics,
            notices: Arc::default(),
            tracer: None,
            group_leases,
            read_ahead: memory.read_ahead,
            retry: RetryRules { delays: DELAYS, max_attempts: 5 },
            is_closing: Arc::new(AtomicBool::new(false)),
        };
        Self { ctx, topics }
    }

    fn store(&self) -> GroupStore {
        let (topic, group) = (topic(), group());
        let name = GroupName {
            cursor_key: Cursor::key(&topic, &group).unwrap(),
            topic: topic.clone(),
            group: group.clone(),
        };
        let keys = GroupKeys {
            lease: GroupLease::key(&topic, &group).unwrap(),
            properties: GroupProperties::key(&topic, &group).unwrap(),
        };
        let in_use = self.topics.get(&topic, now());
        GroupStore::new(self.ctx.clone(), in_use, name, keys, dead_letter_topic(&topic).unwrap())
    }

    fn watches(&self) -> bool {
        self.ctx.group_leases.as_ref().unwrap().watches(&topic(), &group())
    }
}

fn topic() -> Topic {
    Topic::new("t").unwrap()
}

fn group() -> Group {
    Group::new("g").unwrap()
}

/// As soon as the group is gone from the registry, another task of it may start and watch a lease. If its
/// predecessor still had something to undo, the group would wait for ever for its owner to die.
#[tokio::test]
async fn a_task_that_ends_does_not_undo_what_its_successor_watches() {
    let gateway = Gateway::start();
    let (first, second) = (gateway.store(), gateway.store());
    first.watch_lease();
    assert!(!first.retire(|| false));
    assert!(gateway.watches(), "a group that stays goes on watching");
    assert!(first.retire(|| true));
    assert!(!gateway.watches(), "nothing is left to undo when the successor can start");
    second.watch_lease();
    drop(first);
    assert!(gateway.watches());
}
