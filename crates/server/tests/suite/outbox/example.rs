//! Runs the service shown in `docs/outbox.md`.

use std::process::Command;

use mongodb::bson::{Document, doc};
use serde_json::json;

use super::database::Database;
use super::worker::{events, once};
use crate::cli::server::Server;

const RUN: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/outbox-node/run.sh");
const EXAMPLE: &str = include_str!("../../../../../docs/examples/outbox.mjs");
const GUIDE: &str = include_str!("../../../../../docs/outbox.md");

#[tokio::test]
async fn the_service_in_node_writes_an_order_and_its_event() {
    let (database, server) = (Database::start().await, Server::start(&[]));
    let service = Command::new(RUN).arg(database.url()).output().unwrap();
    assert!(service.status.success(), "{}", String::from_utf8_lossy(&service.stderr));
    let orders = database.outbox.client().database("shop").collection::<Document>("orders");
    let order = orders.find_one(doc! {}).await.unwrap().unwrap();
    let id = order.get_str("_id").unwrap();
    assert_eq!(once(&database, &server, &[]).lines()[0]["sent"], 1);
    let events = events(&server, "orders.created");
    let event = &events[0];
    assert_eq!(event["id"], format!("created-{id}"));
    assert_eq!(event["key"], "c-7");
    let at = order.get_datetime("at").unwrap().try_to_rfc3339_string().unwrap();
    let (payload, total) = (&event["payload"], json!(12.5));
    assert_eq!((&payload["_id"], &payload["total"]), (&json!(id), &total));
    assert_eq!(payload["at"].as_str().unwrap()[..19], at[..19]);
}

#[test]
fn the_guide_shows_the_service_that_is_tested() {
    assert!(GUIDE.contains(EXAMPLE.trim()), "docs/outbox.md and docs/examples/outbox.mjs differ");
}
