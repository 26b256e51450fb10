//! A server that answers over HTTP.

use std::time::Duration;

use prombus_client::transport::{AddressError, HttpClient, HttpFailure};
use prombus_proto::{Clock, SystemClock, Timestamp};
use prombus_server::config::Config;
use serde::Deserialize;
use tokio::time::timeout;

use super::clock;
use super::finding::{Finding, Findings};
use crate::cli::server_arguments::Endpoint;

const AREA: &str = "server";
const TIME_LIMIT: Duration = Duration::from_secs(10);

pub(super) async fn check(endpoint: Endpoint, config: Option<&Config>, findings: &mut Findings) {
    let is_named = !endpoint.is_default();
    let endpoint = match config {
        Some(config) => endpoint.or_default(&configured_url(config)),
        None => Ok(endpoint),
    };
    let client = endpoint.and_then(|endpoint| endpoint.http());
    let mut client = match client {
        Ok(client) => client,
        Err(error) => {
            findings.push(Finding::problem(AREA, error, "correct --url or the context"));
            return;
        }
    };
    let looking = look(&mut client, is_named, findings);
    if timeout(TIME_LIMIT, looking).await.is_err() {
        findings.push(Finding::problem(
            AREA,
            format!("{} does not answer within {TIME_LIMIT:?}", client.url()),
            "look at the load and the log of the server",
        ));
    }
}

async fn look(client: &mut HttpClient, is_named: bool, findings: &mut Findings) {
    let url = client.url().to_owned();
    let before = SystemClock.now();
    let ready = client.get("/readyz").await;
    let after = SystemClock.now();
    match ready {
        Ok(answer) => {
            let date = answer.header("date").and_then(parse_date);
            findings.push(Finding::ok(AREA, format!("{url} is ready")));
            // The header has no fraction of the second.
            if let Some(date) = date {
                findings.push(clock::compare("the server", date, before.minus_ms(1000), after));
            }
            // The rest of the body would cost the connection.
            drop(answer.bytes().await);
            check_version(client, findings).await;
        }
        Err(HttpFailure::NotReached(AddressError::Unreachable { .. })) if !is_named => {
            findings.push(Finding::ok(AREA, format!("no server runs at {url}")));
        }
        Err(failure @ HttpFailure::NotReached(_)) => findings.push(Finding::problem(
            AREA,
            failure.to_string(),
            "start the server, or correct the address",
        )),
        Err(failure @ HttpFailure::Refused { .. }) => findings.push(Finding::problem(
            AREA,
            format!("{url} is not ready: {failure}"),
            "look at the log of the server; free space if the store is full",
        )),
        Err(failure) => findings.push(Finding::problem(
            AREA,
            format!("{url} does not answer like a Prombus server: {failure}"),
            "pass its HTTP address as --url",
        )),
    }
}

async fn check_version(client: &mut HttpClient, findings: &mut Findings) {
    #[derive(Deserialize)]
    struct Description {
        info: Info,
    }
    #[derive(Deserialize)]
    struct Info {
        version: String,
    }
    let own = env!("CARGO_PKG_VERSION");
    let described: Result<Description, _> = client.get_json("/openapi.json").await;
    findings.push(match described {
        Ok(Description { info: Info { version } }) if version == own => {
            Finding::ok(AREA, format!("the server has version {version}, as this program"))
        }
        Ok(Description { info: Info { version } }) => Finding::warning(
            AREA,
            format!("the server has version {version}, this program {own}"),
            "use the program of the server's version, or restart the server with the new one",
        ),
        Err(failure) => Finding::warning(
            AREA,
            format!("cannot find out the version of the server: {failure}"),
            "check that --url is the HTTP address of a Prombus server",
        ),
    });
}

/// Returns the address at which this machine reaches the server that is configured.
fn configured_url(config: &Config) -> String {
    let scheme = if config.server.tls.is_some() { "https" } else { "http" };
    let mut address = config.server.http;
    if address.ip().is_unspecified() {
        let loopback = match address.ip() {
            std::net::IpAddr::V4(_) => std::net::Ipv4Addr::LOCALHOST.into(),
            std::net::IpAddr::V6(_) => std::net::Ipv6Addr::LOCALHOST.into(),
        };
        address.set_ip(loopback);
    }
    format!("{scheme}://{address}")
}

/// Parses the header `Date`.
fn parse_date(text: &str) -> Option<Timestamp> {
    let date = jiff::fmt::rfc2822::parse(text).ok()?;
    u64::try_from(date.timestamp().as_millisecond()).ok().map(Timestamp)
}

#[cfg(test)]
mod tests {
    use prombus_server::config::Sources;

    use super::*;

    #[test]
    fn reads_the_date_of_an_answer() {
        let date = parse_date("Fri, 02 Jan 2026 03:04:05 GMT");
        assert_eq!(date, Some(Timestamp(1_767_323_045_000)));
        assert_eq!(parse_date("yesterday"), None);
    }

    #[test]
    fn a_server_that_listens_everywhere_is_reached_on_this_machine() {
        for (address, url) in [
            ("0.0.0.0:9000", "http://127.0.0.1:9000"),
            ("[::]:9000", "http://[::1]:9000"),
            ("127.0.0.1:8083", "http://127.0.0.1:8083"),
        ] {
            let set = vec![format!("server.http={address}"), "server.insecure=true".to_owned()];
            let config = Config::load(&Sources { set, ..Sources::default() }).unwrap();
            assert_eq!(configured_url(&config), url);
        }
    }
}
