//! One page of a replay by time, in a large and in a small topic.

use std::time::{Duration, Instant};

use crate::Failure;
use crate::client::Client;
use crate::server_process::ServerProcess;
use crate::store::{EVENTS_PER_MS, FIRST_TS};

const REQUESTS: u64 = 500;

pub(crate) async fn by_time(server: &ServerProcess, large: u64, small: u64) -> Result<(), Failure> {
    let mut client = Client::connect(&server.http).await?;
    let (mut in_large, mut in_small) = (Vec::new(), Vec::new());
    for number in 0..REQUESTS {
        in_large.push(page(&mut client, "large", large, number).await?);
        in_small.push(page(&mut client, "small", small, number).await?);
    }
    let (large_time, small_time) = (median(&mut in_large), median(&mut in_small));
    println!("replay by time    {large_time:8.0} µs per page of 100 in {large} events");
    println!("replay by time    {small_time:8.0} µs per page of 100 in {small} events");
    println!("ratio             {:8.2}", large_time / small_time);
    Ok(())
}

async fn page(
    client: &mut Client,
    topic: &str,
    count: u64,
    number: u64,
) -> Result<Duration, Failure> {
    // Spreads over the topic and does not revisit an event soon.
    let event = (number * 7919 * (count / REQUESTS + 1)) % (count - 100);
    let ts = FIRST_TS + event / EVENTS_PER_MS;
    let start = Instant::now();
    let page = client.get(&format!("/replay?topic={topic}&from=ts&ts={ts}&limit=100")).await?;
    let elapsed = start.elapsed();
    if !page.starts_with(format!("{{\"topic\":\"{topic}\",\"count\":100,").as_bytes()) {
        return Err(String::from_utf8_lossy(&page[..page.len().min(200)]).into());
    }
    Ok(elapsed)
}

/// In microseconds.
fn median(times: &mut [Duration]) -> f64 {
    times.sort_unstable();
    times[times.len() / 2].as_secs_f64() * 1e6
}
