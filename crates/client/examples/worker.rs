//! Consumes orders and publishes exactly one invoice per order, even if it crashes.
//!
//! ```sh
//! cargo run --example worker
//! ```
//!
//! Environment: `PROMBUS_URL`, `PROMBUS_TOKEN` and `ORDERS` (how many orders to handle; endless by
//! default).

use std::env;
use std::error::Error;
use std::sync::Arc;

use prombus_client::{Client, HandlerError, Outgoing, Received, Start};
use serde::{Deserialize, Serialize};
use tokio::sync::Semaphore;

#[derive(Deserialize)]
struct Order {
    customer: String,
    cents: Vec<u64>,
}

#[derive(Serialize)]
struct Invoice {
    customer: String,
    total_cents: u64,
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let url = env::var("PROMBUS_URL").unwrap_or_else(|_| "ws://127.0.0.1:8090".to_owned());
    let orders = env::var("ORDERS").ok().map(|orders| orders.parse()).transpose()?;
    let mut builder = Client::builder(&url);
    if let Ok(token) = env::var("PROMBUS_TOKEN") {
        builder = builder.token(token);
    }
    let client = builder.connect().await?;

    let handled = Arc::new(Semaphore::new(0));
    let count = Arc::clone(&handled);
    let subscription = client
        .transform_exactly_once("orders.created", "billing")
        .from(Start::Earliest)
        .concurrency(8)
        .handle(move |order: Received<Order>| {
            let count = Arc::clone(&count);
            async move {
                let Order { customer, cents } = &order.payload;
                if cents.is_empty() {
                    // No retry can help: it becomes a dead letter in dlq.orders.created at once.
                    return Err(HandlerError::reject("the order is empty"));
                }
                let invoice =
                    Invoice { customer: customer.clone(), total_cents: cents.iter().sum() };
                let invoice = Outgoing::new(&invoice)?.key(customer).caused_by(&order.id);
                count.add_permits(1);
                Ok(vec![("invoices.created", invoice)])
            }
        })
        .await?;

    match orders {
        Some(orders) => drop(handled.acquire_many(orders).await?),
        None => subscription.ended().await?,
    }
    // Waits until the output of finished handlers is published.
    client.close().await;
    Ok(())
}
