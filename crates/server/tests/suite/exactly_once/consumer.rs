//! The consumer: this test binary, started as a separate process that can be killed.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use prombus_client::{Client, HandlerError, Outgoing, Received, Start};

const ADDRESS: &str = "PROMBUS_CONSUMER_ADDRESS";
const HANDLED: &str = "PROMBUS_CONSUMER_HANDLED";

pub(super) struct ConsumerProcess(Child);

impl ConsumerProcess {
    /// Starts a consumer that appends the numbers it has handled to the file `handled`.
    pub(super) fn start(server: SocketAddr, handled: &Path) -> Self {
        let child = Command::new(std::env::current_exe().unwrap())
            .args(["exactly_once::consumer::consumes_until_it_is_killed", "--exact", "--ignored"])
            .env(ADDRESS, server.to_string())
            .env(HANDLED, handled)
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        Self(child)
    }

    pub(super) fn kill(&mut self) {
        // Child::kill is SIGKILL.
        self.0.kill().expect("the consumer runs");
        let status = self.0.wait().expect("the consumer exits");
        assert_eq!(status.code(), None, "the consumer exited on its own");
    }
}

impl Drop for ConsumerProcess {
    fn drop(&mut self) {
        // A failing test leaves no process behind.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[tokio::test]
#[ignore = "the process that other tests kill"]
async fn consumes_until_it_is_killed() {
    let address = std::env::var(ADDRESS).expect("started by a test");
    let handled = std::env::var_os(HANDLED).expect("started by a test");
    let handled = OpenOptions::new().create(true).append(true).open(handled).unwrap();
    let client = Client::builder(&format!("ws://{address}"))
        .back_off(Duration::from_millis(5), Duration::from_millis(100))
        .timeout(None)
        .connect_in_background()
        .unwrap();
    let _atomic = client
        .transform_exactly_once("orders", "atomic")
        .from(Start::Earliest)
        .concurrency(8)
        .max_attempts(1000)
        .handle(async |order: Received<u64>| {
            Ok(vec![("ledger.atomic", Outgoing::new(&order.payload)?)])
        })
        .await
        .unwrap();
    let publisher = client.clone();
    let handled = Arc::new(handled);
    let _marking = client
        .subscribe_exactly_once("orders", "marking")
        .from(Start::Earliest)
        .concurrency(8)
        .max_attempts(1000)
        .handle(move |order: Received<u64>| {
            note(publisher.clone(), Arc::clone(&handled), order.payload)
        })
        .await
        .unwrap();
    std::future::pending::<()>().await;
}

/// Has an effect outside of the bus, and an idempotent one within it.
async fn note(client: Client, handled: Arc<File>, number: u64) -> Result<(), HandlerError> {
    (&*handled).write_all(format!("{number}\n").as_bytes()).map_err(HandlerError::new)?;
    let effect = Outgoing::new(&number)?.id(&format!("effect-of-{number}"));
    client.publish("ledger.marking", effect).await?;
    Ok(())
}
