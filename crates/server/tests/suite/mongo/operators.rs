//! Operators redrive dead letters, move one group and delete another, at any of three gateways, while one after the other
//! is killed with SIGKILL. What must hold is in `crate::operators`.

use std::time::Duration;

use futures_util::future::join_all;
use prombus_test_mongod::{Kind, new_database, shared};
use tokio::time::{sleep, timeout};

use super::gateways_killed::Gateway;
use crate::killed::rounds;
use crate::operators::consumer::consume;
use crate::operators::ledger::Ledger;
use crate::operators::operator::Operator;
use crate::operators::roles::Role;
use crate::store::Store;

const EACH: [Role; 4] = [Role::Working(0), Role::Working(1), Role::Sought, Role::Deleted];

/// Longer than anything but a hanging test takes.
const HANG_TIMEOUT: Duration = Duration::from_secs(300);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn operators_keep_their_promises_at_three_gateways() {
    timeout(HANG_TIMEOUT, operate_and_kill()).await.expect("the test hangs");
}

async fn operate_and_kill() {
    let store = Store::Database(shared(Kind::ReplicaSet).database_url(&new_database()));
    let mut gateways: Vec<Gateway> = (0..3).map(|_| Gateway::start(&store)).collect();
    let ledger = Ledger::of_several_gateways();
    let servers: Vec<_> = gateways.iter().map(|gateway| gateway.http).collect();
    let urls: Vec<_> = gateways.iter().map(|gateway| format!("ws://{}", gateway.ws)).collect();
    let operator = Operator { servers: &servers, ledger: &ledger };
    let consumers = urls.iter().flat_map(|url| EACH.map(|role| (url, role)));
    let consuming = join_all(consumers.map(|(url, role)| consume_at(url, role, &ledger)));
    let killing = async {
        // A kill takes longer here, until another gateway delivers.
        for _ in 0..rounds().div_ceil(2) {
            ledger.until_handled(100).await;
            sleep(Duration::from_millis(ledger.random.below(500))).await;
            let victim = usize::try_from(ledger.random.below(3)).unwrap();
            gateways[victim].process.kill();
            ledger.until_handled(50).await;
            gateways[victim].restart(&store);
        }
        ledger.drain();
    };
    let finished = async {
        tokio::select! {
            () = killing => {}
            () = operator.operate() => panic!("operators do not end"),
        }
        operator.finish().await
    };
    let letters = tokio::select! {
        letters = finished => letters,
        _ = consuming => panic!("consumers do not end"),
    };
    println!("{} events, {} letters", ledger.last_published(), letters.len());
    ledger.check_end(&letters);
}

/// Consumes at a gateway that is killed and started again.
async fn consume_at(url: &str, role: Role, ledger: &Ledger) {
    loop {
        consume(url, role, ledger).await;
        sleep(Duration::from_millis(20)).await;
    }
}
