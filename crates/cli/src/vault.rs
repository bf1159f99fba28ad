//! The redactor of this installation with what it must know: its key in the state folder, the secrets of our own
//! environment, the secret scopes of the configuration. Secrets are read here and go nowhere but into the redactor.
#![expect(
    clippy::disallowed_methods,
    reason = "the key lies in the state folder, scopes name files by their path"
)]

use std::path::Path;
use std::sync::Mutex;

use vambrace_core::config::Secrets;
use vambrace_core::digest::Digest;
use vambrace_redact::{KnownValue, Redactor, RuleFault, Rules, Secret, secrets_inside, secrets_of};

use crate::failure::Failure;
use crate::{machine, places};

/// A larger file is not a secret.
const LARGEST_SECRET: u64 = 64 * 1024;

/// What is known to be secret, and the redactor that knows it.
pub(crate) struct Vault {
    redactor: Redactor,
    scopes: serde_json::Value,
    /// The least length of a value that is looked for.
    least: usize,
    /// Of the values that the redactor knows.
    digest: Mutex<Digest>,
}

impl Vault {
    /// With the built-in rules and what the configuration adds.
    pub(crate) fn open(secrets: &Secrets) -> Result<Self, Failure> {
        Self::with_rules(secrets, Ok)
    }

    /// The same with more rules.
    pub(crate) fn with_rules(
        secrets: &Secrets,
        more: impl FnOnce(Rules) -> Result<Rules, Failure>,
    ) -> Result<Self, Failure> {
        let rules = Rules::built_in().and_then(|rules| rules.with_patterns(&secrets.redact_patterns));
        let rules = more(rules.map_err(unusable)?)?;
        let least = usize::try_from(secrets.least_length).unwrap_or(usize::MAX);
        let values = values(&secrets.scopes, least)?;
        let redactor = Redactor::with_least(rules, &values, &secrets.not_secret, least, &key()?);
        Ok(Self { redactor, scopes: secrets.scopes.clone(), least, digest: Mutex::new(digest(&values)) })
    }

    pub(crate) fn redactor(&self) -> &Redactor {
        &self.redactor
    }

    /// The value of a secret scope, as it is now; nothing where it is not set or cannot be read.
    pub(crate) fn scope(&self, name: &str) -> Option<Secret> {
        let found = self.scopes.as_object()?.iter().find(|(known, _)| *known == name)?;
        value(found.0, found.1, &machine::environment()).ok().flatten()
    }

    /// The values of all secret scopes, as they are now.
    pub(crate) fn all_scopes(&self) -> Vec<KnownValue> {
        let names = self.scopes.as_object().into_iter().flat_map(serde_json::Map::keys);
        names.filter_map(|name| Some(KnownValue { kind: kind(name), value: self.scope(name)? })).collect()
    }

    /// The file in which the value of a scope lies, where it lies in one.
    pub(crate) fn file(&self, name: &str) -> Option<&Path> {
        let scope = self.scopes.get(name).filter(|scope| scope.get("env").is_none())?;
        scope.get("file")?.as_str().map(Path::new)
    }

    /// Takes over secrets that have changed, for whoever runs long.
    pub(crate) fn renew(&self) -> Result<(), Failure> {
        let values = values(&self.scopes, self.least)?;
        let now = digest(&values);
        let mut known = self.digest.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        if *known != now {
            self.redactor.exchange(&values);
            *known = now;
        }
        Ok(())
    }
}

/// A rule that cannot be used, told as a failure.
pub(crate) fn unusable(fault: RuleFault) -> Failure {
    Failure::denied(
        vambrace_core::error::ErrorCode::PermissionDenied,
        fault.to_string(),
        "correct the rule; nothing leaves without the redactor",
    )
}

fn digest(values: &[KnownValue]) -> Digest {
    Digest::of_parts(values.iter().flat_map(|value| [value.kind.as_bytes(), value.value.expose()]))
}

/// The secrets of the environment and of the scopes.
fn values(scopes: &serde_json::Value, least: usize) -> Result<Vec<KnownValue>, Failure> {
    let environment = machine::environment();
    let mut values: Vec<KnownValue> = environment
        .iter()
        .flat_map(|(name, value)| secrets_of(name, value, least))
        .map(|value| KnownValue { kind: "env".to_owned(), value: Secret::from(value) })
        .collect();
    for (name, scope) in scopes.as_object().into_iter().flatten() {
        let value = value(name, scope, &environment)?;
        let Some(value) = value else { continue };
        let inner = secrets_inside(&String::from_utf8_lossy(value.expose()), least);
        let one = |value: Secret| KnownValue { kind: kind(name), value };
        values.extend(inner.into_iter().map(|inner| one(Secret::from(inner))));
        values.push(one(value));
    }
    Ok(values)
}

/// The value of one scope.
fn value(
    name: &str,
    scope: &serde_json::Value,
    environment: &[(String, String)],
) -> Result<Option<Secret>, Failure> {
    let text = |key: &str| scope.get(key).and_then(serde_json::Value::as_str);
    Ok(match (text("env"), text("file")) {
        (Some(variable), _) => environment
            .iter()
            .find(|(name, _)| name == variable)
            .map(|(_, value)| Secret::from(value.as_str())),
        (None, Some(file)) => Some(read(name, Path::new(file))?),
        (None, None) => None,
    })
}

fn read(scope: &str, path: &Path) -> Result<Secret, Failure> {
    let fault = |why: String| {
        Failure::denied(
            vambrace_core::error::ErrorCode::SecretScopeDenied,
            format!("secret scope `{scope}`: {why}"),
            "a secret that cannot be read cannot be masked: correct `secrets.scopes`",
        )
    };
    let size = std::fs::metadata(path).map_err(|error| fault(error.to_string()))?.len();
    if size > LARGEST_SECRET {
        return Err(fault(format!("its file has {size} bytes, more than {LARGEST_SECRET}")));
    }
    std::fs::read(path).map(Secret::new).map_err(|error| fault(error.to_string()))
}

/// A scope's name as a placeholder can carry it.
fn kind(name: &str) -> String {
    name.chars()
        .map(|c| if c.is_ascii_alphanumeric() { c.to_ascii_lowercase() } else { '-' })
        .take(40)
        .collect()
}

/// The key of the fingerprints, made when it is not there.
fn key() -> Result<[u8; 32], Failure> {
    let folder = places::state()?.join("keys");
    read_or_make_key(&folder).map_err(|error| {
        Failure::failed(format!("the key in `{}`: {error}", folder.display()))
            .hint("check the state folder with `vambrace doctor`")
    })
}

fn read_or_make_key(folder: &Path) -> std::io::Result<[u8; 32]> {
    use std::io::{Error, Write};
    use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
    let path = folder.join("redact.key");
    for _ in 0..2 {
        match std::fs::read(&path) {
            Ok(bytes) => {
                return <[u8; 32]>::try_from(bytes).map_err(|_| Error::other("the file has not 32 bytes"));
            }
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
        std::fs::DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
        let key = machine::random_key().map_err(|error| Error::other(error.to_string()))?;
        // Made beside and linked into place, so that two processes never read half a key.
        let made = folder.join(format!("redact.key.{}", std::process::id()));
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
    Err(Error::other("the file comes and goes"))
}
