//! Resident memory of a connection that has spoken once and is idle.

use std::process::Command;

use crate::{
    client::Client,
    server::{Candidate, Server},
    work,
};

const CONNECTIONS: usize = 1000;

/// A process for each library, because memory that one gave back would serve the next.
pub fn run() {
    println!("\n{:<26} resident bytes a connection, {CONNECTIONS} idle ones", "memory");
    let this = std::env::current_exe().expect("runs from a file");
    for (name, _) in Candidate::ALL {
        let done = Command::new(&this).args(["idle", name]).status().expect("starts");
        assert!(done.success(), "{name} failed");
    }
}

/// The part of such a process.
pub fn idle(name: &str) {
    let (_, candidate) =
        Candidate::ALL.into_iter().find(|(known, _)| *known == name).expect("a candidate");
    let server = Server::start(candidate);
    let connect = || {
        let mut client = Client::connect(server.address, 512);
        client.send(work::publish().as_bytes());
        client.count(1);
        client
    };
    let mut clients = Vec::with_capacity(CONNECTIONS);
    let _warm = connect();
    let before = resident();
    clients.extend(std::iter::repeat_with(connect).take(CONNECTIONS));
    println!("{name:<26} {}", (resident() - before) / CONNECTIONS);
}

fn resident() -> usize {
    let statm = std::fs::read_to_string("/proc/self/statm").expect("Linux");
    let pages: usize =
        statm.split(' ').nth(1).and_then(|pages| pages.parse().ok()).expect("a number");
    pages * rustix::param::page_size()
}
