//! The approver at this terminal: the approver key, unlocked with its passphrase, or an approver token. The first decision
//! creates the key. A terminal alone proves nothing: an agent can open one.
#![expect(clippy::disallowed_methods, reason = "reads the file named by VAMBRACE_PASSPHRASE_FILE")]

use std::io::IsTerminal as _;

use vambrace_broker::Approver;
use vambrace_core::clock::Clock as _;
use vambrace_core::error::ErrorCode;
use vambrace_ledger::{
    Decision, DecisionReach, DecisionVerb, Digest, Id, Op, RecordLevel, RecordStatus, SignedNote,
};
use vambrace_store::{
    AccessToken, ApproverKey, ApproverKeyError, Batch, Entry, Passphrase, SigningKey, SqliteStore,
    Store as _, VerifyKey,
};
use zeroize::Zeroizing;

use crate::failure::{Failure, exit};
use crate::output::Out;
use crate::project_context::redact_text;
use crate::prompt::hidden_line;
use crate::system::{self, SystemClock};

const PASSPHRASE: &str = "VAMBRACE_PASSPHRASE";
const PASSPHRASE_FILE: &str = "VAMBRACE_PASSPHRASE_FILE";
const NEW_PASSPHRASE: &str = "VAMBRACE_NEW_PASSPHRASE";
const TOKEN: &str = "VAMBRACE_TOKEN";

/// The approver: from the token in the environment, else from the approver key.
pub(crate) async fn decider(store: &SqliteStore, out: Out) -> Result<Approver, Failure> {
    match variable(TOKEN) {
        Some(text) => from_token(store, &text).await,
        None => Ok(Approver::of_key(system::user(), unlocked_key(store, out).await?)),
    }
}

async fn from_token(store: &SqliteStore, text: &str) -> Result<Approver, Failure> {
    let token = AccessToken::read(text).ok_or_else(|| {
        let hint = "set it to the token exactly as `vambrace token create` printed it";
        Failure::denied(ErrorCode::PermissionDenied, format!("{TOKEN} does not contain a token"), hint)
    })?;
    Approver::of_token(&token, store.approval_queries(), SystemClock.now()).await.map_err(Failure::of)
}

/// The approver without a prompt: from a token or a passphrase in the environment.
pub(crate) async fn from_environment(store: &SqliteStore) -> Result<Option<Approver>, Failure> {
    if let Some(text) = variable(TOKEN) {
        return from_token(store, &text).await.map(Some);
    }
    match passphrase_from_environment()? {
        Some(phrase) => with_passphrase(store, &phrase).await.map(Some),
        None => Ok(None),
    }
}

/// The approver with a passphrase that was typed; creates the key with it if there is none.
pub(crate) async fn with_typed_passphrase(
    store: &SqliteStore,
    text: Zeroizing<String>,
) -> Result<Approver, Failure> {
    with_passphrase(store, &Passphrase::new(text).ok_or_else(no_passphrase)?).await
}

async fn with_passphrase(store: &SqliteStore, phrase: &Passphrase) -> Result<Approver, Failure> {
    let key = match ApproverKey::of(store.dir()).unlock(phrase).map_err(key_failure)? {
        Some(key) => key,
        None => create_key_with(store, phrase).await?,
    };
    Ok(Approver::of_key(system::user(), key))
}

/// Whether the approver key exists.
pub(crate) fn has_key(store: &SqliteStore) -> Result<bool, Failure> {
    Ok(ApproverKey::of(store.dir()).public().map_err(key_failure)?.is_some())
}

/// The unlocked approver key; creates it if there is none.
async fn unlocked_key(store: &SqliteStore, out: Out) -> Result<SigningKey, Failure> {
    let approver = ApproverKey::of(store.dir());
    if approver.public().map_err(key_failure)?.is_none() {
        return create_key(store, out).await;
    }
    let phrase = get_passphrase("Passphrase of the approver key: ", out)?;
    match approver.unlock(&phrase).map_err(key_failure)? {
        Some(key) => Ok(key),
        None => Err(Failure::failed("the approver key was removed")),
    }
}

/// Creates the key if a passphrase is in the environment or can be typed; returns whether the key exists.
pub(crate) async fn ensure_key(store: &SqliteStore, out: Out) -> Result<bool, Failure> {
    let exists = has_key(store)?;
    let can = variable(PASSPHRASE).is_some() || variable(PASSPHRASE_FILE).is_some() || at_terminal(out);
    if exists || !can {
        return Ok(exists);
    }
    create_key(store, out).await.map(|_| true)
}

async fn create_key(store: &SqliteStore, out: Out) -> Result<SigningKey, Failure> {
    let phrase = match passphrase_from_environment()? {
        Some(phrase) => phrase,
        None if at_terminal(out) => {
            out.message("There is no approver key yet. It signs every decision. Choose a passphrase that no agent knows.");
            prompt_new_passphrase("New passphrase: ", out)?
        }
        None => return Err(no_passphrase()),
    };
    create_key_with(store, &phrase).await
}

async fn create_key_with(store: &SqliteStore, phrase: &Passphrase) -> Result<SigningKey, Failure> {
    let key = ApproverKey::of(store.dir()).make(&system::user(), phrase).map_err(key_failure)?;
    record_key_event(store, "approver.created", &key.verify_key(), "created the approver key").await?;
    Ok(key)
}

/// An approver who may also manage tokens and trust.
pub(crate) async fn administrator(store: &SqliteStore, out: Out) -> Result<Approver, Failure> {
    let decider = decider(store, out).await?;
    if decider.administers() {
        return Ok(decider);
    }
    let hint = "use the approver key (without VAMBRACE_TOKEN) or a token of kind admin";
    Err(Failure::denied(ErrorCode::PermissionDenied, "this token can only decide approval requests", hint))
}

/// Signs the trust in a project's configuration. Returns `None` if there is no key and none can be created: the trust is then
/// not signed.
pub(crate) async fn sign_trust(
    store: &SqliteStore,
    project: Digest,
    files: Digest,
    out: Out,
) -> Result<Option<(Id, SignedNote)>, Failure> {
    if !ensure_key(store, out).await? && variable(TOKEN).is_none() {
        return Ok(None);
    }
    let decider = administrator(store, out).await?;
    let hex: String = project.hex().iter().take(16).map(|digit| char::from(*digit)).collect();
    let about = Id::new(&format!("trust-{hex}")).map_err(|bad| Failure::failed(bad.to_string()))?;
    let now = SystemClock.now();
    let decision = Decision {
        about: about.clone(),
        plan: files,
        verb: DecisionVerb::Trust,
        reach: DecisionReach::Once,
        at: now,
        expires: now.later(60_000),
    };
    Ok(Some((about, decider.sign(&decision).map_err(Failure::of)?)))
}

/// Changes the passphrase of the key.
pub(crate) async fn change_passphrase(store: &SqliteStore, out: Out) -> Result<(), Failure> {
    let key = unlocked_key(store, out).await?;
    let phrase = match variable(NEW_PASSPHRASE) {
        Some(text) => Passphrase::new(text).ok_or_else(no_passphrase)?,
        None if at_terminal(out) => prompt_new_passphrase("New passphrase: ", out)?,
        None => {
            let hint = format!("set {NEW_PASSPHRASE}, or run this at a terminal");
            return Err(Failure::usage("no new passphrase was given", hint));
        }
    };
    ApproverKey::of(store.dir()).reseal(&key, &phrase).map_err(key_failure)?;
    record_key_event(
        store,
        "approver.resealed",
        &key.verify_key(),
        "changed the passphrase of the approver key",
    )
    .await
}

/// Records that a key was created or changed.
pub(crate) async fn record_key_event(
    store: &SqliteStore,
    event: &'static str,
    key: &VerifyKey,
    words: &str,
) -> Result<(), Failure> {
    let mut entry = Entry::new(Op::PolicyChange, SystemClock.now());
    entry.event_type = Some(event);
    entry.level = RecordLevel::Critical;
    entry.status = Some(RecordStatus::Success);
    entry.user = Some(redact_text(&system::user())?);
    entry.message = Some(redact_text(words)?);
    entry.key = Some(key.clone());
    store.commit(Batch::durable(vec![entry], Vec::new())).await?;
    Ok(())
}

fn variable(name: &str) -> Option<Zeroizing<String>> {
    std::env::var(name).ok().filter(|text| !text.is_empty()).map(Zeroizing::new)
}

/// A passphrase from the environment.
fn passphrase_from_environment() -> Result<Option<Passphrase>, Failure> {
    if let Some(text) = variable(PASSPHRASE) {
        return Ok(Passphrase::new(text));
    }
    let Some(path) = variable(PASSPHRASE_FILE) else { return Ok(None) };
    let text = std::fs::read_to_string(path.as_str()).map(Zeroizing::new).map_err(|error| {
        Failure::failed(format!("file of {PASSPHRASE_FILE}: {error}"))
            .hint("name a file that contains the passphrase")
    })?;
    Ok(Passphrase::new(Zeroizing::new(text.trim_end_matches(['\n', '\r']).to_owned())))
}

fn get_passphrase(prompt: &str, out: Out) -> Result<Passphrase, Failure> {
    match passphrase_from_environment()? {
        Some(phrase) => Ok(phrase),
        None if at_terminal(out) => prompt_passphrase(prompt),
        None => Err(no_passphrase()),
    }
}

fn at_terminal(out: Out) -> bool {
    !out.is_json() && std::io::stdin().is_terminal() && std::io::stderr().is_terminal()
}

fn no_passphrase() -> Failure {
    let hint = format!(
        "decide at a terminal, set {PASSPHRASE} or {PASSPHRASE_FILE}, or set {TOKEN} to a token of kind `approver`"
    );
    Failure::denied(ErrorCode::PermissionDenied, "a decision needs the passphrase of the approver key", hint)
}

fn prompt_new_passphrase(prompt: &str, out: Out) -> Result<Passphrase, Failure> {
    let first = hidden_line(prompt)?;
    if *first != *hidden_line("Repeat: ")? {
        return Err(Failure::usage("the two passphrases differ", "nothing changed; try again"));
    }
    if first.chars().count() < 8 {
        out.message(
            "note: a passphrase of fewer than eight characters can be guessed by an attacker who has the key file",
        );
    }
    Passphrase::new(first).ok_or_else(|| Failure::usage("the passphrase is empty", "choose another"))
}

fn prompt_passphrase(prompt: &str) -> Result<Passphrase, Failure> {
    Passphrase::new(hidden_line(prompt)?).ok_or_else(no_passphrase)
}

fn key_failure(fault: ApproverKeyError) -> Failure {
    let hint = match &fault {
        ApproverKeyError::WrongPassphrase => {
            "a lost passphrase cannot be recovered: remove `keys/approver.key` from the state directory; the next decision creates a new key and records this"
        }
        _ => "run `vambrace doctor`",
    };
    Failure { exit: exit::DENIED, ..Failure::denied(ErrorCode::PermissionDenied, fault.to_string(), hint) }
}
