//! Replaces tokens, keys and certificates of a running server.
//!
//! [`Reloadable`] is what can be replaced, [`Reloader`] reads the configuration again and watches files.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use thiserror::Error;
use tokio::sync::watch;
use tokio_rustls::rustls::ServerConfig;

use crate::access::Access;
use crate::config::{AuthConfig, Config, ConfigError, RawConfig, Sources, TlsConfig};
use crate::gateway::Gateway;
use crate::phase::Phase;
use crate::readable_secrets;
use crate::server::StartError;
use crate::swap::Swap;
use crate::tls;

/// What a reload replaces.
pub struct Reloadable {
    pub(crate) gateway: Arc<Gateway>,
    pub(crate) tls: Option<ReloadableTls>,
    pub(crate) phase: watch::Sender<Phase>,
}

/// The files of the configuration at the start, and what was read from them last.
pub(crate) struct ReloadableTls {
    files: TlsConfig,
    /// Used by the next handshake.
    pub(crate) in_use: Arc<Swap<ServerConfig>>,
}

impl ReloadableTls {
    pub(crate) fn read(files: &TlsConfig) -> Result<Self, StartError> {
        let in_use = Arc::new(Swap::new(tls::server_config(files)?));
        Ok(Self { files: files.clone(), in_use })
    }
}

/// The result of a reload. Its parts are independent: an unreadable certificate does not keep a removed
/// token alive.
#[derive(Debug)]
pub struct Reloaded {
    /// Tokens, keys, certificates of clients, origins.
    pub access: Result<(), ReloadError>,
    /// `None` if the server does not use TLS.
    pub tls: Option<Result<(), ReloadError>>,
}

/// Why something stays as it was.
#[derive(Debug, Error)]
pub enum ReloadError {
    #[error(transparent)]
    Unusable(#[from] StartError),
    #[error("authentication cannot be turned on or off while the server runs; restart it")]
    Switched,
}

impl Reloadable {
    /// See [`crate::server::Server::reload`].
    pub fn reload(&self, auth: &AuthConfig) -> Reloaded {
        Reloaded {
            access: self.reload_access(auth),
            tls: self.tls.as_ref().map(|tls| {
                tls.in_use.store(tls::server_config(&tls.files)?);
                Ok(())
            }),
        }
    }

    fn reload_access(&self, auth: &AuthConfig) -> Result<(), ReloadError> {
        let access = Access::new(auth)?;
        if access.authenticator.is_open() != self.gateway.access().authenticator.is_open() {
            return Err(ReloadError::Switched);
        }
        self.gateway.access.store(access);
        // After the rules: a connection that sees the new phase checks against the new rules.
        self.phase.send_if_modified(|phase| match phase {
            Phase::Serving { reloads } => {
                *reloads += 1;
                true
            }
            Phase::Stopping => false,
        });
        Ok(())
    }
}

/// Reloads a server on request, or when one of its files has changed.
pub struct Reloader {
    sources: Sources,
    /// The settings at the start. Only those under `auth` can change while the server runs.
    at_start: RawConfig,
    tls: Option<TlsConfig>,
    /// The last valid settings.
    auth: AuthConfig,
    /// The files as they were when they were last read.
    seen: BTreeMap<PathBuf, Option<FileStamp>>,
}

/// Tells the versions of a file apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct FileStamp {
    /// Device and inode: a file is usually replaced by renaming another one.
    file: (u64, u64),
    bytes: u64,
    modified: (i64, i64),
    changed: (i64, i64),
}

impl FileStamp {
    fn of(path: &Path) -> Option<Self> {
        let file = fs::metadata(path).ok()?;
        Some(Self {
            file: (file.dev(), file.ino()),
            bytes: file.len(),
            modified: (file.mtime(), file.mtime_nsec()),
            changed: (file.ctime(), file.ctime_nsec()),
        })
    }
}

impl Reloader {
    /// Create it before the server reads the files, so that no change between the two is missed.
    #[must_use]
    pub fn new(sources: Sources, at_start: RawConfig, config: &Config) -> Self {
        let (tls, auth) = (config.server.tls.clone(), config.auth.clone());
        let mut reloader = Self { sources, at_start, tls, auth, seen: BTreeMap::new() };
        reloader.seen = reloader.stamps();
        reloader
    }

    /// Reloads if a file has changed since it was last read, and returns `true` if one has.
    pub fn reload_if_changed(&mut self, target: &Reloadable) -> bool {
        let now = self.stamps();
        let changed: Vec<_> = now
            .iter()
            .filter(|(path, stamp)| self.seen.get(*path) != Some(stamp))
            .map(|(path, _)| path.display().to_string())
            .collect();
        if changed.is_empty() {
            return false;
        }
        tracing::info!("changed: {}; reloading", changed.join(", "));
        self.reload(target);
        true
    }

    /// Reads everything again. What cannot be read stays as it is, and the log says why.
    pub fn reload(&mut self, target: &Reloadable) {
        // Before the files are read: if they change meanwhile, the next look sees it.
        self.seen = self.stamps();
        match self.read_configuration() {
            Ok(auth) => self.auth = auth,
            Err(error) => tracing::error!(
                "cannot reload the configuration: {error}; tokens and other settings stay as they were"
            ),
        }
        // The new configuration may name other files.
        for (path, stamp) in self.stamps() {
            self.seen.entry(path).or_insert(stamp);
        }
        let Reloaded { access, tls } = target.reload(&self.auth);
        let auth = &self.auth;
        match access {
            Ok(()) => tracing::info!(
                "reloaded {} tokens, {} client certificates, {} keys for signed tokens, {} origins",
                auth.tokens.len(),
                auth.certificates.len(),
                auth.jwt.key_sources(),
                auth.allowed_origins.len()
            ),
            Err(error) => {
                tracing::error!("cannot reload tokens and keys: {error}; the previous ones stay");
            }
        }
        match tls {
            None => {}
            Some(Ok(())) => tracing::info!("reloaded the TLS certificate; new connections use it"),
            Some(Err(error)) => {
                tracing::error!(
                    "cannot reload the TLS certificate: {error}; the previous one stays"
                );
            }
        }
        readable_secrets::warn(&self.at_start, self.tls.as_ref());
    }

    fn read_configuration(&self) -> Result<AuthConfig, ConfigError> {
        let settings = RawConfig::load(&self.sources)?;
        let config = Config::validate(&settings)?;
        let ignored = settings.changed_outside_of("auth", &self.at_start);
        if !ignored.is_empty() {
            tracing::warn!("changed settings that need a restart: {}", ignored.join(", "));
        }
        Ok(config.auth)
    }

    fn stamps(&self) -> BTreeMap<PathBuf, Option<FileStamp>> {
        let (tls, jwt) = (self.tls.as_ref(), &self.auth.jwt);
        let files = [
            self.sources.file.as_ref(),
            tls.map(|tls| &tls.cert_file),
            tls.map(|tls| &tls.key_file),
            tls.and_then(|tls| tls.client_auth.ca_file()),
            jwt.public_key_file.as_ref(),
            jwt.jwks_file.as_ref(),
        ];
        files.into_iter().flatten().map(|path| (path.clone(), FileStamp::of(path))).collect()
    }
}
