//! The approver of this state directory: the approver key, unlocked with its passphrase, or an approver token. The first
//! decision creates the key. How a person is asked is the entry point's ([`PassphraseSource`]); a terminal alone proves
//! nothing: an agent can open one.
#![expect(clippy::disallowed_methods, reason = "reads the file named by VAMBRACE_PASSPHRASE_FILE")]

use vambrace_broker::Approver;
use vambrace_core::clock::Clock as _;
use vambrace_core::error::ErrorCode;
use vambrace_ledger::{
    Decision, DecisionReach, DecisionVerb, Digest, Id, Op, RecordLevel, RecordStatus, SignedNote,
};
use vambrace_store::{
    AccessToken, ApproverKey, ApproverKeyError, Batch, Entry, Passphrase, SigningKey, VerifyKey,
};
use zeroize::Zeroizing;

use crate::error::HostError;
use crate::host::Host;
use crate::system::{self, SystemClock};

const PASSPHRASE: &str = "VAMBRACE_PASSPHRASE";
const PASSPHRASE_FILE: &str = "VAMBRACE_PASSPHRASE_FILE";
const NEW_PASSPHRASE: &str = "VAMBRACE_NEW_PASSPHRASE";
const TOKEN: &str = "VAMBRACE_TOKEN";

/// Asks a person for a passphrase, if the environment has none.
pub trait PassphraseSource: Sync {
    /// Whether a person can be asked.
    fn can_ask(&self) -> bool;

    /// Asks for the passphrase of the key. Called only if a person can be asked.
    fn existing(&self) -> Result<Zeroizing<String>, HostError>;

    /// Asks for a new passphrase. Called only if a person can be asked.
    fn new_one(&self, why: NewPassphrase) -> Result<Zeroizing<String>, HostError>;
}

/// Why a new passphrase is needed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NewPassphrase {
    /// There is no key yet.
    FirstKey,
    /// The passphrase of the key changes.
    Change,
}

/// The approver: from the token in the environment, else from the approver key.
pub async fn approver(host: &Host, ask: &dyn PassphraseSource) -> Result<Approver, HostError> {
    match token_in_environment()? {
        Some(token) => from_token(host, &token).await,
        None => Ok(Approver::of_key(system::user(), unlocked_key(host, ask).await?)),
    }
}

/// The token in the environment, if there is one.
pub(crate) fn token_in_environment() -> Result<Option<AccessToken>, HostError> {
    let Some(text) = variable(TOKEN) else { return Ok(None) };
    AccessToken::read(&text).map(Some).ok_or_else(|| {
        let hint = "set it to the token exactly as `vambrace token create` printed it";
        HostError::denied(ErrorCode::PermissionDenied, format!("{TOKEN} does not contain a token"), hint)
    })
}

async fn from_token(host: &Host, token: &AccessToken) -> Result<Approver, HostError> {
    Approver::of_token(token, host.store().approval_queries(), SystemClock.now()).await.map_err(HostError::of)
}

/// The approver without a prompt: from a token or a passphrase in the environment.
pub async fn approver_from_environment(host: &Host) -> Result<Option<Approver>, HostError> {
    if let Some(token) = token_in_environment()? {
        return from_token(host, &token).await.map(Some);
    }
    match passphrase_from_environment()? {
        Some(phrase) => with_passphrase(host, &phrase).await.map(Some),
        None => Ok(None),
    }
}

/// The approver with a passphrase that was typed; creates the key with it if there is none.
pub async fn approver_with_passphrase(host: &Host, text: Zeroizing<String>) -> Result<Approver, HostError> {
    with_passphrase(host, &Passphrase::new(text).ok_or_else(no_passphrase)?).await
}

async fn with_passphrase(host: &Host, phrase: &Passphrase) -> Result<Approver, HostError> {
    let key = match ApproverKey::of(host.state_dir()).unlock(phrase).map_err(key_error)? {
        Some(key) => key,
        None => create_key_with(host, phrase).await?,
    };
    Ok(Approver::of_key(system::user(), key))
}

/// The approver who decides through an MCP client that the user's configuration trusts.
pub async fn approver_of_client(host: &Host, user: &str, client: &str) -> Result<Approver, HostError> {
    let (key, made) = vambrace_store::client_key(host.state_dir()).map_err(key_error)?;
    if made {
        let words = "this key signs decisions through clients that the user's configuration trusts";
        record_key_event(host, "approver.client", &key.verify_key(), words).await?;
    }
    Ok(Approver::of_client(user, client, key))
}

/// Whether the approver key exists.
pub fn has_approver_key(host: &Host) -> Result<bool, HostError> {
    Ok(ApproverKey::of(host.state_dir()).public().map_err(key_error)?.is_some())
}

/// The unlocked approver key; creates it if there is none.
async fn unlocked_key(host: &Host, ask: &dyn PassphraseSource) -> Result<SigningKey, HostError> {
    let approver = ApproverKey::of(host.state_dir());
    if approver.public().map_err(key_error)?.is_none() {
        return create_key(host, ask).await;
    }
    let phrase = match passphrase_from_environment()? {
        Some(phrase) => phrase,
        None if ask.can_ask() => Passphrase::new(ask.existing()?).ok_or_else(no_passphrase)?,
        None => return Err(no_passphrase()),
    };
    match approver.unlock(&phrase).map_err(key_error)? {
        Some(key) => Ok(key),
        None => Err(HostError::failed("the approver key was removed")),
    }
}

/// Creates the key if a passphrase is in the environment or can be asked for; returns whether the key exists.
pub(crate) async fn ensure_approver_key(host: &Host, ask: &dyn PassphraseSource) -> Result<bool, HostError> {
    let exists = has_approver_key(host)?;
    let can = variable(PASSPHRASE).is_some() || variable(PASSPHRASE_FILE).is_some() || ask.can_ask();
    if exists || !can {
        return Ok(exists);
    }
    create_key(host, ask).await.map(|_| true)
}

async fn create_key(host: &Host, ask: &dyn PassphraseSource) -> Result<SigningKey, HostError> {
    let phrase = match passphrase_from_environment()? {
        Some(phrase) => phrase,
        None if ask.can_ask() => ask_new(ask, NewPassphrase::FirstKey)?,
        None => return Err(no_passphrase()),
    };
    create_key_with(host, &phrase).await
}

async fn create_key_with(host: &Host, phrase: &Passphrase) -> Result<SigningKey, HostError> {
    let key = ApproverKey::of(host.state_dir()).make(&system::user(), phrase).map_err(key_error)?;
    record_key_event(host, "approver.created", &key.verify_key(), "created the approver key").await?;
    Ok(key)
}

/// An approver who may also manage tokens and trust.
pub async fn administrator(host: &Host, ask: &dyn PassphraseSource) -> Result<Approver, HostError> {
    let approver = approver(host, ask).await?;
    if approver.administers() {
        return Ok(approver);
    }
    let hint = "use the approver key (without VAMBRACE_TOKEN) or a token of kind admin";
    Err(HostError::denied(ErrorCode::PermissionDenied, "this token can only decide approval requests", hint))
}

/// Signs the trust in a project's configuration. Returns `None` if there is no key and none can be created: the trust is then
/// not signed.
pub async fn sign_trust(
    host: &Host,
    project: Digest,
    files: Digest,
    ask: &dyn PassphraseSource,
) -> Result<Option<(Id, SignedNote)>, HostError> {
    if !ensure_approver_key(host, ask).await? && variable(TOKEN).is_none() {
        return Ok(None);
    }
    let approver = administrator(host, ask).await?;
    let hex: String = project.hex().iter().take(16).map(|digit| char::from(*digit)).collect();
    let about = Id::new(&format!("trust-{hex}")).map_err(|bad| HostError::failed(bad.to_string()))?;
    let now = SystemClock.now();
    let decision = Decision {
        about: about.clone(),
        plan: files,
        verb: DecisionVerb::Trust,
        reach: DecisionReach::Once,
        at: now,
        expires: now.later(60_000),
    };
    Ok(Some((about, approver.sign(&decision).map_err(HostError::of)?)))
}

/// Changes the passphrase of the key.
pub async fn change_passphrase(host: &Host, ask: &dyn PassphraseSource) -> Result<(), HostError> {
    let key = unlocked_key(host, ask).await?;
    let phrase = match variable(NEW_PASSPHRASE) {
        Some(text) => Passphrase::new(text).ok_or_else(no_passphrase)?,
        None if ask.can_ask() => ask_new(ask, NewPassphrase::Change)?,
        None => {
            let hint = format!("set {NEW_PASSPHRASE}, or run this at a terminal");
            return Err(HostError::usage("no new passphrase was given", hint));
        }
    };
    ApproverKey::of(host.state_dir()).reseal(&key, &phrase).map_err(key_error)?;
    let words = "changed the passphrase of the approver key";
    record_key_event(host, "approver.resealed", &key.verify_key(), words).await
}

/// Records that a key was created or changed.
async fn record_key_event(
    host: &Host,
    event: &'static str,
    key: &VerifyKey,
    words: &str,
) -> Result<(), HostError> {
    let mut entry = Entry::new(Op::PolicyChange, SystemClock.now());
    entry.event_type = Some(event);
    entry.level = RecordLevel::Critical;
    entry.status = Some(RecordStatus::Success);
    entry.user = Some(host.redact(&system::user())?);
    entry.message = Some(host.redact(words)?);
    entry.key = Some(key.clone());
    host.store().commit(Batch::durable(vec![entry], Vec::new())).await?;
    Ok(())
}

fn variable(name: &str) -> Option<Zeroizing<String>> {
    system::variable(name)?.into_string().ok().map(Zeroizing::new)
}

/// A passphrase from the environment.
fn passphrase_from_environment() -> Result<Option<Passphrase>, HostError> {
    if let Some(text) = variable(PASSPHRASE) {
        return Ok(Passphrase::new(text));
    }
    let Some(path) = variable(PASSPHRASE_FILE) else { return Ok(None) };
    let text = std::fs::read_to_string(path.as_str()).map(Zeroizing::new).map_err(|error| {
        HostError::failed(format!("file of {PASSPHRASE_FILE}: {error}"))
            .hint("name a file that contains the passphrase")
    })?;
    Ok(Passphrase::new(Zeroizing::new(text.trim_end_matches(['\n', '\r']).to_owned())))
}

fn ask_new(ask: &dyn PassphraseSource, why: NewPassphrase) -> Result<Passphrase, HostError> {
    Passphrase::new(ask.new_one(why)?)
        .ok_or_else(|| HostError::usage("the passphrase is empty", "choose another"))
}

fn no_passphrase() -> HostError {
    let hint = format!(
        "decide at a terminal, set {PASSPHRASE} or {PASSPHRASE_FILE}, or set {TOKEN} to a token of kind `approver`"
    );
    HostError::denied(
        ErrorCode::PermissionDenied,
        "a decision needs the passphrase of the approver key",
        hint,
    )
}

fn key_error(fault: ApproverKeyError) -> HostError {
    let hint = match &fault {
        ApproverKeyError::WrongPassphrase => {
            "a lost passphrase cannot be recovered: remove `keys/approver.key` from the state directory; the next decision creates a new key and records this"
        }
        _ => "run `vambrace doctor`",
    };
    HostError::denied(ErrorCode::PermissionDenied, fault.to_string(), hint)
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;
    use crate::error::HostErrorKind;
    use crate::paths::Paths;

    /// A person who types the same answer to every prompt; `None` is no person.
    struct Typist {
        answer: Option<&'static str>,
        asked: Mutex<Vec<&'static str>>,
    }

    impl Typist {
        fn new(answer: Option<&'static str>) -> Self {
            Self { answer, asked: Mutex::default() }
        }

        fn type_for(&self, prompt: &'static str) -> Result<Zeroizing<String>, HostError> {
            self.asked.lock().unwrap().push(prompt);
            Ok(Zeroizing::new(self.answer.unwrap_or_default().to_owned()))
        }

        fn asked(&self) -> Vec<&'static str> {
            std::mem::take(&mut self.asked.lock().unwrap())
        }
    }

    impl PassphraseSource for Typist {
        fn can_ask(&self) -> bool {
            self.answer.is_some()
        }

        fn existing(&self) -> Result<Zeroizing<String>, HostError> {
            self.type_for("existing")
        }

        fn new_one(&self, why: NewPassphrase) -> Result<Zeroizing<String>, HostError> {
            self.type_for(if why == NewPassphrase::FirstKey { "first" } else { "change" })
        }
    }

    #[tokio::test]
    async fn first_decision_creates_the_key_and_later_ones_unlock_it() {
        let temp = tempfile::tempdir().unwrap();
        let host = Host::open(Paths::below(temp.path())).unwrap();
        let nobody = Typist::new(None);
        let denied = approver(&host, &nobody).await.unwrap_err();
        assert_eq!((denied.kind, nobody.asked().len()), (HostErrorKind::Denied, 0));
        assert!(!ensure_approver_key(&host, &nobody).await.unwrap());

        let owner = Typist::new(Some("a long passphrase"));
        let first = approver(&host, &owner).await.unwrap();
        assert_eq!(owner.asked(), ["first"]);
        assert!(ensure_approver_key(&host, &nobody).await.unwrap());
        let again = approver(&host, &owner).await.unwrap();
        assert_eq!((owner.asked(), first.by()), (vec!["existing"], again.by()));

        let guesser = Typist::new(Some("another passphrase"));
        assert_eq!(approver(&host, &guesser).await.unwrap_err().kind, HostErrorKind::Denied);
        let empty = Typist::new(Some(""));
        assert_eq!(approver(&host, &empty).await.unwrap_err().kind, HostErrorKind::Denied);
    }
}
