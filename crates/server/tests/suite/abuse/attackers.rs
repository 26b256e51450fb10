//! The attackers, and how they run.
//!
//! Each is a function that repeats its attack until it is dropped, on sockets that are closed with it. Together they have
//! one thread, so that they cannot take the whole machine from the server, and each is bounded in connections and rate.

mod deep_payloads;
mod group_flood;
mod login_guesses;
mod made_up_ids;
mod odd_times;
mod readers_that_never_read;
mod slow_uploads;
mod strangers;
mod topic_flood;

use std::future::Future;
use std::net::Ipv4Addr;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use serde_json::Value;
use tokio::sync::oneshot;
use tokio_tungstenite::tungstenite::Error;

use super::connection::{self, Socket, authenticated};
use super::server::{ATTACKER, Target};

/// What an attacker did.
#[derive(Default)]
pub(super) struct Tally {
    attempts: AtomicU64,
    refused: AtomicU64,
}

/// An attacker's server, address and tally. Clones share the tally.
#[derive(Clone)]
struct Attacker {
    target: Target,
    from: Ipv4Addr,
    tally: Arc<Tally>,
}

type AttackerFn = fn(Attacker) -> Pin<Box<dyn Future<Output = ()>>>;

/// Every attacker with the last byte of its address: those with the token come from one address, strangers from others.
const ALL: [(&str, u8, AttackerFn); 12] = [
    ("idle strangers", 2, |attacker| Box::pin(strangers::stay_idle(attacker))),
    ("pipelining strangers", 3, |attacker| Box::pin(strangers::pipeline(attacker))),
    ("unfinished frames", 4, |attacker| Box::pin(strangers::send_unfinished_frames(attacker))),
    ("login guesses", 5, |attacker| Box::pin(login_guesses::guess(attacker))),
    ("unread replays", 6, |attacker| Box::pin(readers_that_never_read::replay(attacker))),
    ("unread deliveries", 6, |attacker| Box::pin(readers_that_never_read::subscribe(attacker))),
    ("group flood", 6, |attacker| Box::pin(group_flood::flood(attacker))),
    ("topic flood", 6, |attacker| Box::pin(topic_flood::flood(attacker))),
    ("made-up ids", 6, |attacker| Box::pin(made_up_ids::acknowledge(attacker))),
    ("slow uploads", 6, |attacker| Box::pin(slow_uploads::upload(attacker))),
    ("odd ids and times", 6, |attacker| Box::pin(odd_times::publish(attacker))),
    ("deep payloads", 6, |attacker| Box::pin(deep_payloads::publish(attacker))),
];

/// All attackers at work. They end with [`Attack::stop`], or when this is dropped.
pub(super) struct Attack {
    tallies: Vec<(&'static str, Arc<Tally>)>,
    stop: oneshot::Sender<()>,
    thread: JoinHandle<()>,
}

impl Attack {
    /// Starts all attackers, or those that `PROMBUS_ABUSE_ONLY` names, and waits until each has begun.
    pub(super) fn start(target: Target) -> Self {
        let (stop, stopped) = oneshot::channel();
        let only = std::env::var("PROMBUS_ABUSE_ONLY").unwrap_or_default();
        let (mut attackers, mut tallies) = (Vec::new(), Vec::new());
        for (name, address, run) in ALL {
            if only.is_empty() || only.split(',').any(|one| one == name) {
                let (from, tally) = (Ipv4Addr::new(127, 0, 0, address), Arc::<Tally>::default());
                tallies.push((name, Arc::clone(&tally)));
                attackers.push((Attacker { target, from, tally }, run));
            }
        }
        let thread = std::thread::spawn(move || attack(attackers, stopped));
        while tallies.iter().any(|(_, tally)| tally.attempts() == 0) {
            assert!(!thread.is_finished(), "no attacker panics");
            std::thread::sleep(Duration::from_millis(10));
        }
        Self { tallies, stop, thread }
    }

    /// Ends all attackers and returns what they did.
    pub(super) fn stop(self) -> Vec<(&'static str, Arc<Tally>)> {
        drop(self.stop);
        self.thread.join().expect("no attacker panics");
        self.tallies
    }
}

fn attack(attackers: Vec<(Attacker, AttackerFn)>, stopped: oneshot::Receiver<()>) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let local = tokio::task::LocalSet::new();
    for (attacker, attack) in attackers {
        local.spawn_local(attack(attacker));
    }
    // Resolves when the sender is dropped, at the latest with a failing test. Closes all sockets then.
    let _ = local.block_on(&runtime, stopped);
}

impl Tally {
    pub(super) fn attempts(&self) -> u64 {
        self.attempts.load(Ordering::Relaxed)
    }

    /// Attempts that were answered with an error, or whose connection was refused or closed.
    pub(super) fn refused(&self) -> u64 {
        self.refused.load(Ordering::Relaxed)
    }
}

impl Attacker {
    /// Repeats `attempt` in `count` tasks, each with a pause of `pause` between attempts. An attempt returns an error if it
    /// was refused or its connection was lost.
    async fn repeat<F>(
        self,
        count: usize,
        pause: Duration,
        attempt: impl Fn(Self, u64) -> F + Clone + 'static,
    ) where
        F: Future<Output = Result<(), Error>> + 'static,
    {
        for _ in 0..count {
            let (attacker, attempt) = (self.clone(), attempt.clone());
            tokio::task::spawn_local(async move {
                loop {
                    let number = attacker.tally.attempts.fetch_add(1, Ordering::Relaxed);
                    if attempt(attacker.clone(), number).await.is_err() {
                        attacker.was_refused();
                    }
                    tokio::time::sleep(pause).await;
                }
            });
            // A new connection may take turns with others.
            tokio::task::yield_now().await;
        }
        std::future::pending::<()>().await;
    }

    fn was_refused(&self) {
        self.tally.refused.fetch_add(1, Ordering::Relaxed);
    }

    /// Opens a connection with the attackers' token.
    async fn authenticated(&self) -> Result<Socket, Error> {
        authenticated(self.from, self.target.ws, ATTACKER).await
    }

    /// Sends a frame and waits for its answer, which counts as refused if it is an error.
    async fn ask(&self, socket: &mut Socket, frame: &Value) -> Result<(), Error> {
        let answer = connection::ask(socket, frame).await?;
        if answer["op"] == "ERR" {
            self.was_refused();
        }
        Ok(())
    }
}
