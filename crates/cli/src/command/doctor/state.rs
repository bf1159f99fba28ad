//! The state folder and what lies in it: place, file system, database, ledger, segments, clock, key, sessions.

use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::sync::Arc;

use vambrace_core::clock::Clock as _;
use vambrace_core::timestamp::Timestamp;
use vambrace_ledger::{Line, MAX_LINE_BYTES};
use vambrace_store::{
    Batch, DiskSegments, SegmentFiles as _, SessionState, SqliteStore, Store as _, StoreError,
};

use super::check::Check;
use super::signed;
use crate::desk;
use crate::machine::SystemClock;
use crate::places;

const MIB: u64 = 1 << 20;
const LITTLE: u64 = 256 * MIB;
/// So far ahead a record's time may be: clocks of machines differ.
const AHEAD_MS: i64 = 60_000;
/// So long the segments may lag behind.
const LAG_MS: i64 = 10_000;
const DENIED: &str = "no call runs: nothing happens unrecorded";

/// File systems by their number (statfs(2)), and why one is no good place.
const FILE_SYSTEMS: &[(u64, &str, Option<&str>)] = &[
    (0xef53, "ext4", None),
    (0x5846_5342, "xfs", None),
    (0x9123_683e, "btrfs", None),
    (0x2fc1_2fc1, "zfs", None),
    (0xf2f5_2010, "f2fs", None),
    (0xca45_1a4e, "bcachefs", None),
    (0x794c_7630, "overlay", Some("an overlay goes with its container")),
    (0x0102_1994, "tmpfs", Some("what is in memory does not survive a restart")),
    (0x6969, "nfs", Some("locks and syncs over a network are not to be relied on")),
    (0xff53_4d42, "cifs", Some("locks and syncs over a network are not to be relied on")),
    (0xfe53_4d42, "smb2", Some("locks and syncs over a network are not to be relied on")),
    (0x0102_1997, "9p", Some("locks and syncs of a shared folder are not to be relied on")),
    (0x6573_5546, "fuse", Some("locks and syncs depend on the program behind it")),
];

/// Looks at the folder and opens it; whatever opens is handed on.
pub(super) async fn look(checks: &mut Vec<Check>) -> Option<Arc<SqliteStore>> {
    let opened = desk::open_store();
    if let Ok(place) = places::state() {
        checks.push(folder(&place));
    }
    let store = match opened {
        Ok(store) => store,
        Err(failure) => {
            checks.push(Check::missing("database", failure.error.message, DENIED, failure.error.suggestion));
            return None;
        }
    };
    checks.push(match probe(&store).await {
        Ok(()) => {
            Check::ok("database", format!("{}, a durable write came back", store.dir().database().display()))
        }
        Err(error) => Check::missing("database", error.to_string(), DENIED, error.suggestion()),
    });
    ledger(&store, checks).await;
    checks.push(key(store.dir().path()));
    checks.push(sessions(&store).await);
    Some(store)
}

fn folder(place: &Path) -> Check {
    let name = "state folder";
    let shown = place.display().to_string();
    let facts = match place.symlink_metadata().and_then(|_| place.metadata()) {
        Ok(facts) => facts,
        Err(error) => {
            return Check::missing(
                name,
                format!("{shown}: {error}"),
                DENIED,
                "set VAMBRACE_HOME to a folder of yours",
            );
        }
    };
    let mode = facts.mode() & 0o777;
    let (system, doubt) = file_system(place);
    let free =
        rustix::fs::statvfs(place).map_or(u64::MAX, |facts| facts.f_bavail.saturating_mul(facts.f_frsize));
    let found = format!("{shown}, mode {mode:03o}, {system}, {} MiB free", free / MIB);
    if facts.uid() != rustix::process::geteuid().as_raw() {
        return Check::missing(
            name,
            format!("{found}, owned by user {}", facts.uid()),
            DENIED,
            "set VAMBRACE_HOME to a folder of yours",
        );
    }
    if mode & 0o022 != 0 {
        return Check::missing(
            name,
            found,
            DENIED,
            format!("find out who changed it, then `chmod 700 {shown}`"),
        );
    }
    if free < MIB {
        return Check::missing(name, found, DENIED, "free some space on its disk");
    }
    if mode & 0o077 != 0 {
        let lost = "others on this machine can read the ledger";
        return Check::degraded(name, found, lost, format!("`chmod 700 {shown}`"));
    }
    if free < LITTLE {
        return Check::degraded(
            name,
            found,
            "calls stop when the disk is full",
            "free some space on its disk",
        );
    }
    match doubt {
        Some(lost) => Check::degraded(name, found, lost, "set VAMBRACE_HOME to a folder on a local disk"),
        None => Check::ok(name, found),
    }
}

fn file_system(place: &Path) -> (String, Option<&'static str>) {
    let Ok(facts) = rustix::fs::statfs(place) else {
        return ("file system not known".to_owned(), None);
    };
    // The field is signed on some machines; the number is its low half.
    let number = facts.f_type as u64 & 0xffff_ffff;
    match FILE_SYSTEMS.iter().find(|(known, _, _)| *known == number) {
        Some((_, name, doubt)) => ((*name).to_owned(), *doubt),
        None => (format!("file system {number:#x}"), None),
    }
}

/// An empty durable batch: it takes the lock, commits, syncs, and leaves no record.
async fn probe(store: &SqliteStore) -> Result<(), StoreError> {
    store.commit(Batch::durable(Vec::new(), Vec::new())).await.map(drop)
}

async fn ledger(store: &SqliteStore, checks: &mut Vec<Check>) {
    let head = match store.head().await {
        Ok(head) => head,
        Err(error) => {
            return checks.push(Check::missing("ledger", error.to_string(), DENIED, error.suggestion()));
        }
    };
    let records = if head.seq == 1 { "record" } else { "records" };
    checks.push(Check::ok("ledger", format!("{} {records}, head {}", head.seq, head.hash)));
    let newest = match store.record(head.seq).await {
        Ok(Some(record)) => record.fields().get("ts").and_then(|ts| Timestamp::parse(ts.as_str()?).ok()),
        _ => None,
    };
    let now = SystemClock.now();
    checks.push(match newest {
        Some(newest) if newest.millis() > now.millis().saturating_add(AHEAD_MS) => {
            let found = format!("it is {now}, the newest record is of {newest}");
            Check::degraded(
                "clock",
                found,
                "times of records, deadlines and rate limits are wrong",
                "set the clock",
            )
        }
        _ => Check::ok("clock", now.to_string()),
    });
    let fresh = newest.is_some_and(|at| at.millis() > now.millis().saturating_sub(LAG_MS));
    checks.push(segments(store, head.seq, fresh));
    checks.push(signed::checkpoint(store, head.seq, fresh));
    checks.push(signed::anchor(store));
    checks.push(signed::witness(store));
}

fn segments(store: &SqliteStore, head: u64, fresh: bool) -> Check {
    let lost = "other programs see an old ledger; the table itself is complete";
    let fix = "`vambrace audit verify` tells whether somebody changed a segment; check the disk of the state folder";
    if let Some(fault) = store.segments_fault() {
        return Check::degraded("segments", fault, lost, fix);
    }
    let files = DiskSegments::new(&store.dir().ledger());
    let list = match files.list() {
        Ok(list) => list,
        Err(error) => return Check::degraded("segments", error.to_string(), lost, fix),
    };
    let reached = list.last().and_then(|(name, size)| {
        let most = u64::try_from(MAX_LINE_BYTES).unwrap_or(u64::MAX) + 1;
        let start = size.saturating_sub(most);
        let mut tail = vec![0; usize::try_from(size - start).ok()?];
        let read = files.read(*name, start, &mut tail).ok()?;
        tail.truncate(read);
        let last = tail.split(|byte| *byte == b'\n').rfind(|line| !line.is_empty())?;
        Line::claimed_seq(last)
    });
    let reached = reached.unwrap_or(0);
    let found = format!("{} files, up to record {reached}", list.len());
    // Whoever wrote the newest records may still be at it.
    if reached < head && !fresh {
        Check::degraded("segments", format!("{found} of {head}"), lost, fix)
    } else {
        Check::ok("segments", found)
    }
}

fn key(state: &Path) -> Check {
    let path = state.join("keys/redact.key");
    let shown = path.display().to_string();
    match path.symlink_metadata() {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            Check::ok("redactor key", "not made yet: the first call makes it")
        }
        Err(error) => Check::missing(
            "redactor key",
            format!("{shown}: {error}"),
            DENIED,
            "correct the permissions of the folder",
        ),
        Ok(facts) if !facts.is_file() || facts.len() != 32 => {
            let fix = format!("remove `{shown}`: a new key is made, and masks look different from then on");
            Check::missing("redactor key", format!("{shown} is not a key"), DENIED, fix)
        }
        Ok(facts) if facts.mode() & 0o077 != 0 => {
            let lost = "who can read it can test guesses of masked values";
            let found = format!("{shown}, mode {:03o}", facts.mode() & 0o777);
            Check::degraded("redactor key", found, lost, format!("`chmod 600 {shown}`"))
        }
        Ok(facts) => Check::ok("redactor key", format!("mode {:03o}", facts.mode() & 0o777)),
    }
}

async fn sessions(store: &SqliteStore) -> Check {
    const NEWEST: usize = 1000;
    let sessions = match store.sessions(NEWEST).await {
        Ok(sessions) => sessions,
        Err(error) => {
            return Check::missing("sessions", error.to_string(), DENIED, error.suggestion());
        }
    };
    let stopped = |state| sessions.iter().filter(move |session| session.state == state);
    let (alerts, suspended) =
        (stopped(SessionState::Alert).count(), stopped(SessionState::Suspended).count());
    let first = stopped(SessionState::Suspended).chain(stopped(SessionState::Alert)).next();
    match first {
        None => Check::ok("sessions", format!("{}, none in alert or suspended", sessions.len())),
        Some(session) => Check::degraded(
            "sessions",
            format!("{alerts} in alert, {suspended} suspended"),
            "a suspended session makes no calls; an alert waits for somebody to look",
            format!(
                "`vambrace audit query --violations --session {0}`, then `vambrace session resume {0}`",
                session.id
            ),
        ),
    }
}
