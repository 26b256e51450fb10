//! Workers as processes of the built binary.

use std::process::{Child, Command, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use super::database::Database;
use crate::cli::server::{Ran, Server, prombus};

pub(crate) struct WorkerProcess(Option<Child>);

pub(crate) fn command(database: &Database, server: &Server, arguments: &[&str]) -> Command {
    let mut command = prombus(&["outbox", "--url", &server.url, "--mongo", &database.url()]);
    command.args(arguments).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// Runs a worker with `--once`.
pub(crate) fn once(database: &Database, server: &Server, arguments: &[&str]) -> Ran {
    Ran::of(command(database, server, arguments).arg("--once").output().unwrap())
}

/// The events of a topic, in order.
pub(crate) fn events(server: &Server, topic: &str) -> Vec<Value> {
    server.run(&["export", topic], "").lines()
}

/// The ids of the events of the topic `t`, in order.
pub(crate) fn ids(server: &Server) -> Vec<String> {
    let id = |event: &Value| event["id"].as_str().unwrap().to_owned();
    events(server, "t").iter().map(id).collect()
}

/// Waits until the topic `t` has an event.
pub(crate) async fn wait_for_an_event(server: &Server) {
    while !server.run(&["replay", "t"], "").is_success {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

impl WorkerProcess {
    pub(crate) fn start(database: &Database, server: &Server, arguments: &[&str]) -> Self {
        Self(Some(command(database, server, arguments).spawn().unwrap()))
    }

    pub(crate) fn signal(&self, signal: Signal) {
        let child = self.0.as_ref().unwrap();
        kill_process(Pid::from_child(child), signal).unwrap();
    }

    /// Stops the worker and waits for its exit.
    pub(crate) fn stop(mut self) -> Ran {
        self.signal(Signal::TERM);
        Ran::of(self.0.take().unwrap().wait_with_output().unwrap())
    }
}

impl Drop for WorkerProcess {
    fn drop(&mut self) {
        if let Some(child) = &mut self.0 {
            // Child::kill is SIGKILL.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}
