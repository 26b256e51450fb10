use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::cli::server::Server;

/// Only keeps a hanging test from blocking the suite.
const HANG_TIMEOUT: Duration = Duration::from_secs(120);

/// A subscriber whose lines can be waited for.
struct Running {
    child: Child,
    out: Receiver<String>,
    err: Receiver<String>,
}

impl Running {
    fn start(server: &Server, arguments: &[&str]) -> Self {
        let mut command = server.command(arguments);
        let mut child = command
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the binary starts");
        let (out, err) =
            (child.stdout.take().expect("a pipe"), child.stderr.take().expect("a pipe"));
        Self { child, out: lines(out), err: lines(err) }
    }

    #[track_caller]
    fn payloads(&self, count: usize) -> Vec<Value> {
        let line = || self.out.recv_timeout(HANG_TIMEOUT).expect("an event");
        let payload = |line: String| {
            serde_json::from_str::<Value>(&line).expect("an event")["payload"].clone()
        };
        (0..count).map(|_| payload(line())).collect()
    }

    #[track_caller]
    fn wait_for_message(&self, part: &str) {
        loop {
            let line = self.err.recv_timeout(HANG_TIMEOUT);
            if line.unwrap_or_else(|_| panic!("{part} is not reported")).contains(part) {
                return;
            }
        }
    }

    fn stop(mut self) -> bool {
        kill_process(Pid::from_child(&self.child), Signal::INT).expect("it runs");
        self.child.wait().expect("it exits").success()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn lines(from: impl Read + Send + 'static) -> Receiver<String> {
    let (sender, receiver) = channel();
    std::thread::spawn(move || {
        for line in BufReader::new(from).lines().map_while(Result::ok) {
            if sender.send(line).is_err() {
                return;
            }
        }
    });
    receiver
}

#[test]
fn a_subscriber_goes_on_after_a_restart_and_after_a_crash() {
    let folder = tempfile::tempdir().unwrap();
    let mut server = Server::on_disk(folder.path());
    server.run(&["publish", "t", "1", "2"], "").lines();
    let subscribe = ["subscribe", "t", "--group", "g", "--from", "earliest"];
    let subscriber = Running::start(&server, &subscribe);
    assert_eq!(subscriber.payloads(2), [1, 2]);
    for (next, crash) in [(3, true), (4, false)] {
        if crash {
            server.kill();
        } else {
            server.stop();
            subscriber.wait_for_message("1001 the server is shutting down; reconnecting");
            server.wait();
        }
        server = server.restarted(folder.path());
        subscriber.wait_for_message("connected again");
        server.run(&["publish", "t", &next.to_string()], "").lines();
        // Nothing is printed twice, though the crash may have taken acknowledgements with it.
        assert_eq!(subscriber.payloads(1), [next]);
    }
    assert!(subscriber.stop());
    server.run(&["publish", "t", "5"], "").lines();
    let rest = server.run(&["subscribe", "t", "--group", "g", "--count", "1"], "").lines();
    assert_eq!(rest[0]["payload"], 5, "everything printed is acknowledged");
}

#[test]
fn ctrl_c_ends_a_subscriber_that_reconnects() {
    let mut server = Server::start(&[]);
    server.run(&["publish", "t", "1"], "").lines();
    // What is to be acknowledged could not be without a connection, which is an error.
    let subscribe = ["subscribe", "t", "--group", "g", "--from", "earliest", "--no-ack"];
    let subscriber = Running::start(&server, &subscribe);
    assert_eq!(subscriber.payloads(1), [1]);
    server.kill();
    subscriber.wait_for_message("reconnecting");
    assert!(subscriber.stop());
}

#[test]
fn a_topic_without_events_is_reported() {
    let server = Server::start(&[]);
    let mut command = crate::cli::server::prombus(&["subscribe", "orders", "--group", "g"]);
    command.args(["--url", &server.http]).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let err = lines(child.stderr.take().unwrap());
    let line = err.recv_timeout(HANG_TIMEOUT).expect("a message");
    assert_eq!(line, "prombus: topic orders has no events yet; waiting for the first");
    kill_process(Pid::from_child(&child), Signal::INT).unwrap();
    assert!(child.wait().unwrap().success());
}

#[test]
fn a_refused_subscription_is_not_tried_again() {
    let server = Server::start(&["auth.tokens=[{token = \"a\", scopes = [\"publish:t\"]}]"]);
    let ran = server.run(&["subscribe", "t", "--group", "g", "--token", "a"], "");
    ran.failed_with("forbidden: ");
    assert!(!ran.err.contains("reconnecting"), "{ran:?}");
}
