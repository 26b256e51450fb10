//! Being woken by a change stream, as soon as there is something to do.

use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use mongodb::Collection;
use mongodb::bson::{Document, doc};
use mongodb::change_stream::ChangeStream;
use mongodb::error::Error;
use tokio::sync::Notify;

/// How long to wait before another stream is tried.
const PAUSE: Duration = Duration::from_secs(1);

/// Opens a change stream that tells of documents that wait to be sent, or hold up others no more.
/// What workers note in them is left out.
pub(crate) async fn open(outbox: &Collection<Document>) -> Result<ChangeStream<Document>, Error> {
    let wanted = doc! { "$match": { "$or": [
        { "operationType": { "$in": ["insert", "replace"] }, "fullDocument.status": "pending" },
        { "operationType": "update",
          "updateDescription.updatedFields.status": { "$in": ["pending", "skipped"] } },
    ] } };
    let nothing_but_its_token = doc! { "$project": { "_id": 1 } };
    let stream = outbox.watch().pipeline([wanted, nothing_but_its_token]).await?;
    Ok(stream.with_type())
}

/// Wakes whoever waits whenever the stream tells of something, and opens another where it breaks.
pub(crate) async fn follow(
    outbox: Collection<Document>,
    mut stream: Option<ChangeStream<Document>>,
    wake: Arc<Notify>,
) {
    loop {
        if let Some(mut changes) = stream.take() {
            // There may have been something before it was open.
            wake.notify_one();
            while let Some(Ok(_)) = changes.next().await {
                wake.notify_one();
            }
        }
        tokio::time::sleep(PAUSE).await;
        // Meanwhile there is polling, so nobody need be told.
        stream = open(&outbox).await.ok();
    }
}
