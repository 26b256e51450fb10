//! Warns of files with secrets that other users of the machine can read.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use rustix::process::geteuid;

use crate::config::{RawConfig, TlsConfig};

/// Logs a warning for the configuration file, if it contains secrets, and for the private key, if others
/// can read them.
pub fn warn(settings: &RawConfig, tls: Option<&TlsConfig>) {
    for ReadableSecret { path, content } in find(settings, tls) {
        let path = path.display();
        tracing::warn!(
            "{path} {content}, and other users of this machine can read it; run `chmod go= {path}`"
        );
    }
}

/// A file with a secret that other users can read.
pub struct ReadableSecret<'a> {
    pub path: &'a Path,
    /// What the file is, as the end of a sentence about it.
    pub content: &'static str,
}

/// Returns the files with secrets that other users can read.
#[must_use]
pub fn find<'a>(settings: &'a RawConfig, tls: Option<&'a TlsConfig>) -> Vec<ReadableSecret<'a>> {
    let configuration = settings.files_with_secrets();
    let configuration = configuration.into_iter().map(|path| (path, "contains secrets"));
    let key = tls.map(|tls| (tls.key_file.as_path(), "is a private key"));
    let secrets = configuration.chain(key).filter(|(path, _)| others_can_read(path));
    secrets.map(|(path, content)| ReadableSecret { path, content }).collect()
}

/// A group that can read a file of another owner is how this process reads it, so that is fine.
fn others_can_read(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|file| {
        let is_ours = file.uid() == geteuid().as_raw();
        file.mode() & if is_ours { 0o044 } else { 0o004 } != 0
    })
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn a_file_is_readable_by_others_if_group_or_world_may_read_it() {
        let file = tempfile::NamedTempFile::new().unwrap();
        for (mode, expected) in
            [(0o600, false), (0o400, false), (0o640, true), (0o604, true), (0o622, false)]
        {
            fs::set_permissions(file.path(), fs::Permissions::from_mode(mode)).unwrap();
            assert_eq!(others_can_read(file.path()), expected, "{mode:o}");
        }
        assert!(!others_can_read(Path::new("/nonexistent")));
    }
}
