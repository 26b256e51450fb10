//! Three gateways share a store. One of them deletes a topic while all publish to it and consume it: every
//! subscription ends, nothing of the topic is delivered after that, and what follows begins anew.

use std::net::SocketAddr;

use prombus_test_mongod::{Kind, new_database, shared};
use serde_json::{Value, json};

use crate::gateway::client::{Client, frame_for, parsed};
use crate::http::client::HttpClient;
use crate::killed::process::{Process, free_address};
use crate::store::Store;

struct Gateway {
    ws: SocketAddr,
    http: SocketAddr,
    _process: Process,
}

impl Gateway {
    fn start(store: &Store) -> Self {
        let (ws, http) = (free_address(), free_address());
        Self { ws, http, _process: Process::start_at(store, ws, http) }
    }

    async fn consumer(&self) -> Client {
        let mut client = Client::connect(self.ws).await;
        client.subscribe("orders", "billing", json!({"from": "earliest"})).await;
        client
    }
}

/// Acknowledges whatever is delivered until the subscription ends.
async fn consume_until_ended(mut consumer: Client) -> Client {
    loop {
        let frame = consumer.next_frame().await;
        match frame["op"].as_str() {
            Some("EVENT") => consumer.send(&frame_for("ACK", &frame)).await,
            Some("ENDED") => {
                assert_eq!(frame["reason"], "topic_deleted");
                return consumer;
            }
            // The answers to ACKs, also to those that crossed the deletion.
            _ => {}
        }
    }
}

#[tokio::test]
async fn its_subscriptions_end_on_every_gateway() {
    let store = Store::Database(shared(Kind::ReplicaSet).database_url(&new_database()));
    let gateways = [(); 3].map(|()| Gateway::start(&store));
    let mut publisher = Client::connect(gateways[2].ws).await;
    for number in 0..20 {
        publisher.publish("orders", json!(number)).await;
    }
    let mut consuming = Vec::new();
    for gateway in &gateways {
        consuming.push(tokio::spawn(consume_until_ended(gateway.consumer().await)));
    }
    let mut http = HttpClient::connect_to(gateways[0].http).await;
    http.ask("DELETE", "/topics/orders", &[], "").await.ok();
    let mut ended = Vec::new();
    for consumer in consuming {
        ended.push(consumer.await.unwrap());
    }
    for gateway in &gateways {
        let mut http = HttpClient::connect_to(gateway.http).await;
        http.get("/topics/orders").await.refused(404, "unknown_topic");
    }
    // Another topic of this name begins, and its group has only new members.
    let mut again = gateways[1].consumer().await;
    for number in 100..110 {
        publisher.publish("orders", json!(number)).await;
    }
    let mut payloads: Vec<Value> = Vec::new();
    while payloads.len() < 10 {
        let event = again.event().await;
        assert_eq!(event["ctx"]["attempt"], 1);
        payloads.push(event["event"]["payload"].clone());
        again.ack(&event).await;
    }
    assert_eq!(payloads, (100..110).map(Value::from).collect::<Vec<_>>());
    for consumer in &mut ended {
        let ack = json!({"op": "ACK", "topic": "orders", "group": "billing", "id": "x"});
        // Whatever it sent before is answered first.
        loop {
            let answer = parsed(&consumer.ask(ack.clone()).await);
            if answer["code"] == "not_subscribed" {
                break;
            }
        }
    }
}
