//! Frames a second in and out, and what they cost the server's thread.

use std::time::Instant;

use crate::{
    client::Client,
    server::{Candidate, Server},
    work,
};

const ROUNDS: usize = 3;
const READ: usize = 256 * 1024;
/// Ratios are against this one.
const REFERENCE: &str = "axum";

/// One measurement: frames a second, and the server's nanoseconds for a frame.
#[derive(Clone, Copy)]
struct Seen {
    rate: f64,
    cpu_ns: f64,
}

fn measure(server: &Server, frames: usize, work: impl FnOnce(&mut Client)) -> Seen {
    let mut client = Client::connect(server.address, READ);
    client.publish(work::publish().as_bytes(), 10_000);
    let (start, cpu) = (Instant::now(), server.cpu_ns());
    work(&mut client);
    let seconds = start.elapsed().as_secs_f64();
    let cpu_ns = (server.cpu_ns() - cpu) as f64 / frames as f64;
    Seen { rate: frames as f64 / seconds, cpu_ns }
}

/// All servers in turn, `ROUNDS` times.
pub fn run(frames: usize) {
    let servers = Candidate::ALL.map(|(name, candidate)| (name, Server::start(candidate)));
    let publish = work::publish();
    println!(
        "frames of {} bytes in, {} out; answers {}",
        publish.len(),
        work::event().len(),
        work::ANSWER.len()
    );
    let mut inbound = vec![Vec::new(); servers.len()];
    let mut outbound = inbound.clone();
    for _ in 0..ROUNDS {
        for (at, (_, server)) in servers.iter().enumerate() {
            inbound[at].push(measure(server, frames, |client| {
                client.publish(publish.as_bytes(), frames);
            }));
            outbound[at].push(measure(server, frames, |client| {
                client.send(format!("events {frames}").as_bytes());
                client.count(frames);
            }));
        }
    }
    for (title, seen) in [("inbound", inbound), ("outbound", outbound)] {
        let reference = servers.iter().position(|(name, _)| *name == REFERENCE).expect("is there");
        println!(
            "\n{title:<26} thousand frames/s, each round    median  ratio   server ns/frame  ratio  server busy"
        );
        let middle = median(&seen[reference]);
        for ((name, _), seen) in servers.iter().zip(&seen) {
            let rounds: Vec<_> = seen.iter().map(|s| format!("{:7.0}", s.rate / 1e3)).collect();
            let Seen { rate, cpu_ns } = median(seen);
            println!(
                "{name:<26} {}         {:7.0} {:6.2} {cpu_ns:17.0} {:6.2} {:10.0} %",
                rounds.join(" "),
                rate / 1e3,
                rate / middle.rate,
                cpu_ns / middle.cpu_ns,
                cpu_ns * rate / 1e7,
            );
        }
    }
}

/// Each of the two by itself.
fn median(seen: &[Seen]) -> Seen {
    let middle = |of: fn(&Seen) -> f64| {
        let mut values: Vec<_> = seen.iter().map(of).collect();
        values.sort_by(f64::total_cmp);
        values[values.len() / 2]
    };
    Seen { rate: middle(|seen| seen.rate), cpu_ns: middle(|seen| seen.cpu_ns) }
}
