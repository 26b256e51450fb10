//! A gateway is suspended for longer than the lease time, as by a long pause of its machine, and
//! then resumes. Another gateway delivers its group; what its consumers still send changes nothing.

use std::net::SocketAddr;
use std::time::Duration;

use prombus_test_mongod::{Kind, new_database, shared};
use serde_json::{Value, json};

use crate::gateway::client::{Client, frame_for, parsed};
use crate::killed::process::{Process, free_address};
use crate::store::Store;

struct Gateway {
    ws: SocketAddr,
    process: Process,
}

impl Gateway {
    fn start(store: &Store) -> Self {
        let (ws, http) = (free_address(), free_address());
        Self { ws, process: Process::start_at(store, ws, http) }
    }

    async fn consumer(&self) -> Client {
        let mut client = Client::connect(self.ws).await;
        client.subscribe("orders", "billing", json!({"from": "earliest"})).await;
        client
    }
}

async fn events(consumer: &mut Client, count: usize) -> Vec<Value> {
    let mut events = Vec::new();
    for _ in 0..count {
        events.push(consumer.event().await);
    }
    events
}

fn numbers(events: &[Value]) -> Vec<u64> {
    let mut numbers: Vec<u64> =
        events.iter().map(|event| event["event"]["seq"].as_u64().unwrap()).collect();
    numbers.sort_unstable();
    numbers
}

#[tokio::test]
async fn late_acknowledgements_of_a_replaced_gateway_change_nothing() {
    let store = Store::Database(shared(Kind::ReplicaSet).database_url(&new_database()));
    let (one, two) = (Gateway::start(&store), Gateway::start(&store));
    let mut first = one.consumer().await;
    let mut second = two.consumer().await;
    let mut publisher = Client::connect(two.ws).await;
    for number in 0..4 {
        publisher.publish("orders", json!(number)).await;
    }
    let delivered = events(&mut first, 4).await;
    assert_eq!(numbers(&delivered), [1, 2, 3, 4]);
    one.process.freeze();
    // Redelivered once the other gateway has claimed the group.
    let again = events(&mut second, 4).await;
    assert_eq!(numbers(&again), [1, 2, 3, 4]);
    second.ack(&again[0]).await;
    one.process.thaw();
    // Before and after it learns that it was replaced.
    let mut with_publish = frame_for("ACK", &delivered[1]);
    with_publish["publish"] = json!([{"topic": "shipped", "payload": 1}]);
    for _ in 0..2 {
        let refused = parsed(&first.ask(with_publish.clone()).await);
        assert_eq!((&refused["op"], &refused["code"]), (&json!("ERR"), &json!("lease_lost")));
        assert_eq!(first.ack(&delivered[1]).await["stale"], true);
    }
    // Only what was acknowledged at the gateway that owns the group is done.
    for event in &again[1..] {
        assert_eq!(second.ack(event).await.get("stale"), None, "{event}");
    }
    publisher.publish("orders", json!("more")).await;
    assert_eq!(numbers(&events(&mut second, 1).await), [5]);
    first.gets_nothing_for(Duration::from_millis(100)).await;
    let topics =
        publisher.ok(json!({"op": "PUBLISH", "topic": "shipped", "payload": "first"})).await;
    assert_eq!(topics["seq"], 1, "nothing was published before");
    // It delivers again once the other consumer is gone.
    drop(second);
    let back = events(&mut first, 1).await;
    assert_eq!(numbers(&back), [5]);
    assert_eq!(first.ack(&back[0]).await.get("stale"), None);
}
