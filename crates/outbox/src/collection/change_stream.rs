//! Wakes a worker as soon as there is something to publish.

use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use mongodb::Collection;
use mongodb::bson::{Document, doc};
use mongodb::change_stream::ChangeStream;
use mongodb::error::Error;
use tokio::sync::Notify;

const REOPEN_PAUSE: Duration = Duration::from_secs(1);

/// Opens a change stream of documents that become pending or no longer hold up others. Leaves out
/// what workers write.
pub(crate) async fn open(outbox: &Collection<Document>) -> Result<ChangeStream<Document>, Error> {
    let filter = doc! { "$match": { "$or": [
        { "operationType": { "$in": ["insert", "replace"] }, "fullDocument.status": "pending" },
        { "operationType": "update",
          "updateDescription.updatedFields.status": { "$in": ["pending", "skipped"] } },
    ] } };
    let only_the_token = doc! { "$project": { "_id": 1 } };
    let stream = outbox.watch().pipeline([filter, only_the_token]).await?;
    Ok(stream.with_type())
}

/// Notifies `wake` of every change. Opens another stream when one fails.
pub(crate) async fn follow(
    outbox: Collection<Document>,
    mut stream: Option<ChangeStream<Document>>,
    wake: Arc<Notify>,
) {
    loop {
        if let Some(mut changes) = stream.take() {
            // Something may have changed before the stream was open.
            wake.notify_one();
            while let Some(Ok(_)) = changes.next().await {
                wake.notify_one();
            }
        }
        tokio::time::sleep(REOPEN_PAUSE).await;
        // The worker polls meanwhile, so a failure is not worth reporting.
        stream = open(&outbox).await.ok();
    }
}
