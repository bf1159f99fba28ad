//! Checks the state directory: path, file system, database, ledger, segments, clock, redactor key, sessions.

use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::sync::Arc;

use vambrace_core::clock::Clock as _;
use vambrace_core::timestamp::Timestamp;
use vambrace_ledger::{LedgerLine, MAX_LINE_BYTES};
use vambrace_store::{
    Batch, DiskSegments, OwnerFilter, RecordId, SegmentFiles as _, SessionState, Store, StoreError,
};

use super::check::DoctorCheck;
use super::checkpoint;
use crate::host::Host;
use crate::paths::Paths;
use crate::system::SystemClock;

const MIB: u64 = 1 << 20;
const LITTLE: u64 = 256 * MIB;
/// How far a record's time may be in the future: clocks differ.
const AHEAD_MS: i64 = 60_000;
/// How long the segments may lag behind the table.
const LAG_MS: i64 = 10_000;
const DENIED: &str = "no call runs, because it could not be recorded";

/// File systems by magic number (statfs(2)), and the reason if one is unsuitable.
const FILE_SYSTEMS: &[(u64, &str, Option<&str>)] = &[
    (0xef53, "ext4", None),
    (0x5846_5342, "xfs", None),
    (0x9123_683e, "btrfs", None),
    (0x2fc1_2fc1, "zfs", None),
    (0xf2f5_2010, "f2fs", None),
    (0xca45_1a4e, "bcachefs", None),
    (0x794c_7630, "overlay", Some("an overlay is deleted with its container")),
    (0x0102_1994, "tmpfs", Some("tmpfs does not survive a reboot")),
    (0x6969, "nfs", Some("locks and syncs over a network are unreliable")),
    (0xff53_4d42, "cifs", Some("locks and syncs over a network are unreliable")),
    (0xfe53_4d42, "smb2", Some("locks and syncs over a network are unreliable")),
    (0x0102_1997, "9p", Some("locks and syncs of a shared directory are unreliable")),
    (0x6573_5546, "fuse", Some("locks and syncs depend on the program behind it")),
];

/// Checks the directory and opens the host; returns the host if that works.
pub(super) async fn examine(paths: &Paths, checks: &mut Vec<DoctorCheck>) -> Option<Arc<Host>> {
    let opened = Host::open(paths.clone());
    checks.push(directory(paths.state()));
    let host = match opened {
        Ok(host) => host,
        Err(error) => {
            checks.push(DoctorCheck::missing(
                "database",
                error.error.message,
                DENIED,
                error.error.suggestion,
            ));
            return None;
        }
    };
    let database = host.state_dir().database();
    checks.push(match probe(host.store().as_ref()).await {
        Ok(()) => DoctorCheck::ok("database", format!("{}, a durable write succeeded", database.display())),
        Err(error) => DoctorCheck::missing("database", error.to_string(), DENIED, error.suggestion()),
    });
    ledger(&host, checks).await;
    checks.push(key(host.state_dir().path()));
    checks.push(sessions(host.store().as_ref()).await);
    Some(host)
}

fn directory(place: &Path) -> DoctorCheck {
    let name = "state dir";
    let shown = place.display().to_string();
    let facts = match place.symlink_metadata().and_then(|_| place.metadata()) {
        Ok(facts) => facts,
        Err(error) => {
            return DoctorCheck::missing(
                name,
                format!("{shown}: {error}"),
                DENIED,
                "set VAMBRACE_HOME to a directory of yours",
            );
        }
    };
    let mode = facts.mode() & 0o777;
    let (system, doubt) = file_system(place);
    let free =
        rustix::fs::statvfs(place).map_or(u64::MAX, |facts| facts.f_bavail.saturating_mul(facts.f_frsize));
    let found = format!("{shown}, mode {mode:03o}, {system}, {} MiB free", free / MIB);
    if facts.uid() != rustix::process::geteuid().as_raw() {
        return DoctorCheck::missing(
            name,
            format!("{found}, owned by user {}", facts.uid()),
            DENIED,
            "set VAMBRACE_HOME to a directory of yours",
        );
    }
    if mode & 0o022 != 0 {
        return DoctorCheck::missing(
            name,
            found,
            DENIED,
            format!("find out who changed it, then `chmod 700 {shown}`"),
        );
    }
    if free < MIB {
        return DoctorCheck::missing(name, found, DENIED, "free disk space");
    }
    if mode & 0o077 != 0 {
        let lost = "other users of this machine can read the ledger";
        return DoctorCheck::degraded(name, found, lost, format!("`chmod 700 {shown}`"));
    }
    if free < LITTLE {
        return DoctorCheck::degraded(name, found, "calls stop when the disk is full", "free disk space");
    }
    match doubt {
        Some(lost) => {
            DoctorCheck::degraded(name, found, lost, "set VAMBRACE_HOME to a directory on a local disk")
        }
        None => DoctorCheck::ok(name, found),
    }
}

fn file_system(place: &Path) -> (String, Option<&'static str>) {
    let Ok(facts) = rustix::fs::statfs(place) else {
        return ("unknown file system".to_owned(), None);
    };
    // The field is signed on some architectures; the magic number is its low half.
    let number = facts.f_type as u64 & 0xffff_ffff;
    match FILE_SYSTEMS.iter().find(|(known, _, _)| *known == number) {
        Some((_, name, doubt)) => ((*name).to_owned(), *doubt),
        None => (format!("file system {number:#x}"), None),
    }
}

/// Commits an empty durable batch: locks, commits and syncs, and adds no record.
async fn probe(store: &dyn Store) -> Result<(), StoreError> {
    store.commit(Batch::durable(Vec::new(), Vec::new())).await.map(drop)
}

async fn ledger(host: &Host, checks: &mut Vec<DoctorCheck>) {
    let store = host.store().as_ref();
    let head = match store.head().await {
        Ok(head) => head,
        Err(error) => {
            return checks.push(DoctorCheck::missing(
                "ledger",
                error.to_string(),
                DENIED,
                error.suggestion(),
            ));
        }
    };
    let records = if head.seq == 1 { "record" } else { "records" };
    checks.push(DoctorCheck::ok("ledger", format!("{} {records}, head {}", head.seq, head.hash)));
    let newest = match store.record(&RecordId::new(store.writer(), head.seq)).await {
        Ok(Some(record)) => record.fields().get("ts").and_then(|ts| Timestamp::parse(ts.as_str()?).ok()),
        _ => None,
    };
    let now = SystemClock.now();
    checks.push(match newest {
        Some(newest) if newest.millis() > now.millis().saturating_add(AHEAD_MS) => {
            let found = format!("now {now}, but the newest record is from {newest}");
            DoctorCheck::degraded(
                "clock",
                found,
                "times of records, deadlines and rate limits are wrong",
                "set the clock",
            )
        }
        _ => DoctorCheck::ok("clock", now.to_string()),
    });
    let fresh = newest.is_some_and(|at| at.millis() > now.millis().saturating_sub(LAG_MS));
    checks.push(segments(host, head.seq, fresh));
    checks.push(checkpoint::checkpoint(store, head.seq, fresh));
    checks.push(checkpoint::anchor(host));
    checks.push(checkpoint::witness(store));
}

fn segments(host: &Host, head: u64, fresh: bool) -> DoctorCheck {
    let lost = "other programs see an outdated ledger; the table is complete";
    let fix = "`vambrace audit verify` detects changed segments; check the disk of the state directory";
    if let Some(fault) = host.store().admin().segment_error() {
        return DoctorCheck::degraded("segments", fault, lost, fix);
    }
    let files = DiskSegments::new(&host.state_dir().ledger());
    let list = match files.list() {
        Ok(list) => list,
        Err(error) => return DoctorCheck::degraded("segments", error.to_string(), lost, fix),
    };
    let reached = list.last().and_then(|(name, size)| {
        let most = u64::try_from(MAX_LINE_BYTES).unwrap_or(u64::MAX) + 1;
        let start = size.saturating_sub(most);
        let mut tail = vec![0; usize::try_from(size - start).ok()?];
        let read = files.read(*name, start, &mut tail).ok()?;
        tail.truncate(read);
        let last = tail.split(|byte| *byte == b'\n').rfind(|line| !line.is_empty())?;
        LedgerLine::claimed_seq(last)
    });
    let reached = reached.unwrap_or(0);
    let found = format!("{} files, up to record {reached}", list.len());
    // Another process may still be writing the newest records.
    if reached < head && !fresh {
        DoctorCheck::degraded("segments", format!("{found} of {head}"), lost, fix)
    } else {
        DoctorCheck::ok("segments", found)
    }
}

fn key(state: &Path) -> DoctorCheck {
    let path = state.join("keys/redact.key");
    let shown = path.display().to_string();
    match path.symlink_metadata() {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            DoctorCheck::ok("redactor key", "none yet: the first call creates it")
        }
        Err(error) => DoctorCheck::missing(
            "redactor key",
            format!("{shown}: {error}"),
            DENIED,
            "fix the permissions of the directory",
        ),
        Ok(facts) if !facts.is_file() || facts.len() != 32 => {
            let fix = format!("remove `{shown}`: a new key is created, and placeholders change");
            DoctorCheck::missing("redactor key", format!("{shown} is not a valid key"), DENIED, fix)
        }
        Ok(facts) if facts.mode() & 0o077 != 0 => {
            let lost = "other users who can read it can verify guesses of redacted values";
            let found = format!("{shown}, mode {:03o}", facts.mode() & 0o777);
            DoctorCheck::degraded("redactor key", found, lost, format!("`chmod 600 {shown}`"))
        }
        Ok(facts) => DoctorCheck::ok("redactor key", format!("mode {:03o}", facts.mode() & 0o777)),
    }
}

async fn sessions(store: &dyn Store) -> DoctorCheck {
    const NEWEST: usize = 1000;
    let sessions = match store.sessions(&OwnerFilter::Everyone, NEWEST).await {
        Ok(sessions) => sessions,
        Err(error) => {
            return DoctorCheck::missing("sessions", error.to_string(), DENIED, error.suggestion());
        }
    };
    let stopped = |state| sessions.iter().filter(move |session| session.state == state);
    let (alerts, suspended) =
        (stopped(SessionState::Alert).count(), stopped(SessionState::Suspended).count());
    let first = stopped(SessionState::Suspended).chain(stopped(SessionState::Alert)).next();
    match first {
        None => DoctorCheck::ok("sessions", format!("{}, none in alert or suspended", sessions.len())),
        Some(session) => DoctorCheck::degraded(
            "sessions",
            format!("{alerts} in alert, {suspended} suspended"),
            "a suspended session can make no calls; an alert needs a review",
            format!(
                "`vambrace audit query --violations --session {0}`, then `vambrace session resume {0}`",
                session.id
            ),
        ),
    }
}
