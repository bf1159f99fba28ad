//! Who decides at this terminal: the approver key, unlocked by its passphrase, or a token that decides. The first decision
//! makes the key. A terminal by itself proves nothing: an agent can open one.
#![expect(
    clippy::disallowed_methods,
    reason = "the file that VAMBRACE_PASSPHRASE_FILE names is read by its path"
)]

use std::io::IsTerminal as _;

use vambrace_broker::Decider;
use vambrace_core::clock::Clock as _;
use vambrace_core::error::ErrorCode;
use vambrace_ledger::{Decision, Digest, Id, Level, Note, Op, Reach, Status, Verb};
use vambrace_store::{
    Approver, ApproverFault, Batch, Entry, Passphrase, SigningKey, SqliteStore, Store as _, Token, VerifyKey,
};
use zeroize::Zeroizing;

use crate::desk::clean;
use crate::failure::{Failure, exit};
use crate::machine::{self, SystemClock};
use crate::out::Out;
use crate::prompt::hidden_line;

const PHRASE: &str = "VAMBRACE_PASSPHRASE";
const PHRASE_FILE: &str = "VAMBRACE_PASSPHRASE_FILE";
const NEW_PHRASE: &str = "VAMBRACE_NEW_PASSPHRASE";
const TOKEN: &str = "VAMBRACE_TOKEN";

/// Whoever decides here.
pub(crate) async fn decider(store: &SqliteStore, out: Out) -> Result<Decider, Failure> {
    match variable(TOKEN) {
        Some(text) => of_token(store, &text).await,
        None => Ok(Decider::of_key(machine::user(), unlocked(store, out).await?)),
    }
}

async fn of_token(store: &SqliteStore, text: &str) -> Result<Decider, Failure> {
    let token = Token::read(text).ok_or_else(|| {
        let hint = "give the token as `vambrace token create` printed it";
        Failure::denied(ErrorCode::PermissionDenied, format!("{TOKEN} does not hold a token"), hint)
    })?;
    Decider::of_token(&token, store.questions(), SystemClock.now()).await.map_err(Failure::of)
}

/// Whoever decides without being asked for anything: by a token or a passphrase in the environment.
pub(crate) async fn unasked(store: &SqliteStore) -> Result<Option<Decider>, Failure> {
    if let Some(text) = variable(TOKEN) {
        return of_token(store, &text).await.map(Some);
    }
    match given()? {
        Some(phrase) => with(store, &phrase).await.map(Some),
        None => Ok(None),
    }
}

/// Whoever knows the passphrase; where there is no key yet, it is made with it.
pub(crate) async fn with_phrase(store: &SqliteStore, text: Zeroizing<String>) -> Result<Decider, Failure> {
    with(store, &Passphrase::new(text).ok_or_else(nobody)?).await
}

async fn with(store: &SqliteStore, phrase: &Passphrase) -> Result<Decider, Failure> {
    let key = match Approver::of(store.dir()).unlock(phrase).map_err(fault)? {
        Some(key) => key,
        None => make_with(store, phrase).await?,
    };
    Ok(Decider::of_key(machine::user(), key))
}

/// Whether there is a key.
pub(crate) fn has_key(store: &SqliteStore) -> Result<bool, Failure> {
    Ok(Approver::of(store.dir()).public().map_err(fault)?.is_some())
}

/// The key, made when there is none yet.
async fn unlocked(store: &SqliteStore, out: Out) -> Result<SigningKey, Failure> {
    let approver = Approver::of(store.dir());
    if approver.public().map_err(fault)?.is_none() {
        return make(store, out).await;
    }
    let phrase = asked("Passphrase of the approver key: ", out)?;
    match approver.unlock(&phrase).map_err(fault)? {
        Some(key) => Ok(key),
        None => Err(Failure::failed("the approver key is gone")),
    }
}

/// Makes the key where it can be made without asking, or somebody is there to be asked; says whether there is one.
pub(crate) async fn ensure(store: &SqliteStore, out: Out) -> Result<bool, Failure> {
    let there = has_key(store)?;
    let can = variable(PHRASE).is_some() || variable(PHRASE_FILE).is_some() || at_terminal(out);
    if there || !can {
        return Ok(there);
    }
    make(store, out).await.map(|_| true)
}

async fn make(store: &SqliteStore, out: Out) -> Result<SigningKey, Failure> {
    let phrase = match given()? {
        Some(phrase) => phrase,
        None if at_terminal(out) => {
            out.say("There is no approver key yet. It signs every decision; choose a passphrase that no agent knows.");
            twice("New passphrase: ", out)?
        }
        None => return Err(nobody()),
    };
    make_with(store, &phrase).await
}

async fn make_with(store: &SqliteStore, phrase: &Passphrase) -> Result<SigningKey, Failure> {
    let key = Approver::of(store.dir()).make(&machine::user(), phrase).map_err(fault)?;
    record(store, "approver.created", &key.verify_key(), "makes the approver key").await?;
    Ok(key)
}

/// Who decides, and may change who else does.
pub(crate) async fn administrator(store: &SqliteStore, out: Out) -> Result<Decider, Failure> {
    let decider = decider(store, out).await?;
    if decider.administers() {
        return Ok(decider);
    }
    let hint = "use the approver key (without VAMBRACE_TOKEN) or a token of kind admin";
    Err(Failure::denied(ErrorCode::PermissionDenied, "this token decides questions and nothing else", hint))
}

/// Signs the trust in a project's configuration. Where there is no key and nobody to make one for, trust is not signed.
pub(crate) async fn sign_trust(
    store: &SqliteStore,
    project: Digest,
    files: Digest,
    out: Out,
) -> Result<Option<(Id, Note)>, Failure> {
    if !ensure(store, out).await? && variable(TOKEN).is_none() {
        return Ok(None);
    }
    let decider = administrator(store, out).await?;
    let hex: String = project.hex().iter().take(16).map(|digit| char::from(*digit)).collect();
    let about = Id::new(&format!("trust-{hex}")).map_err(|bad| Failure::failed(bad.to_string()))?;
    let now = SystemClock.now();
    let decision = Decision {
        about: about.clone(),
        plan: files,
        verb: Verb::Trust,
        reach: Reach::Once,
        at: now,
        expires: now.later(60_000),
    };
    Ok(Some((about, decider.sign(&decision).map_err(Failure::of)?)))
}

/// Seals the key with another passphrase.
pub(crate) async fn change_passphrase(store: &SqliteStore, out: Out) -> Result<(), Failure> {
    let key = unlocked(store, out).await?;
    let phrase = match variable(NEW_PHRASE) {
        Some(text) => Passphrase::new(text).ok_or_else(nobody)?,
        None if at_terminal(out) => twice("New passphrase: ", out)?,
        None => {
            let hint = format!("set {NEW_PHRASE}, or answer at a terminal");
            return Err(Failure::usage("there is no new passphrase", hint));
        }
    };
    Approver::of(store.dir()).reseal(&key, &phrase).map_err(fault)?;
    record(store, "approver.resealed", &key.verify_key(), "changes the passphrase of the approver key").await
}

/// A key begins or goes on to count: on record.
pub(crate) async fn record(
    store: &SqliteStore,
    event: &'static str,
    key: &VerifyKey,
    words: &str,
) -> Result<(), Failure> {
    let mut entry = Entry::new(Op::PolicyChange, SystemClock.now());
    entry.event_type = Some(event);
    entry.level = Level::Critical;
    entry.status = Some(Status::Success);
    entry.user = Some(clean(&machine::user())?);
    entry.message = Some(clean(words)?);
    entry.key = Some(key.clone());
    store.commit(Batch::durable(vec![entry], Vec::new())).await?;
    Ok(())
}

fn variable(name: &str) -> Option<Zeroizing<String>> {
    std::env::var(name).ok().filter(|text| !text.is_empty()).map(Zeroizing::new)
}

/// A passphrase from the environment.
fn given() -> Result<Option<Passphrase>, Failure> {
    if let Some(text) = variable(PHRASE) {
        return Ok(Passphrase::new(text));
    }
    let Some(path) = variable(PHRASE_FILE) else { return Ok(None) };
    let text = std::fs::read_to_string(path.as_str()).map(Zeroizing::new).map_err(|error| {
        Failure::failed(format!("the file that {PHRASE_FILE} names: {error}"))
            .hint("name a file with the passphrase")
    })?;
    Ok(Passphrase::new(Zeroizing::new(text.trim_end_matches(['\n', '\r']).to_owned())))
}

fn asked(prompt: &str, out: Out) -> Result<Passphrase, Failure> {
    match given()? {
        Some(phrase) => Ok(phrase),
        None if at_terminal(out) => typed(prompt),
        None => Err(nobody()),
    }
}

fn at_terminal(out: Out) -> bool {
    !out.is_json() && std::io::stdin().is_terminal() && std::io::stderr().is_terminal()
}

fn nobody() -> Failure {
    let hint = format!(
        "decide at a terminal, set {PHRASE} or {PHRASE_FILE}, or put a token of kind `approver` into {TOKEN}"
    );
    Failure::denied(ErrorCode::PermissionDenied, "deciding takes the passphrase of the approver key", hint)
}

fn twice(prompt: &str, out: Out) -> Result<Passphrase, Failure> {
    let first = hidden_line(prompt)?;
    if *first != *hidden_line("Once more: ")? {
        return Err(Failure::usage("the two passphrases differ", "nothing was changed; try again"));
    }
    if first.chars().count() < 8 {
        out.say(
            "note: a passphrase of fewer than eight characters can be guessed from a copy of the key file",
        );
    }
    Passphrase::new(first)
        .ok_or_else(|| Failure::usage("an empty passphrase seals nothing", "choose another"))
}

fn typed(prompt: &str) -> Result<Passphrase, Failure> {
    Passphrase::new(hidden_line(prompt)?).ok_or_else(nobody)
}

fn fault(fault: ApproverFault) -> Failure {
    let hint = match &fault {
        ApproverFault::WrongPassphrase => {
            "a lost passphrase cannot be recovered: remove `keys/approver.key` from the state folder, and the next decision makes another key, on record"
        }
        _ => "run `vambrace doctor`",
    };
    Failure { exit: exit::DENIED, ..Failure::denied(ErrorCode::PermissionDenied, fault.to_string(), hint) }
}
