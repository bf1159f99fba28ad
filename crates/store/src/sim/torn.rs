//! A segment whose end is torn is written again, wherever it was torn. A line that is complete and not ours stays for
//! `verify` to name, and a new segment begins.

use std::path::PathBuf;

use vambrace_ledger::{Findings, Kind};

use super::machine::Machine;
use crate::disk::{DiskSegments, SegmentFiles as _};
use crate::mirror::Mirror;
use crate::projection::Cursor;

/// The last lines, which the cursor does not cover.
const LINES: usize = 3;

/// A machine that ended before it had stored the cursor behind its last lines.
struct Tail {
    machine: Machine,
    path: PathBuf,
    whole: Vec<u8>,
    /// Where the last lines begin, and the cursor there.
    start: usize,
    cursor: Cursor,
}

impl Tail {
    fn new() -> Self {
        let mut machine = Machine::new(1);
        machine.live_quietly(9);
        let segments = machine.segments();
        let [(path, whole)] = segments.as_slice() else { panic!("{} segments", segments.len()) };
        let (path, whole) = (path.clone(), whole.clone());
        let last = whole.split_inclusive(|byte| *byte == b'\n').rev().take(LINES).map(<[u8]>::len);
        let start = whole.len() - last.sum::<usize>();
        let all = Cursor::read(machine.table()).unwrap();
        let cursor = Cursor { seq: all.seq - LINES as u64, offset: start as u64, ..all };
        Self { machine, path, whole, start, cursor }
    }

    /// What becomes of the segment when this is there at the next start, and what is found afterwards; none when the
    /// folder is refused.
    fn after(&mut self, bytes: &[u8]) -> Option<(Vec<u8>, Vec<Kind>)> {
        self.cursor.store(self.machine.table()).unwrap();
        self.machine.replace_segments(&self.path, bytes);
        if !self.machine.restart() {
            return None;
        }
        let after = self.machine.segments().into_iter().find(|(path, _)| *path == self.path).unwrap().1;
        Some((after, self.found()))
    }

    fn found(&self) -> Vec<Kind> {
        let files = DiskSegments::on(self.machine.disk(), self.path.parent().unwrap());
        let mut mirror = Mirror::new(&files, files.list().unwrap());
        let mut found = Findings::default();
        let mut statement =
            self.machine.table().prepare("SELECT seq, line FROM ledger ORDER BY seq").unwrap();
        let mut rows = statement.query(()).unwrap();
        while let Some(row) = rows.next().unwrap() {
            let seq = row.get::<_, i64>(0).unwrap().unsigned_abs();
            mirror.compare(seq, row.get_ref(1).unwrap().as_bytes().unwrap(), &mut found);
        }
        mirror.finish(u64::MAX, &mut found);
        found.faults().iter().map(|finding| finding.kind).collect()
    }

    fn is_written_again(&mut self, bytes: &[u8], what: &str) {
        let (after, kinds) = self.after(bytes).unwrap();
        assert!(after == self.whole && kinds.is_empty(), "{what}: {kinds:?}");
    }
}

// B5
#[test]
fn a_tail_torn_at_any_byte_is_written_again() {
    let mut tail = Tail::new();
    for cut in tail.start..=tail.whole.len() {
        let bytes = tail.whole[..cut].to_vec();
        tail.is_written_again(&bytes, &format!("cut at {cut}"));
    }
}

// B5
#[test]
fn a_tail_torn_at_any_sector_is_written_again() {
    let mut tail = Tail::new();
    let length = tail.whole.len();
    for boundary in (tail.start / 512 * 512..length).step_by(512) {
        let sector = boundary.max(tail.start);
        let bytes = tail.whole[..sector].to_vec();
        tail.is_written_again(&bytes, &format!("cut at sector {sector}"));
        // Nothing of the rest but its length, and this sector alone lost.
        for lost in [sector..length, sector..(boundary + 512).min(length)] {
            let mut bytes = tail.whole.clone();
            bytes[lost.clone()].fill(0);
            tail.is_written_again(&bytes, &format!("zeros at {lost:?}"));
        }
    }
}

// B5
#[test]
fn a_complete_line_that_is_not_ours_stays_and_is_named() {
    let mut tail = Tail::new();
    let mut refused = 0;
    for at in tail.start..tail.whole.len() {
        let mut bytes = tail.whole.clone();
        bytes[at] ^= 1;
        // A changed number can look like a record that the table has lost: then the folder is refused.
        let Some((after, kinds)) = tail.after(&bytes) else {
            refused += 1;
            continue;
        };
        assert!(after == bytes, "byte {at} was repaired");
        assert!(!kinds.is_empty(), "byte {at} was not found");
        assert_eq!(tail.machine.segments().len(), 2, "byte {at}");
    }
    assert!(refused < 20, "{refused} were refused");
}
