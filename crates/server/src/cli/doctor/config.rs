//! The settings: whether they are valid, and whether they are wise.

use prombus_server::config::{Config, RawConfig, Sources};
use prombus_server::readable_secrets;

use super::finding::{Finding, Findings};

const AREA: &str = "config";

/// Returns the configuration if it is valid.
pub(super) fn check(sources: &Sources, findings: &mut Findings) -> Option<Config> {
    let loaded = RawConfig::load(sources).and_then(|raw| Ok((Config::validate(&raw)?, raw)));
    let (config, raw) = match loaded {
        Ok(loaded) => loaded,
        Err(error) => {
            findings.push(Finding::problem(
                AREA,
                error.to_string(),
                "correct the setting; without it, the server does not start, and store and system are not \
                 checked",
            ));
            return None;
        }
    };
    let source = match &sources.file {
        Some(file) => format!("{} is valid", file.display()),
        None => "the settings are valid; no configuration file is used".to_owned(),
    };
    findings.push(Finding::ok(AREA, source));
    for secret in readable_secrets::find(&raw, config.server.tls.as_ref()) {
        let path = secret.path.display();
        findings.push(Finding::problem(
            AREA,
            format!("{path} {}, and other users of this machine can read it", secret.content),
            format!("run `chmod go= {path}`"),
        ));
    }
    check_exposure(&config, findings);
    Some(config)
}

fn check_exposure(config: &Config, findings: &mut Findings) {
    let server = &config.server;
    let is_public = [server.ws, server.http].iter().any(|address| !address.ip().is_loopback());
    if is_public && server.insecure {
        findings.push(Finding::warning(
            AREA,
            "the server listens on a public address and lets everybody in (server.insecure)",
            "configure auth.tokens or auth.jwt, and remove server.insecure",
        ));
    }
    if is_public && server.tls.is_none() {
        findings.push(Finding::warning(
            AREA,
            "the server listens on a public address without TLS, so tokens and events can be read on the way",
            "set server.tls.cert_file and server.tls.key_file, or put a proxy with TLS in front",
        ));
    }
    if !config.limits.enabled {
        findings.push(Finding::warning(
            AREA,
            "the limits are off (limits.enabled): a single client can take all the capacity",
            "remove limits.enabled and --no-limits, and raise the limits that are too low",
        ));
    }
}
