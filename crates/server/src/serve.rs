//! Opens the store, says how it is, and closes it properly when told to stop.

use std::error::Error;
use std::io::{self, Write};
use std::sync::Arc;

use prombus_engine::{DiskEngine, DiskOptions, Engine, MemoryEngine};
use prombus_proto::SystemClock;
use tokio::signal::unix::{SignalKind, signal};

use crate::{EngineChoice, ServeArguments};

pub(crate) fn run(arguments: &ServeArguments) -> Result<(), Box<dyn Error>> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let mut interrupt = signal(SignalKind::interrupt())?;
        let mut terminate = signal(SignalKind::terminate())?;
        let engine: Arc<dyn Engine> = match arguments.engine {
            EngineChoice::Disk => Arc::new(DiskEngine::open(&DiskOptions::at(&arguments.data))?),
            EngineChoice::Memory => Arc::new(MemoryEngine::new(Arc::new(SystemClock))),
        };
        describe(engine.as_ref(), arguments).await?;
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
        }
        engine.close().await?;
        writeln!(io::stdout(), "stopped, everything is stored")?;
        Ok(())
    })
}

async fn describe(engine: &dyn Engine, arguments: &ServeArguments) -> Result<(), Box<dyn Error>> {
    let topics = engine.topics().await?;
    let (mut events, mut bytes) = (0, 0);
    for topic in &topics {
        let bounds = engine.bounds(topic).await?;
        events += bounds.count();
        bytes += bounds.bytes;
    }
    let mut out = io::stdout().lock();
    let place = match arguments.engine {
        EngineChoice::Disk => format!("the store in {}", arguments.data.display()),
        EngineChoice::Memory => "a store in memory".to_owned(),
    };
    writeln!(out, "prombus {} has opened {place}", env!("CARGO_PKG_VERSION"))?;
    writeln!(out, "{} topics, {events} events, {bytes} bytes", topics.len())?;
    for incident in engine.health().incidents {
        writeln!(out, "attention: {incident}")?;
    }
    writeln!(
        out,
        "nothing listens on the network yet: the gateway is the next step; ctrl-c closes the store"
    )?;
    Ok(out.flush()?)
}
