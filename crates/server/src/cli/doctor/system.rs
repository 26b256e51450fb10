//! The limits of the operating system.

use std::fs;
use std::thread;

use prombus_server::config::Config;
use prombus_server::descriptors::connections_within;
use rustix::process::{Resource, getrlimit};

use super::finding::{Finding, Findings};
use crate::cli::human_bytes::human_bytes;

const AREA: &str = "system";
/// The queue of connections that the server asks for.
const BACKLOG: u64 = 1024;

pub(super) fn check(config: &Config, findings: &mut Findings) {
    check_open_files(config, getrlimit(Resource::Nofile).maximum, findings);
    if let Some(limit) = getrlimit(Resource::Fsize).current {
        findings.push(Finding::warning(
            AREA,
            format!("files may have at most {} (ulimit -f)", human_bytes(limit as f64)),
            "run `ulimit -f unlimited` or set LimitFSIZE=infinity: a larger file fails as if the disk were full",
        ));
    }
    let path = "/proc/sys/net/core/somaxconn";
    let backlog = fs::read_to_string(path).ok().and_then(|text| text.trim().parse().ok());
    if let Some(backlog) = backlog.filter(|backlog: &u64| *backlog < BACKLOG) {
        findings.push(Finding::warning(
            AREA,
            format!("only {backlog} connections can wait to be accepted (net.core.somaxconn)"),
            format!("run `sysctl -w net.core.somaxconn={BACKLOG}`, so that bursts of connections are not lost"),
        ));
    }
}

/// The server raises its limit up to the `maximum`; `None` means unlimited.
fn check_open_files(config: &Config, maximum: Option<u64>, findings: &mut Findings) {
    let threads = match config.server.threads {
        0 => thread::available_parallelism().map_or(1, usize::from),
        count => count,
    };
    let limit = maximum.unwrap_or(u64::MAX);
    let wanted = config.gateway.max_connections;
    let advice = "raise it with `ulimit -Hn` or LimitNOFILE";
    findings.push(match connections_within(limit, &config.server.engine, threads) {
        Err(error) => Finding::problem(AREA, error.to_string(), advice),
        Ok(connections) if connections < wanted => Finding::warning(
            AREA,
            format!(
                "{limit} open files leave room for {connections} connections, but gateway.max_connections is \
                 {wanted}"
            ),
            advice,
        ),
        Ok(_) => Finding::ok(AREA, format!("the limit of open files allows {wanted} connections")),
    });
}

#[cfg(test)]
mod tests {
    use prombus_server::config::Sources;

    use super::*;

    #[test]
    fn compares_the_limit_of_open_files_with_the_connections() {
        let config = Config::load(&Sources::default()).unwrap();
        for (limit, text) in [
            (None, "ok       system   the limit of open files allows 10000 connections"),
            (Some(1024), "warning  system   1024 open files leave room for"),
            (Some(64), "PROBLEM  system   the limit of open files is 64"),
        ] {
            let mut findings = Findings::default();
            check_open_files(&config, limit, &mut findings);
            assert!(findings.to_text().starts_with(text), "{findings:?}");
        }
    }
}
