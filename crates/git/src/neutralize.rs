//! What is set against the configuration of a repository, so that it starts no program.
//!
//! Git reads a repository's configuration whatever the command line says, and options exist for few of the keys that name
//! programs; filters, for example, have names that only the repository knows. So its files are read first, as data, and each
//! invocation sets what was found to something harmless. Settings go through `GIT_CONFIG_COUNT`, not `-c`: `-c` cannot express
//! a subsection that contains `=`. They come last, and git lets the last value count. The few keys where the first value counts
//! (`remote.*.receivepack`), or where values add up (`url.*.insteadOf`, `include.path`), are not used or are rejected.
//!
//! Attributes are left alone: an empty attribute source would turn filters off as well, but also line endings and encodings, and
//! git 2.39 has none.
//!
//! [`NeutralizedConfig::sanitized`] is the same decision as a file, for a sandbox that can show it in place of the repository's:
//! there, only settings that are known as data exist.

use std::collections::BTreeSet;

use vambrace_core::quote::quoted;

use crate::config_key::GitConfigKey;
use crate::config_syntax::{GitConfigEntry, quote_config_value};
use crate::key_table::{KeyTreatment, fixed_settings, treatment_of};
use crate::push::PUSH_REMOTE;
use crate::repository::RepositoryError;

/// Maximum number of settings, and of bytes in them, that are set against; they are passed as environment variables.
const MAX_OVERRIDES: usize = 2000;
const MAX_OVERRIDE_BYTES: usize = 128 << 10;

/// Extensions of the repository format that change nothing about what git starts.
const EXTENSIONS: &[&str] = &[
    "compatobjectformat",
    "noop",
    "noop-v1",
    "objectformat",
    "partialclone",
    "preciousobjects",
    "relativeworktrees",
    "submodulepathconfig",
    "worktreeconfig",
];

/// The settings that are set against a repository's configuration.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NeutralizedConfig {
    overrides: Vec<(Vec<u8>, &'static str)>,
    disabled: Vec<GitConfigKey>,
    push_obstacles: Vec<GitConfigKey>,
    hooks_path: Option<String>,
    kept: Vec<GitConfigEntry>,
}

impl NeutralizedConfig {
    pub(crate) fn new(settings: &[GitConfigEntry]) -> Result<Self, RepositoryError> {
        let mut found = BTreeSet::new();
        let (mut disabled, mut obstacles) = (BTreeSet::new(), BTreeSet::new());
        let mut config = Self::default();
        for entry in settings {
            let key = &entry.key;
            match treatment_of(key) {
                KeyTreatment::Found(value) => {
                    found.insert((key.to_full(), value));
                    disabled.insert(key.clone());
                }
                KeyTreatment::Set(_) => {
                    disabled.insert(key.clone());
                }
                KeyTreatment::DenyPush => {
                    obstacles.insert(key.clone());
                }
                KeyTreatment::Special => {
                    check_special(entry)?;
                    // The settings of the worktree's own file are part of the one file.
                    let merged = key.is("extensions", "worktreeconfig");
                    if matches!(key.section(), b"extensions" | b"core") && !merged {
                        config.kept.push(entry.clone());
                    }
                }
                KeyTreatment::Data => config.kept.push(entry.clone()),
                KeyTreatment::Option | KeyTreatment::Unused | KeyTreatment::Foreign => {}
            }
            if key.section() == b"remote" && key.subsection() == Some(PUSH_REMOTE.as_bytes()) {
                return Err(RepositoryError::ReservedRemote(key.clone()));
            }
            if key.is("core", "hookspath") {
                config.hooks_path = entry.value.as_deref().map(quoted);
            }
        }
        config.overrides = fixed_settings().map(|(key, value)| (key.as_bytes().to_vec(), value)).collect();
        config.overrides.extend(found);
        config.disabled = disabled.into_iter().collect();
        config.push_obstacles = obstacles.into_iter().collect();
        let bytes: usize = config.overrides.iter().map(|(key, value)| key.len() + value.len()).sum();
        if config.overrides.len() > MAX_OVERRIDES || bytes > MAX_OVERRIDE_BYTES {
            return Err(RepositoryError::TooManySettings);
        }
        Ok(config)
    }

    /// The settings of every invocation: full keys and values.
    #[must_use]
    pub fn overrides(&self) -> &[(Vec<u8>, &'static str)] {
        &self.overrides
    }

    /// The keys that the repository sets and that have no effect here, because they name programs or would change the output.
    #[must_use]
    pub fn disabled(&self) -> &[GitConfigKey] {
        &self.disabled
    }

    /// The keys that the repository sets and that a push is denied for.
    #[must_use]
    pub fn push_obstacles(&self) -> &[GitConfigKey] {
        &self.push_obstacles
    }

    /// The hook directory that the repository sets; its hooks do not run.
    #[must_use]
    pub fn hooks_path(&self) -> Option<&str> {
        self.hooks_path.as_deref()
    }

    /// The names of the hooks that the configuration itself defines (git 2.54 and newer); they do not run.
    #[must_use]
    pub fn configured_hooks(&self) -> Vec<String> {
        let hooks = self.disabled.iter().filter(|key| key.is("hook", "command") || key.is("hook", "event"));
        let names: BTreeSet<&[u8]> = hooks.filter_map(GitConfigKey::subsection).collect();
        names.into_iter().map(quoted).collect()
    }

    /// A configuration file with only those of the repository's settings that are known as data.
    #[must_use]
    pub fn sanitized(&self) -> Vec<u8> {
        let mut text = Vec::new();
        for entry in &self.kept {
            text.push(b'[');
            text.extend(entry.key.section());
            if let Some(subsection) = entry.key.subsection() {
                text.push(b' ');
                // A subsection has no line breaks: the same quotes serve.
                quote_config_value(subsection, &mut text);
            }
            text.extend(b"]\n\t");
            text.extend(entry.key.variable());
            if let Some(value) = &entry.value {
                text.extend(b" = ");
                quote_config_value(value, &mut text);
            }
            text.push(b'\n');
        }
        text
    }
}

/// Checks the settings that nothing can be set against.
fn check_special(entry: &GitConfigEntry) -> Result<(), RepositoryError> {
    let value = entry.value.as_deref().unwrap_or_default();
    let name = String::from_utf8_lossy(entry.key.variable()).into_owned();
    match entry.key.section() {
        b"core" if !matches!(value, b"0" | b"1") => Err(RepositoryError::UnknownFormat(quoted(value))),
        // A place instead of a word is read by git 2.54 and newer: refs outside the repository.
        b"extensions" if name == "refstorage" && matches!(value, b"files" | b"reftable") => Ok(()),
        b"extensions" if !EXTENSIONS.contains(&name.as_str()) => Err(RepositoryError::UnknownExtension(name)),
        _ => Ok(()),
    }
}
