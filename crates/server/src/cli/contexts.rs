//! The contexts of the user: named servers, in a file that only the user can read.

use std::collections::BTreeMap;
use std::env;
use std::fmt;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use tempfile::NamedTempFile;

/// The version of the file's format.
const VERSION: u32 = 1;
const MAX_NAME_CHARS: usize = 64;

/// The name of a context.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub(super) struct ContextName(String);

impl FromStr for ContextName {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let is_allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
        let is_valid = !text.is_empty()
            && text.len() <= MAX_NAME_CHARS
            && !text.starts_with(['-', '.'])
            && text.chars().all(is_allowed);
        match is_valid {
            true => Ok(Self(text.to_owned())),
            false => Err("a context name has 1 to 64 letters, digits, dots, dashes and \
                          underscores, and starts with a letter, digit or underscore"),
        }
    }
}

impl TryFrom<String> for ContextName {
    type Error = &'static str;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        text.parse()
    }
}

impl From<ContextName> for String {
    fn from(name: ContextName) -> Self {
        name.0
    }
}

impl fmt::Display for ContextName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A server and how to log in there. It has no `Debug`, which could print the token.
#[derive(Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Context {
    pub(super) url: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) token: Option<String>,
    /// A file whose first line is the token.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) token_file: Option<PathBuf>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) ca_file: Option<PathBuf>,
}

impl Context {
    /// Returns the token, if the context has one.
    pub(super) fn token(&self) -> Result<Option<String>, String> {
        let token = match (&self.token, &self.token_file) {
            (Some(token), _) => token.clone(),
            (None, Some(file)) => {
                let text = fs::read_to_string(file);
                let text =
                    text.map_err(|error| format!("token_file {}: {error}", file.display()))?;
                text.lines().next().unwrap_or_default().trim().to_owned()
            }
            (None, None) => return Ok(None),
        };
        Ok(Some(token).filter(|token| !token.is_empty()))
    }
}

/// The contents of the file.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Contexts {
    version: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    current: Option<ContextName>,
    #[serde(default)]
    contexts: BTreeMap<ContextName, Context>,
    /// For messages.
    #[serde(skip)]
    path: PathBuf,
}

impl Contexts {
    pub(super) const fn current(&self) -> Option<&ContextName> {
        self.current.as_ref()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (&ContextName, &Context)> {
        self.contexts.iter()
    }

    pub(super) fn get(&self, name: &ContextName) -> Result<&Context, String> {
        self.contexts.get(name).ok_or_else(|| self.unknown(name))
    }

    pub(super) fn contains(&self, name: &ContextName) -> bool {
        self.contexts.contains_key(name)
    }

    pub(super) fn insert(&mut self, name: ContextName, context: Context) {
        self.contexts.insert(name, context);
    }

    /// Makes the context the current one.
    pub(super) fn select(&mut self, name: &ContextName) -> Result<(), String> {
        self.get(name)?;
        self.current = Some(name.clone());
        Ok(())
    }

    /// Removes the context. Returns `true` if it was the current one.
    pub(super) fn remove(&mut self, name: &ContextName) -> Result<bool, String> {
        if self.contexts.remove(name).is_none() {
            return Err(self.unknown(name));
        }
        let was_current = self.current.as_ref() == Some(name);
        if was_current {
            self.current = None;
        }
        Ok(was_current)
    }

    fn unknown(&self, name: &ContextName) -> String {
        let path = self.path.display();
        if self.contexts.is_empty() {
            return format!(
                "no context {name}: {path} has none; create one with `prombus context add {name} --url URL`"
            );
        }
        let names: Vec<String> = self.contexts.keys().map(ToString::to_string).collect();
        format!("no context {name} in {path}; the contexts are {}", names.join(", "))
    }

    fn has_tokens(&self) -> bool {
        self.contexts.values().any(|context| context.token.is_some())
    }
}

/// The file of contexts.
pub(super) struct ContextsFile {
    path: PathBuf,
}

impl ContextsFile {
    /// Returns `$XDG_CONFIG_HOME/prombus/contexts.toml`, by default below `~/.config`.
    pub(super) fn locate() -> Result<Self, String> {
        let folder = |name: &str| env::var_os(name).map(PathBuf::from);
        // A relative path is not valid there.
        let configured = folder("XDG_CONFIG_HOME").filter(|path| path.is_absolute());
        let home = folder("HOME").filter(|path| path.is_absolute());
        let base = configured.or_else(|| home.map(|home| home.join(".config")));
        let base = base.ok_or("contexts need a home folder: set HOME or XDG_CONFIG_HOME")?;
        Ok(Self { path: base.join("prombus/contexts.toml") })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Reads the contexts; none if the file does not exist.
    pub(super) fn read(&self) -> Result<Contexts, String> {
        let path = self.path.display();
        let text = match fs::read_to_string(&self.path) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let contexts = BTreeMap::new();
                let path = self.path.clone();
                return Ok(Contexts { version: VERSION, current: None, contexts, path });
            }
            Err(error) => return Err(format!("{path}: {error}")),
        };
        // The error's own text quotes the line, which may contain a token.
        let invalid = |error: &toml::de::Error| {
            let offset = error.span().map_or(0, |span| span.start);
            let line = text[..offset.min(text.len())].matches('\n').count() + 1;
            format!("{path}, line {line}: {}", error.message())
        };
        #[derive(Deserialize)]
        struct Header {
            version: u32,
        }
        let Header { version } = toml::from_str(&text).map_err(|error| invalid(&error))?;
        if version > VERSION {
            return Err(format!(
                "{path} has version {version}, but this prombus reads only up to {VERSION}; upgrade prombus"
            ));
        }
        let mut contexts: Contexts = toml::from_str(&text).map_err(|error| invalid(&error))?;
        contexts.path.clone_from(&self.path);
        if contexts.has_tokens() && self.others_can_read() {
            eprintln!(
                "prombus: {path} contains tokens, and other users of this machine can read it; run `chmod 600 \
                 {path}`"
            );
        }
        Ok(contexts)
    }

    /// Changes the contexts, alone: a second `prombus context` waits.
    pub(super) fn change<T>(
        &self,
        change: impl FnOnce(&mut Contexts) -> Result<T, String>,
    ) -> Result<T, String> {
        let failed = |error: io::Error| format!("{}: {error}", self.path.display());
        let folder = self.path.parent().unwrap_or(Path::new("/"));
        DirBuilder::new().recursive(true).mode(0o700).create(folder).map_err(failed)?;
        let lock = folder.join("contexts.lock");
        let lock =
            OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(lock);
        let lock = lock.map_err(failed)?;
        lock.lock().map_err(failed)?;
        let mut contexts = self.read()?;
        let changed = change(&mut contexts)?;
        let text = toml::to_string(&contexts).map_err(|error| error.to_string())?;
        self.replace(folder, &text).map_err(failed)?;
        Ok(changed)
    }

    /// Replaces the file as a whole, so that a crash leaves the old one or the new one.
    fn replace(&self, folder: &Path, text: &str) -> io::Result<()> {
        // A link, such as into a folder of dotfiles, stays one.
        let target = fs::canonicalize(&self.path).unwrap_or_else(|_| self.path.clone());
        let folder = target.parent().unwrap_or(folder);
        // Its mode is 0600.
        let mut file = NamedTempFile::new_in(folder)?;
        file.write_all(text.as_bytes())?;
        file.as_file().sync_all()?;
        file.persist(&target)?;
        File::open(folder)?.sync_all()
    }

    fn others_can_read(&self) -> bool {
        fs::metadata(&self.path).is_ok_and(|file| file.mode() & 0o077 != 0)
    }
}
