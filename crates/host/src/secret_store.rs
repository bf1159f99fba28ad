//! Secret values and the redactor that knows them: its fingerprint key in the state directory, the secrets of this process's
//! environment, the secret scopes of the configuration. Secrets are read here and passed only to the redactor and to callers
//! that a scope is granted to.
#![expect(
    clippy::disallowed_methods,
    reason = "reads the key in the state directory and the files named by secret scopes"
)]

use std::path::{Path, PathBuf};
use std::sync::Mutex;

use vambrace_core::config::SecretSettings;
use vambrace_core::digest::Digest;
use vambrace_exec::SecretSource;
use vambrace_redact::{KnownValue, Redactor, RuleError, RuleSet, SecretBytes, secrets_inside, secrets_of};

use crate::error::HostError;
use crate::paths::Paths;
use crate::system;

/// Maximum size of a secret's file.
const MAX_SECRET_BYTES: u64 = 64 * 1024;

/// The known secrets and their redactor.
pub struct SecretStore {
    redactor: Redactor,
    scopes: serde_json::Value,
    /// Minimum length of a secret value.
    least: usize,
    /// Digest of the values that the redactor knows.
    digest: Mutex<Digest>,
}

impl std::fmt::Debug for SecretStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SecretStore").finish_non_exhaustive()
    }
}

impl SecretStore {
    /// Uses the built-in rules and the patterns of the configuration.
    pub fn open(paths: &Paths, secrets: &SecretSettings) -> Result<Self, HostError> {
        Self::with_rules(paths, secrets, Ok)
    }

    /// Like `open`, with additional rules.
    pub fn with_rules(
        paths: &Paths,
        secrets: &SecretSettings,
        more: impl FnOnce(RuleSet) -> Result<RuleSet, HostError>,
    ) -> Result<Self, HostError> {
        let rules = RuleSet::built_in().and_then(|rules| rules.with_patterns(&secrets.redact_patterns));
        let rules = more(rules.map_err(invalid_rule)?)?;
        let least = usize::try_from(secrets.least_length).unwrap_or(usize::MAX);
        let values = values(&secrets.scopes, least)?;
        let redactor = Redactor::with_min_length(rules, &values, &secrets.not_secret, least, &key(paths)?);
        Ok(Self { redactor, scopes: secrets.scopes.clone(), least, digest: Mutex::new(digest(&values)) })
    }

    /// The redactor that knows the secrets.
    #[must_use]
    pub fn redactor(&self) -> &Redactor {
        &self.redactor
    }

    /// The current value of a secret scope; `None` if it is not set or cannot be read.
    #[must_use]
    pub fn scope(&self, name: &str) -> Option<SecretBytes> {
        let found = self.scopes.as_object()?.iter().find(|(known, _)| *known == name)?;
        value(found.0, found.1, &system::environment()).ok().flatten()
    }

    /// The current values of all secret scopes.
    #[must_use]
    pub(crate) fn all_scopes(&self) -> Vec<KnownValue> {
        let names = self.scopes.as_object().into_iter().flat_map(serde_json::Map::keys);
        names.filter_map(|name| Some(KnownValue { kind: kind(name), value: self.scope(name)? })).collect()
    }

    /// The file of a scope, if its value is in a file.
    #[must_use]
    pub fn file(&self, name: &str) -> Option<&Path> {
        let scope = self.scopes.get(name).filter(|scope| scope.get("env").is_none())?;
        scope.get("file")?.as_str().map(Path::new)
    }

    /// Reads the secrets again and updates the redactor if they changed; for long-running processes.
    pub(crate) fn reload(&self) -> Result<(), HostError> {
        let values = values(&self.scopes, self.least)?;
        let now = digest(&values);
        let mut known = self.digest.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        if *known != now {
            self.redactor.replace_known_values(&values);
            *known = now;
        }
        Ok(())
    }
}

impl SecretSource for SecretStore {
    fn value(&self, scope: &str) -> Option<SecretBytes> {
        self.scope(scope)
    }

    fn file(&self, scope: &str) -> Option<PathBuf> {
        Self::file(self, scope).map(Path::to_owned)
    }

    fn all(&self) -> Vec<KnownValue> {
        self.all_scopes()
    }
}

/// An invalid redaction rule as an error.
#[must_use]
pub fn invalid_rule(fault: RuleError) -> HostError {
    HostError::denied(
        vambrace_core::error::ErrorCode::PermissionDenied,
        fault.to_string(),
        "fix the rule; without the redactor there is no output",
    )
}

fn digest(values: &[KnownValue]) -> Digest {
    Digest::of_parts(values.iter().flat_map(|value| [value.kind.as_bytes(), value.value.expose()]))
}

/// The secrets of the environment and of the scopes.
fn values(scopes: &serde_json::Value, least: usize) -> Result<Vec<KnownValue>, HostError> {
    let environment = system::environment();
    let mut values: Vec<KnownValue> = environment
        .iter()
        .flat_map(|(name, value)| secrets_of(name, value, least))
        .map(|value| KnownValue { kind: "env".to_owned(), value: SecretBytes::from(value) })
        .collect();
    for (name, scope) in scopes.as_object().into_iter().flatten() {
        let value = value(name, scope, &environment)?;
        let Some(value) = value else { continue };
        let inner = secrets_inside(&String::from_utf8_lossy(value.expose()), least);
        let one = |value: SecretBytes| KnownValue { kind: kind(name), value };
        values.extend(inner.into_iter().map(|inner| one(SecretBytes::from(inner))));
        values.push(one(value));
    }
    Ok(values)
}

/// The value of one scope.
fn value(
    name: &str,
    scope: &serde_json::Value,
    environment: &[(String, String)],
) -> Result<Option<SecretBytes>, HostError> {
    let text = |key: &str| scope.get(key).and_then(serde_json::Value::as_str);
    Ok(match (text("env"), text("file")) {
        (Some(variable), _) => environment
            .iter()
            .find(|(name, _)| name == variable)
            .map(|(_, value)| SecretBytes::from(value.as_str())),
        (None, Some(file)) => Some(read(name, Path::new(file))?),
        (None, None) => None,
    })
}

fn read(scope: &str, path: &Path) -> Result<SecretBytes, HostError> {
    let fault = |why: String| {
        HostError::denied(
            vambrace_core::error::ErrorCode::SecretScopeDenied,
            format!("secret scope `{scope}`: {why}"),
            "a secret that cannot be read cannot be redacted: fix `secrets.scopes`",
        )
    };
    let size = std::fs::metadata(path).map_err(|error| fault(error.to_string()))?.len();
    if size > MAX_SECRET_BYTES {
        return Err(fault(format!("its file has {size} bytes; the limit is {MAX_SECRET_BYTES}")));
    }
    std::fs::read(path).map(SecretBytes::new).map_err(|error| fault(error.to_string()))
}

/// The name of a scope, reduced to characters that a placeholder can contain.
fn kind(name: &str) -> String {
    name.chars()
        .map(|c| if c.is_ascii_alphanumeric() { c.to_ascii_lowercase() } else { '-' })
        .take(40)
        .collect()
}

/// The key for fingerprints; creates it if it does not exist.
fn key(paths: &Paths) -> Result<[u8; 32], HostError> {
    let dir = paths.state().join("keys");
    read_or_make_key(&dir).map_err(|error| {
        HostError::failed(format!("redactor key in `{}`: {error}", dir.display()))
            .hint("`vambrace doctor` checks the state directory")
    })
}

fn read_or_make_key(dir: &Path) -> std::io::Result<[u8; 32]> {
    use std::io::{Error, Write};
    use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
    let path = dir.join("redact.key");
    for _ in 0..2 {
        match std::fs::read(&path) {
            Ok(bytes) => {
                return <[u8; 32]>::try_from(bytes)
                    .map_err(|_| Error::other("the file does not have 32 bytes"));
            }
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
        std::fs::DirBuilder::new().recursive(true).mode(0o700).create(dir)?;
        let key = system::random_key().map_err(|error| Error::other(error.to_string()))?;
        // Written to a temporary file and linked into place, so that no process reads half a key.
        let made = dir.join(format!("redact.key.{}", std::process::id()));
        let mut file =
            std::fs::OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&made)?;
        file.write_all(&key)?;
        file.sync_all()?;
        let linked = std::fs::hard_link(&made, &path);
        std::fs::remove_file(&made)?;
        match linked {
            Ok(()) => return Ok(key),
            Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(error),
        }
    }
    Err(Error::other("the file is being created and removed repeatedly"))
}
