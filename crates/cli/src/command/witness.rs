//! `vambrace witness`: stores the newest checkpoints of other ledgers, to detect a rollback of them. It has its own state
//! directory: next to the ledgers it would be rolled back with them.
#![expect(clippy::disallowed_methods, reason = "the user names the file with the list of logs")]

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::json;
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};
use vambrace_core::clock::RandomSource as _;
use vambrace_core::terminal_escape::{one_line, sanitize};
use vambrace_core::timestamp::Timestamp;
use vambrace_host::Paths;
use vambrace_host::system::{SystemClock, SystemRandom, random_key};
use vambrace_ledger::SigningKey;
use vambrace_witness::{
    KnownLogs, SignedCheckpoint, Witness, WitnessAnswer, WitnessDir, WitnessDirError, serve,
};

use crate::args::{WitnessCommand, WitnessServeArgs};
use crate::failure::Failure;
use crate::output::{Out, Tone, paint};

pub(crate) async fn run(
    what: Option<WitnessCommand>,
    caller: WitnessServeArgs,
    state: Option<PathBuf>,
    out: &Out,
) -> Result<ExitCode, Failure> {
    let dir = own_directory(state)?;
    match what {
        None => serving(dir, &caller, *out).await?,
        Some(WitnessCommand::Key { name }) => {
            let key = key(&dir, name.as_deref())?.verify_key();
            if out.is_json() {
                out.value(&json!({"name": key.name(), "key": key.to_string()}));
            } else {
                out.line(key);
            }
        }
        Some(WitnessCommand::List) => list(&dir, *out)?,
        Some(WitnessCommand::Forget { origin }) => {
            if !dir.forget(&origin)? {
                let hint = "`vambrace witness list` lists the signed logs";
                return Err(Failure::usage(format!("nothing was signed for `{origin}`"), hint));
            }
            out.message(format!(
                "forgot `{}`: its next checkpoint will be signed unconditionally",
                sanitize(&origin)
            ));
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// The directory of the witness; it must not overlap the state directory.
fn own_directory(state: Option<PathBuf>) -> Result<WitnessDir, Failure> {
    let hint = "set `--state` to a directory on another machine or disk than the ledgers";
    let state = state.ok_or_else(|| Failure::usage("a witness needs its own state directory", hint))?;
    let given = std::path::absolute(&state)
        .map_err(|error| Failure::failed(format!("`{}`: {error}", state.display())))?;
    deny_overlap(&given, hint)?;
    let dir = WitnessDir::open(&given)?;
    deny_overlap(&given.canonicalize().unwrap_or(given), hint)?;
    Ok(dir)
}

fn deny_overlap(witness: &Path, hint: &str) -> Result<(), Failure> {
    let Ok(paths) = Paths::from_environment() else { return Ok(()) };
    let state = paths.state().canonicalize().unwrap_or_else(|_| paths.state().to_owned());
    if witness.starts_with(&state) || state.starts_with(witness) {
        let why = format!("`{}` and the state directory `{}` overlap", witness.display(), state.display());
        return Err(Failure::usage(format!("{why}: they would be rolled back together"), hint));
    }
    Ok(())
}

fn key(dir: &WitnessDir, name: Option<&str>) -> Result<SigningKey, Failure> {
    let new_name =
        || name.map_or_else(|| format!("witness/{:016x}", SystemRandom.random_u128() as u64), str::to_owned);
    let key = dir.key(new_name, random_key)?;
    match name {
        Some(name) if name != key.verify_key().name() => {
            let hint = "a key cannot be renamed; omit `--name`, or use another directory";
            Err(Failure::usage(format!("the existing key has the name `{}`", key.verify_key().name()), hint))
        }
        _ => Ok(key),
    }
}

fn known(caller: &WitnessServeArgs) -> Result<KnownLogs, Failure> {
    let hint =
        "a verifier key looks like `name+id+base64`; `vambrace audit checkpoint` prints the key of a ledger";
    let mut logs = KnownLogs::default();
    for words in &caller.log {
        logs.add(words).map_err(|why| Failure::usage(why, hint))?;
    }
    if let Some(file) = &caller.logs {
        let invalid = |why: String| Failure::usage(format!("`{}`: {why}", file.display()), hint);
        let text = std::fs::read_to_string(file).map_err(|error| invalid(error.to_string()))?;
        logs.merge(KnownLogs::parse(&text).map_err(|bad| invalid(bad.to_string()))?);
    }
    if logs.is_empty() {
        return Err(Failure::usage("there is no log to sign for", "use `--log` or `--logs`"));
    }
    Ok(logs)
}

async fn serving(dir: WitnessDir, caller: &WitnessServeArgs, out: Out) -> Result<(), Failure> {
    let logs = known(caller)?;
    let (count, key) = (logs.len(), key(&dir, None)?);
    let witness = Arc::new(Witness::open(dir, key, logs, Arc::new(SystemClock))?);
    let failed = |error| Failure::failed(format!("cannot listen on {}: {error}", caller.listen));
    let listener = TcpListener::bind(caller.listen).await.map_err(failed)?;
    let url = format!("http://{}", listener.local_addr().map_err(failed)?);
    let mut terminated = signal(SignalKind::terminate()).map_err(failed)?;
    if out.is_json() {
        out.line(json!({"url": url, "key": witness.verify_key().to_string(), "logs": count}));
    } else {
        out.line(&url);
        out.message(format!(
            "{} signs for {count} log{}",
            witness.verify_key(),
            if count == 1 { "" } else { "s" }
        ));
    }
    let ended = async move {
        tokio::select! {
            _ = terminated.recv() => {}
            _ = tokio::signal::ctrl_c() => {}
        }
    };
    serve(witness, listener, Arc::new(move |answer: &WitnessAnswer| report(answer, out)), ended).await;
    Ok(())
}

/// Reports problems to the operator. Only checkpoints that a log really signed are reported: anybody can send invalid ones.
fn report(answer: &WitnessAnswer, out: Out) {
    match answer {
        WitnessAnswer::Failed(why) => out.error("Internal", &format!("not signed: {why}"), ""),
        WitnessAnswer::Forked { origin, size } => {
            out.message(format!(
                "log `{}` signed two different histories of size {size}: not signed",
                one_line(origin)
            ));
        }
        WitnessAnswer::Inconsistent { origin, size } => {
            let origin = one_line(origin);
            out.message(format!(
                "log `{origin}` signed a checkpoint that is inconsistent with size {size}: not signed"
            ));
        }
        _ => {}
    }
}

fn list(dir: &WitnessDir, out: Out) -> Result<(), Failure> {
    let seen = dir.signed_checkpoints(&key(dir, None)?)?;
    if out.is_json() {
        out.value(&seen.iter().map(row).collect::<Vec<_>>().into());
        return Ok(());
    }
    for log in &seen {
        let root = paint(Tone::Faint, STANDARD.encode(log.checkpoint.root.as_bytes()));
        out.line(format!(
            "{}  {:>12}  {}  {root}",
            when(log),
            log.checkpoint.size,
            one_line(&log.checkpoint.origin)
        ));
    }
    if seen.is_empty() {
        out.message("no checkpoints signed yet");
    }
    Ok(())
}

fn row(log: &SignedCheckpoint) -> serde_json::Value {
    json!({
        "origin": log.checkpoint.origin, "size": log.checkpoint.size,
        "root": STANDARD.encode(log.checkpoint.root.as_bytes()), "signed": when(log).to_string(),
    })
}

fn when(log: &SignedCheckpoint) -> Timestamp {
    Timestamp::from_millis(i64::try_from(log.at.saturating_mul(1000)).unwrap_or(i64::MAX))
}

impl From<WitnessDirError> for Failure {
    fn from(error: WitnessDirError) -> Self {
        let hint = match &error {
            WitnessDirError::Running { .. } => "stop the running witness first",
            WitnessDirError::Invalid { .. } => {
                "the directory must be accessible to its user only (`chmod 700`); investigate a damaged record, do not remove it"
            }
            WitnessDirError::Io { .. } | WitnessDirError::Sync { .. } => "",
        };
        Self::failed(error.to_string()).hint(hint)
    }
}
