//! A server without tokens may listen on loopback only.

use std::net::SocketAddr;

use thiserror::Error;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error(
    "{0} is reachable from other machines, and without tokens anyone there could read and write \
     everything: configure auth.tokens or auth.jwt, listen on a loopback address such as \
     127.0.0.1, or pass --insecure to allow it"
)]
pub struct ExposedWithoutTokens(pub SocketAddr);

/// Rejects addresses other than loopback, unless tokens are configured or the operator passed
/// `--insecure`.
pub fn check_exposure(
    addresses: &[SocketAddr],
    auth_is_open: bool,
    insecure: bool,
) -> Result<(), ExposedWithoutTokens> {
    if !auth_is_open || insecure {
        return Ok(());
    }
    // Canonical, so that an IPv4-mapped IPv6 address is judged as the IPv4 address.
    let is_loopback = |address: &&SocketAddr| address.ip().to_canonical().is_loopback();
    match addresses.iter().find(|address| !is_loopback(address)) {
        Some(public) => Err(ExposedWithoutTokens(*public)),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOOPBACK: [&str; 4] =
        ["127.0.0.1:8090", "127.8.9.1:1", "[::1]:8083", "[::ffff:127.0.0.1]:1"];
    const PUBLIC: [&str; 5] =
        ["0.0.0.0:8090", "[::]:8090", "192.168.0.1:1", "[::ffff:10.0.0.1]:1", "[fe80::1]:1"];

    fn addresses(texts: &[&str]) -> Vec<SocketAddr> {
        texts.iter().map(|text| text.parse().unwrap()).collect()
    }

    #[test]
    fn loopback_needs_no_tokens() {
        assert_eq!(check_exposure(&addresses(&LOOPBACK), true, false), Ok(()));
        assert_eq!(check_exposure(&[], true, false), Ok(()));
    }

    #[test]
    fn public_addresses_need_tokens_or_insecure() {
        for public in addresses(&PUBLIC) {
            let both = [addresses(&LOOPBACK)[0], public];
            assert_eq!(check_exposure(&both, true, false), Err(ExposedWithoutTokens(public)));
            assert_eq!(check_exposure(&both, false, false), Ok(()));
            assert_eq!(check_exposure(&both, true, true), Ok(()));
        }
    }

    #[test]
    fn error_says_what_to_do() {
        let error = check_exposure(&addresses(&PUBLIC), true, false).unwrap_err().to_string();
        for word in ["0.0.0.0:8090", "auth.tokens", "auth.jwt", "--insecure"] {
            assert!(error.contains(word), "{error}");
        }
    }
}
