//! The examples, run against a real server.

use std::path::PathBuf;
use std::process::Stdio;

use prombus_client::Outgoing;
use serde_json::json;
use tokio::process::Command;

use crate::harness::{TestServer, start, within};

fn example(name: &str, server: &TestServer) -> Command {
    let this = std::env::current_exe().unwrap();
    let folder: PathBuf = this.ancestors().nth(2).unwrap().join("examples");
    let program = folder.join(name);
    assert!(program.exists(), "`cargo test -p prombus-client` builds {}", program.display());
    let mut command = Command::new(program);
    command.env("PROMBUS_URL", server.inner.ws_url()).env_remove("PROMBUS_TOKEN");
    command.stderr(Stdio::inherit()).kill_on_drop(true);
    command
}

#[tokio::test]
async fn publishes_and_monitors_heartbeats() {
    let server = start(&[]).await;
    let monitor = example("monitor", &server).env("BEATS", "6").stdout(Stdio::piped()).spawn();
    let monitor = monitor.unwrap();
    for node in ["node-1", "node-2"] {
        let mut publisher = example("heartbeat_publisher", &server);
        publisher.arg(node).env("BEATS", "3").env("BEAT_MS", "1");
        assert!(within(publisher.status()).await.unwrap().unwrap().success());
    }
    let output = within(monitor.wait_with_output()).await.unwrap().unwrap();
    assert!(output.status.success());
    let printed = String::from_utf8(output.stdout).unwrap();
    let expected = "node-1 0\nnode-1 1\nnode-1 2\nnode-2 0\nnode-2 1\nnode-2 2\n";
    assert_eq!(printed, expected);
    let stored = server.stored("heartbeat.received").await;
    assert_eq!(stored[5].key.as_ref().unwrap().as_str(), "node-2");
    server.until_lag("heartbeat.received", 0).await;
}

#[tokio::test]
async fn the_worker_publishes_one_invoice_per_order() {
    let server = start(&[]).await;
    let client = server.connect().await;
    let orders = (0..50).map(|n| {
        let order = json!({"customer": format!("customer-{n}"), "cents": [n, 100]});
        Outgoing::new(&order).unwrap().id(&format!("order-{n}"))
    });
    client.publish_batch("orders.created", orders).await.unwrap();
    let status = example("worker", &server).env("ORDERS", "50").status();
    assert!(within(status).await.unwrap().unwrap().success());
    server.until_lag("orders.created", 0).await;
    let mut invoices = server.stored("invoices.created").await;
    invoices.sort_by_key(|invoice| invoice.payload["total_cents"].as_u64());
    assert_eq!(invoices.len(), 50);
    for (n, invoice) in invoices.iter().enumerate() {
        assert_eq!(invoice.payload["total_cents"], n + 100);
        assert_eq!(invoice.caused_by[0].to_string(), format!("order-{n}"));
    }
}
