//! Attributes audit records to a run. Every listener gets the records of all Landlock domains of the machine; the run's own
//! domain is the one that its program's process created, which the kernel reports once, right after the first denial.

use std::collections::{HashSet, VecDeque};
use std::path::PathBuf;

use super::record::{LandlockRecord, LandlockRight};

/// Maximum number of records that are kept while their domain is not attributed yet.
const MAX_PENDING: usize = 512;
/// Maximum number of denials that a run reports.
const MAX_FOUND: usize = 500;
/// Maximum number of records of one run that are read.
const MAX_READ: usize = 20_000;

/// The Landlock denials of one run.
#[derive(Debug, Default)]
pub(crate) struct RunDenials {
    /// Pid and UID of the program's process.
    maker: Option<(u32, u32)>,
    domain: Option<u64>,
    pending: VecDeque<LandlockRecord>,
    known: HashSet<(&'static str, PathBuf)>,
    read: usize,
    /// The missing rights and their objects; each once.
    pub(crate) found: Vec<(&'static LandlockRight, PathBuf)>,
    /// Whether there may have been more.
    pub(crate) missing: bool,
}

impl RunDenials {
    /// Sets the process of the run's program.
    pub(crate) fn set_program(&mut self, pid: u32, uid: u32) {
        self.maker = Some((pid, uid));
        self.attribute();
    }

    pub(crate) fn add(&mut self, record: LandlockRecord) {
        if self.is_full() {
            return;
        }
        match self.domain {
            Some(ours) => self.add_own(ours, record),
            None => {
                if self.pending.len() >= MAX_PENDING {
                    self.pending.pop_front();
                    // With the process known, our own records come right before the one that names the domain, so the
                    // dropped one is not ours.
                    self.missing |= self.maker.is_none();
                }
                self.pending.push_back(record);
                self.attribute();
            }
        }
    }

    /// Whether enough was read.
    pub(crate) fn is_full(&self) -> bool {
        self.found.len() >= MAX_FOUND || self.read >= MAX_READ
    }

    /// Whether there is a denial in a domain whose creator the kernel has not reported yet.
    pub(crate) fn has_unattributed(&self) -> bool {
        let made = |wanted| {
            self.pending
                .iter()
                .any(|one| matches!(one, LandlockRecord::Domain { domain, .. } if *domain == wanted))
        };
        self.pending.iter().any(|one| matches!(one, LandlockRecord::Access { domain, .. } if !made(*domain)))
    }

    fn attribute(&mut self) {
        let Some(maker) = self.maker else { return };
        let ours = self.pending.iter().find_map(|record| match record {
            LandlockRecord::Domain { domain, pid, uid } if (*pid, *uid) == maker => Some(*domain),
            _ => None,
        });
        let Some(ours) = ours else { return };
        self.domain = Some(ours);
        for record in std::mem::take(&mut self.pending) {
            self.add_own(ours, record);
        }
    }

    fn add_own(&mut self, ours: u64, record: LandlockRecord) {
        let LandlockRecord::Access { domain, rights, path } = record else { return };
        if domain != ours {
            return;
        }
        self.read += 1;
        for right in rights {
            let object = right.object(path.as_ref());
            if self.known.insert((right.name, object.clone())) {
                self.found.push((right, object));
            }
        }
        self.missing |= self.is_full();
    }
}

#[cfg(test)]
mod tests {
    use super::{MAX_FOUND, MAX_PENDING, MAX_READ, RunDenials};
    use crate::landlock_audit::record::LandlockRecord;

    fn access(domain: u64, path: &str) -> LandlockRecord {
        let text = format!("audit(1.2:3): domain={domain:x} blockers=fs.read_file path=\"{path}\"");
        LandlockRecord::read(1423, text.as_bytes()).unwrap()
    }

    fn paths(denials: &RunDenials) -> Vec<&str> {
        denials.found.iter().map(|(_, path)| path.to_str().unwrap()).collect()
    }

    #[test]
    fn run_gets_the_denials_of_its_own_domain_only() {
        let mut denials = RunDenials::default();
        denials.add(access(7, "/of-another-run"));
        denials.add(access(9, "/first"));
        denials.add(LandlockRecord::Domain { domain: 8, pid: 40, uid: 1001 });
        denials.add(LandlockRecord::Domain { domain: 7, pid: 41, uid: 1000 });
        assert!(denials.has_unattributed());
        denials.set_program(40, 1000);
        assert_eq!(paths(&denials), [] as [&str; 0], "a matching pid with another UID is not enough");
        denials.add(LandlockRecord::Domain { domain: 9, pid: 40, uid: 1000 });
        assert!(!denials.has_unattributed());
        denials.add(access(7, "/later-of-another-run"));
        denials.add(access(9, "/second"));
        denials.add(access(9, "/first"));
        assert_eq!(paths(&denials), ["/first", "/second"]);
        assert!(!denials.missing);
    }

    #[test]
    fn order_of_claim_and_records_does_not_matter() {
        let mut denials = RunDenials::default();
        denials.add(access(9, "/first"));
        denials.add(LandlockRecord::Domain { domain: 9, pid: 40, uid: 1000 });
        denials.set_program(40, 1000);
        assert_eq!(paths(&denials), ["/first"]);
    }

    #[test]
    fn thousands_of_denials_are_bounded_and_the_overflow_is_reported() {
        let mut denials = RunDenials::default();
        for number in 0..5000 {
            denials.add(access(number, "/of-another-run"));
        }
        assert_eq!(
            (denials.pending.len(), denials.missing),
            (MAX_PENDING, true),
            "one of them may have been ours"
        );
        denials.set_program(40, 1000);
        denials.add(LandlockRecord::Domain { domain: 9, pid: 40, uid: 1000 });
        assert!(denials.pending.is_empty());
        for number in 0..5000 {
            denials.add(access(9, &format!("/{number}")));
        }
        assert_eq!((denials.found.len(), denials.missing), (MAX_FOUND, true));

        let mut denials = RunDenials::default();
        denials.set_program(40, 1000);
        for number in 0..5000 {
            denials.add(access(number, "/of-another-run"));
        }
        assert!(!denials.missing, "records of other processes alone lose nothing");
        denials.add(access(9, "/the-same"));
        denials.add(LandlockRecord::Domain { domain: 9, pid: 40, uid: 1000 });
        for _ in 0..MAX_READ * 2 {
            denials.add(access(9, "/the-same"));
        }
        assert_eq!((denials.found.len(), denials.read, denials.missing), (1, MAX_READ, true));
    }
}
