//! `prombus outbox`.

mod arguments;
mod progress;

use std::error::Error;
use std::io::{self, Write};
use std::pin::pin;

use prombus_outbox::{Outbox, Summary, Until, Worker};
use serde_json::json;
use tokio::sync::watch;

pub(crate) use arguments::OutboxArguments;

use super::stop_signal::StopSignal;
use progress::WorkerProgress;

pub(crate) async fn run(arguments: OutboxArguments) -> Result<(), Box<dyn Error>> {
    let until = if arguments.once { Until::Drained } else { Until::Stopped };
    let location = arguments.location()?;
    let client = arguments.client()?.connect().await?;
    let outbox = Outbox::open(&location).await?;
    let progress = WorkerProgress::new();
    let notices = progress.clone();
    let (stop, is_stopped) = watch::channel(false);
    let notify = move |notice: &_| notices.report(notice);
    let worker = Worker::new(outbox, client.clone(), arguments.options(), is_stopped, notify);
    let mut stop_signal = StopSignal::new()?;
    let mut work = pin!(worker.run(until));
    let result = loop {
        tokio::select! {
            result = &mut work => break result,
            () = stop_signal.recv() => {
                if stop.send_replace(true) {
                    return Err("stopped immediately; open leases will expire".into());
                }
                progress.println("stopping after the current batch; press ctrl-c again to stop now");
            }
        }
    };
    progress.finish();
    let summary = result?;
    client.close().await;
    print(&summary)?;
    match (until, summary.errors) {
        (Until::Drained, errors @ 1..) => {
            Err(format!("{errors} documents were rejected; each is marked with the reason").into())
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
