//! `vambrace witness`: keeping the newest checkpoints of other ledgers, so that one that was rolled back is found.
//! Its folder is its own: beside the ledger that it watches it would be rolled back with it.
#![expect(clippy::disallowed_methods, reason = "the list of logs is named on the command line")]

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::json;
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};
use vambrace_core::clock::Chance as _;
use vambrace_core::timestamp::Timestamp;
use vambrace_ledger::SigningKey;
use vambrace_witness::{Answer, Folder, FolderError, KnownLogs, Seen, Witness, serve};

use crate::args::{WitnessCommand, WitnessSeat};
use crate::command::audit::one_line;
use crate::failure::Failure;
use crate::harmless::plain;
use crate::machine::{SystemChance, SystemClock, random_key};
use crate::out::{Out, Tone, paint};
use crate::places;

pub(crate) async fn run(
    what: Option<WitnessCommand>,
    seat: WitnessSeat,
    state: Option<PathBuf>,
    out: &Out,
) -> Result<ExitCode, Failure> {
    let folder = own_folder(state)?;
    match what {
        None => serving(folder, &seat, *out).await?,
        Some(WitnessCommand::Key { name }) => {
            let key = key(&folder, name.as_deref())?.verify_key();
            if out.is_json() {
                out.value(&json!({"name": key.name(), "key": key.to_string()}));
            } else {
                out.line(key);
            }
        }
        Some(WitnessCommand::List) => list(&folder, *out)?,
        Some(WitnessCommand::Forget { origin }) => {
            if !folder.forget(&origin)? {
                let hint = "`vambrace witness list` lists what was signed";
                return Err(Failure::usage(format!("nothing was signed for `{origin}`"), hint));
            }
            out.say(format!(
                "`{}` is forgotten: its next checkpoint is signed whatever it says",
                plain(&origin)
            ));
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// The witness's folder; never inside the state folder, nor around it.
fn own_folder(state: Option<PathBuf>) -> Result<Folder, Failure> {
    let hint = "name a folder of its own with `--state`, on another machine or disk than the ledgers";
    let state = state.ok_or_else(|| Failure::usage("a witness needs a folder of its own", hint))?;
    let given = std::path::absolute(&state)
        .map_err(|error| Failure::failed(format!("`{}`: {error}", state.display())))?;
    refuse_overlap(&given, hint)?;
    let folder = Folder::open(&given)?;
    refuse_overlap(&given.canonicalize().unwrap_or(given), hint)?;
    Ok(folder)
}

fn refuse_overlap(witness: &Path, hint: &str) -> Result<(), Failure> {
    let Ok(state) = places::state() else { return Ok(()) };
    let state = state.canonicalize().unwrap_or(state);
    if witness.starts_with(&state) || state.starts_with(witness) {
        let why = format!("`{}` and the state folder `{}` overlap", witness.display(), state.display());
        return Err(Failure::usage(format!("{why}: they would be rolled back together"), hint));
    }
    Ok(())
}

fn key(folder: &Folder, name: Option<&str>) -> Result<SigningKey, Failure> {
    let new_name =
        || name.map_or_else(|| format!("witness/{:016x}", SystemChance.draw() as u64), str::to_owned);
    let key = folder.key(new_name, random_key)?;
    match name {
        Some(name) if name != key.verify_key().name() => {
            let hint = "a key keeps its name; leave `--name` out, or use another folder";
            Err(Failure::usage(format!("the key is called `{}`", key.verify_key().name()), hint))
        }
        _ => Ok(key),
    }
}

fn known(seat: &WitnessSeat) -> Result<KnownLogs, Failure> {
    let hint =
        "a verifier key looks like `name+id+base64`; `vambrace audit checkpoint` shows that of a ledger";
    let mut logs = KnownLogs::default();
    for words in &seat.log {
        logs.add(words).map_err(|why| Failure::usage(why, hint))?;
    }
    if let Some(file) = &seat.logs {
        let told = |why: String| Failure::usage(format!("`{}`: {why}", file.display()), hint);
        let text = std::fs::read_to_string(file).map_err(|error| told(error.to_string()))?;
        logs.join(KnownLogs::parse(&text).map_err(|bad| told(bad.to_string()))?);
    }
    if logs.is_empty() {
        return Err(Failure::usage("there is no log to sign for", "name some with `--log` or `--logs`"));
    }
    Ok(logs)
}

async fn serving(folder: Folder, seat: &WitnessSeat, out: Out) -> Result<(), Failure> {
    let logs = known(seat)?;
    let (count, key) = (logs.len(), key(&folder, None)?);
    let witness = Arc::new(Witness::open(folder, key, logs, Arc::new(SystemClock))?);
    let failed = |error| Failure::failed(format!("cannot listen on {}: {error}", seat.listen));
    let listener = TcpListener::bind(seat.listen).await.map_err(failed)?;
    let url = format!("http://{}", listener.local_addr().map_err(failed)?);
    let mut terminated = signal(SignalKind::terminate()).map_err(failed)?;
    if out.is_json() {
        out.line(json!({"url": url, "key": witness.verify_key().to_string(), "logs": count}));
    } else {
        out.line(&url);
        out.say(format!(
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
    serve(witness, listener, Arc::new(move |answer: &Answer| tell(answer, out)), ended).await;
    Ok(())
}

/// What whoever runs the witness should hear of. Only what a log signed: anybody can send what is merely refused.
fn tell(answer: &Answer, out: Out) {
    match answer {
        Answer::Failed(why) => out.error("Internal", &format!("not signed: {why}"), ""),
        Answer::Forked { origin, size } => {
            out.say(format!(
                "`{}` signed a second history of size {size}: not signed here",
                one_line(origin)
            ));
        }
        Answer::Inconsistent { origin, size } => {
            let origin = one_line(origin);
            out.say(format!(
                "`{origin}` signed a checkpoint that does not continue size {size}: not signed here"
            ));
        }
        _ => {}
    }
}

fn list(folder: &Folder, out: Out) -> Result<(), Failure> {
    let seen = folder.seen(&key(folder, None)?)?;
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
        out.say("nothing was signed yet");
    }
    Ok(())
}

fn row(log: &Seen) -> serde_json::Value {
    json!({
        "origin": log.checkpoint.origin, "size": log.checkpoint.size,
        "root": STANDARD.encode(log.checkpoint.root.as_bytes()), "signed": when(log).to_string(),
    })
}

fn when(log: &Seen) -> Timestamp {
    Timestamp::from_millis(i64::try_from(log.at.saturating_mul(1000)).unwrap_or(i64::MAX))
}

impl From<FolderError> for Failure {
    fn from(error: FolderError) -> Self {
        let hint = match &error {
            FolderError::Running { .. } => "stop it first",
            FolderError::Unfit { .. } => {
                "a witness's folder belongs to its user alone (`chmod 700`); a damaged record is for a person to look at, not to remove"
            }
            FolderError::Io { .. } | FolderError::Sync { .. } => "",
        };
        Self::failed(error.to_string()).hint(hint)
    }
}
