//! Three gateways share a store. One of them deletes a group, and the group begins again and is released, all before the
//! others look for deletions: the subscriptions that they have from before end nevertheless.

use std::net::SocketAddr;

use prombus_test_mongod::{Kind, new_database, shared};
use serde_json::json;

use crate::gateway::client::Client;
use crate::http::client::HttpClient;
use crate::killed::process::{Process, free_address};
use crate::store::Store;

/// When a gateway looks is not known, so there are some attempts.
const ATTEMPTS: usize = 12;

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
}

#[tokio::test]
async fn older_subscriptions_end_although_the_group_begins_again() {
    let store = Store::Database(shared(Kind::ReplicaSet).database_url(&new_database()));
    let [owner, standby, deleting] = [(); 3].map(|()| Gateway::start(&store));
    let mut first = Client::connect(owner.ws).await;
    let mut second = Client::connect(standby.ws).await;
    let mut third = Client::connect(deleting.ws).await;
    let mut http = HttpClient::connect_to(deleting.http).await;
    first.publish("orders", json!(1)).await;
    for attempt in 0..ATTEMPTS {
        let group = format!("billing-{attempt}");
        // The first one owns the group; neither gets the event.
        first.subscribe("orders", &group, json!({"from": "latest"})).await;
        second.subscribe("orders", &group, json!({"from": "latest"})).await;
        http.ask("DELETE", &format!("/groups/orders/{group}"), &[], "").await.ok();
        // Another group of this name begins with the event, and nobody owns it.
        third.subscribe("orders", &group, json!({"from": "earliest"})).await;
        third.ok(json!({"op": "UNSUBSCRIBE", "topic": "orders", "group": group})).await;
        let ended =
            json!({"op": "ENDED", "topic": "orders", "group": group, "reason": "group_deleted"});
        assert_eq!(first.next_frame().await, ended, "attempt {attempt}");
        assert_eq!(second.next_frame().await, ended, "attempt {attempt}");
    }
}
