//! A segment with a torn tail is rewritten, wherever it was torn. A complete line that is not ours stays for
//! `verify` to report, and a new segment begins.

use std::path::PathBuf;

use vambrace_ledger::{FindingKind, Findings};

use super::machine::SimMachine;
use crate::segment_files::{DiskSegments, SegmentFiles as _};
use crate::segment_reader::SegmentReader;
use crate::sqlite::segment_writer::SegmentCursor;

/// Number of lines at the end that the cursor does not cover.
const LINES: usize = 3;

/// A machine that ended before it had stored the cursor for its last lines.
struct TornTailCase {
    machine: SimMachine,
    path: PathBuf,
    whole: Vec<u8>,
    /// Where the last lines begin, and the cursor there.
    start: usize,
    cursor: SegmentCursor,
}

impl TornTailCase {
    fn new() -> Self {
        let mut machine = SimMachine::new(1);
        machine.live_quietly(9);
        let segments = machine.segments();
        let [(path, whole)] = segments.as_slice() else { panic!("{} segments", segments.len()) };
        let (path, whole) = (path.clone(), whole.clone());
        let last = whole.split_inclusive(|byte| *byte == b'\n').rev().take(LINES).map(<[u8]>::len);
        let start = whole.len() - last.sum::<usize>();
        let all = SegmentCursor::read(machine.table()).unwrap();
        let cursor = SegmentCursor { seq: all.seq - LINES as u64, offset: start as u64, ..all };
        Self { machine, path, whole, start, cursor }
    }

    /// The segment and the findings after a start with these bytes; `None` if the directory is rejected.
    fn after(&mut self, bytes: &[u8]) -> Option<(Vec<u8>, Vec<FindingKind>)> {
        self.cursor.store(self.machine.table()).unwrap();
        self.machine.replace_segments(&self.path, bytes);
        if !self.machine.restart() {
            return None;
        }
        let after = self.machine.segments().into_iter().find(|(path, _)| *path == self.path).unwrap().1;
        Some((after, self.found()))
    }

    fn found(&self) -> Vec<FindingKind> {
        let files = DiskSegments::on(self.machine.disk(), self.path.parent().unwrap());
        let mut segment_reader = SegmentReader::new(&files, files.list().unwrap());
        let mut found = Findings::default();
        let mut statement =
            self.machine.table().prepare("SELECT seq, line FROM ledger ORDER BY seq").unwrap();
        let mut rows = statement.query(()).unwrap();
        while let Some(row) = rows.next().unwrap() {
            let seq = row.get::<_, i64>(0).unwrap().unsigned_abs();
            segment_reader.compare(seq, row.get_ref(1).unwrap().as_bytes().unwrap(), &mut found);
        }
        segment_reader.finish(u64::MAX, &mut found);
        found.faults().iter().map(|finding| finding.kind).collect()
    }

    fn assert_rewritten(&mut self, bytes: &[u8], what: &str) {
        let (after, kinds) = self.after(bytes).unwrap();
        assert!(after == self.whole && kinds.is_empty(), "{what}: {kinds:?}");
    }
}

// B5
#[test]
fn a_tail_torn_at_any_byte_is_rewritten() {
    let mut tail = TornTailCase::new();
    for cut in tail.start..=tail.whole.len() {
        let bytes = tail.whole[..cut].to_vec();
        tail.assert_rewritten(&bytes, &format!("cut at {cut}"));
    }
}

// B5
#[test]
fn a_tail_torn_at_any_sector_is_rewritten() {
    let mut tail = TornTailCase::new();
    let length = tail.whole.len();
    for boundary in (tail.start / 512 * 512..length).step_by(512) {
        let sector = boundary.max(tail.start);
        let bytes = tail.whole[..sector].to_vec();
        tail.assert_rewritten(&bytes, &format!("cut at sector {sector}"));
        // Once everything after it reads as zeros, once only this sector is lost.
        for lost in [sector..length, sector..(boundary + 512).min(length)] {
            let mut bytes = tail.whole.clone();
            bytes[lost.clone()].fill(0);
            tail.assert_rewritten(&bytes, &format!("zeros at {lost:?}"));
        }
    }
}

// B5
#[test]
fn a_complete_foreign_line_stays_and_is_reported() {
    let mut tail = TornTailCase::new();
    let mut rejected = 0;
    for at in tail.start..tail.whole.len() {
        let mut bytes = tail.whole.clone();
        bytes[at] ^= 1;
        // A changed number can look like a record that the table has lost: then the directory is rejected.
        let Some((after, kinds)) = tail.after(&bytes) else {
            rejected += 1;
            continue;
        };
        assert!(after == bytes, "byte {at} was repaired");
        assert!(!kinds.is_empty(), "byte {at} was not found");
        assert_eq!(tail.machine.segments().len(), 2, "byte {at}");
    }
    assert!(rejected < 20, "{rejected} were rejected");
}
