//! The number of every commit, over all gateways.

use std::sync::{Mutex, PoisonError};

use mongodb::bson::{Document, doc};
use mongodb::error::{Error, ErrorKind};
use mongodb::options::{CollectionOptions, ReturnDocument};
use prombus_engine::{Durability, Version};
use tokio::sync::{Mutex as Turn, oneshot};

use crate::collections::{ENGINE, write_concern};
use crate::numbers::{from_bson, to_bson};
use crate::store::Store;

const COUNTER: &str = "commits";

type Answer = Result<Version, Error>;

/// Commits that wait for a number. One asks for all: they would only be in each other's way at the
/// one document that counts.
#[derive(Debug, Default)]
pub(crate) struct Versions {
    waiting: Mutex<Vec<oneshot::Sender<Answer>>>,
    asking: Turn<()>,
}

impl Versions {
    fn wait(&self) -> oneshot::Receiver<Answer> {
        let (mine, answer) = oneshot::channel();
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner).push(mine);
        answer
    }

    fn take_waiting(&self) -> Vec<oneshot::Sender<Answer>> {
        std::mem::take(&mut self.waiting.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Store {
    /// The next number. Outside of the commit's transaction, so that commits that have nothing to do
    /// with each other do not wait for each other.
    ///
    /// It has to be asked for when the commit has seen what it builds on, and before it is made: then
    /// whoever builds on it has a larger one. A commit that a majority has makes its number as safe:
    /// the number was given before.
    pub(crate) async fn next_version(&self, durability: Durability) -> Answer {
        if durability == Durability::Fsync {
            // Its number is all that such a commit writes; nobody else has to wait for the disk.
            return self.count_up(1, durability).await;
        }
        loop {
            let mut answer = self.versions.wait();
            let _turn = self.versions.asking.lock().await;
            match answer.try_recv() {
                // Somebody who had the turn before asked for this one, too.
                Ok(answer) => return answer,
                // Somebody had the turn before, and ended before the answer came.
                Err(oneshot::error::TryRecvError::Closed) => continue,
                Err(oneshot::error::TryRecvError::Empty) => {}
            }
            let waiting = self.versions.take_waiting();
            let last = self.count_up(waiting.len() as u64, durability).await;
            for (behind, waiter) in (0..waiting.len() as u64).rev().zip(waiting) {
                let number = last.clone().map(|Version(last)| Version(last - behind));
                // Who no longer waits needs no number.
                let _ = waiter.send(number);
            }
            if let Ok(answer) = answer.try_recv() {
                return answer;
            }
        }
    }

    /// Counts so many commits, and answers the number of the last of them.
    async fn count_up(&self, count: u64, durability: Durability) -> Answer {
        let options = CollectionOptions::builder().write_concern(write_concern(durability)).build();
        let up = doc! { "$inc": { "last": to_bson(count) } };
        let counted = self
            .collections
            .database()
            .collection_with_options::<Document>(ENGINE, options)
            .find_one_and_update(doc! { "_id": COUNTER }, up)
            .upsert(true)
            .return_document(ReturnDocument::After)
            .await?;
        let last = counted.and_then(|counter| counter.get_i64("last").ok());
        match last.map(from_bson).filter(|last| *last >= count) {
            Some(last) => Ok(Version(last)),
            None => Err(Error::from(ErrorKind::Custom(std::sync::Arc::new(
                "the number of commits in the collection engine is no number of them",
            )))),
        }
    }
}
