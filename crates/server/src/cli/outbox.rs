//! `prombus outbox`.

mod arguments;
mod watching;

use std::error::Error;
use std::io::{self, Write};
use std::pin::pin;

use prombus_outbox::{Outbox, Summary, Until, Worker};
use serde_json::json;
use tokio::sync::watch;

pub(crate) use arguments::OutboxArguments;

use super::stopping::Stopping;
use watching::Watching;

pub(crate) async fn run(arguments: OutboxArguments) -> Result<(), Box<dyn Error>> {
    let until = if arguments.once { Until::Drained } else { Until::Stopped };
    let place = arguments.place()?;
    let client = arguments.client()?.connect().await?;
    let outbox = Outbox::open(&place).await?;
    let watching = Watching::new();
    let shown = watching.clone();
    let (stop, is_stopped) = watch::channel(false);
    let tell = move |notice: &_| shown.happened(notice);
    let worker = Worker::new(outbox, client.clone(), arguments.options(), is_stopped, tell);
    let mut stopping = Stopping::new()?;
    let mut working = pin!(worker.run(until));
    let ended = loop {
        tokio::select! {
            ended = &mut working => break ended,
            () = stopping.asked() => {
                if stop.send_replace(true) {
                    return Err("ended at once; leases end by themselves".into());
                }
                watching.say("stopping when what is under way is done");
            }
        }
    };
    watching.finish();
    let summary = ended?;
    client.close().await;
    print(&summary)?;
    match (until, summary.errors) {
        (Until::Drained, errors @ 1..) => {
            Err(format!("{errors} documents were refused; they are marked with the reason").into())
        }
        _ => Ok(()),
    }
}

fn print(summary: &Summary) -> io::Result<()> {
    let Summary { sent, duplicates, errors, taken_over } = summary;
    let line = json!({
        "sent": sent, "duplicates": duplicates, "errors": errors, "taken_over": taken_over,
    });
    let mut out = io::stdout().lock();
    writeln!(out, "{line}")?;
    out.flush()
}
