//! Whose record it is. Every listener hears of every domain of the machine; a run's own is the one that its program's
//! process made, which the kernel tells once, right after the first refusal.

use std::collections::{HashSet, VecDeque};
use std::path::PathBuf;

use super::record::{Record, Right};

/// Records whose domain nobody has claimed yet are kept up to here.
const MOST_WAITING: usize = 512;
/// More refusals than these tell nobody more.
const MOST_FOUND: usize = 500;
/// So many records of one run are read.
const MOST_READ: usize = 20_000;

/// What was heard for one run.
#[derive(Debug, Default)]
pub(crate) struct Heard {
    /// The program's process and its user.
    maker: Option<(u32, u32)>,
    domain: Option<u64>,
    waiting: VecDeque<Record>,
    known: HashSet<(&'static str, PathBuf)>,
    read: usize,
    /// The rights that were missing, and what for; each once.
    pub(crate) found: Vec<(&'static Right, PathBuf)>,
    /// Whether there may have been more.
    pub(crate) missing: bool,
}

impl Heard {
    /// The run's program is this process.
    pub(crate) fn claim(&mut self, pid: u32, uid: u32) {
        self.maker = Some((pid, uid));
        self.settle();
    }

    pub(crate) fn add(&mut self, record: Record) {
        if self.is_full() {
            return;
        }
        match self.domain {
            Some(ours) => self.count(ours, record),
            None => {
                if self.waiting.len() >= MOST_WAITING {
                    self.waiting.pop_front();
                    // Once it is known whose they are, ours come right before the one that says so.
                    self.missing |= self.maker.is_none();
                }
                self.waiting.push_back(record);
                self.settle();
            }
        }
    }

    /// Whether nothing more is worth reading.
    pub(crate) fn is_full(&self) -> bool {
        self.found.len() >= MOST_FOUND || self.read >= MOST_READ
    }

    /// Whether something was refused in a domain of which it is not told yet who made it.
    pub(crate) fn is_unsettled(&self) -> bool {
        let made = |wanted| {
            self.waiting.iter().any(|one| matches!(one, Record::Domain { domain, .. } if *domain == wanted))
        };
        self.waiting.iter().any(|one| matches!(one, Record::Access { domain, .. } if !made(*domain)))
    }

    fn settle(&mut self) {
        let Some(maker) = self.maker else { return };
        let ours = self.waiting.iter().find_map(|record| match record {
            Record::Domain { domain, pid, uid } if (*pid, *uid) == maker => Some(*domain),
            _ => None,
        });
        let Some(ours) = ours else { return };
        self.domain = Some(ours);
        for record in std::mem::take(&mut self.waiting) {
            self.count(ours, record);
        }
    }

    fn count(&mut self, ours: u64, record: Record) {
        let Record::Access { domain, rights, path } = record else { return };
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
    use super::{Heard, MOST_FOUND, MOST_READ, MOST_WAITING};
    use crate::audit::record::Record;

    fn access(domain: u64, path: &str) -> Record {
        let text = format!("audit(1.2:3): domain={domain:x} blockers=fs.read_file path=\"{path}\"");
        Record::read(1423, text.as_bytes()).unwrap()
    }

    fn paths(heard: &Heard) -> Vec<&str> {
        heard.found.iter().map(|(_, path)| path.to_str().unwrap()).collect()
    }

    // Issue 6, 4
    #[test]
    fn a_run_hears_of_its_own_domain_only() {
        let mut heard = Heard::default();
        heard.add(access(7, "/of-somebody-else"));
        heard.add(access(9, "/first"));
        heard.add(Record::Domain { domain: 8, pid: 40, uid: 1001 });
        heard.add(Record::Domain { domain: 7, pid: 41, uid: 1000 });
        assert!(heard.is_unsettled());
        heard.claim(40, 1000);
        assert_eq!(paths(&heard), [] as [&str; 0], "the number alone, of another user, is not enough");
        heard.add(Record::Domain { domain: 9, pid: 40, uid: 1000 });
        assert!(!heard.is_unsettled());
        heard.add(access(7, "/later-of-somebody-else"));
        heard.add(access(9, "/second"));
        heard.add(access(9, "/first"));
        assert_eq!(paths(&heard), ["/first", "/second"]);
        assert!(!heard.missing);
    }

    #[test]
    fn the_order_of_claim_and_records_does_not_matter() {
        let mut heard = Heard::default();
        heard.add(access(9, "/first"));
        heard.add(Record::Domain { domain: 9, pid: 40, uid: 1000 });
        heard.claim(40, 1000);
        assert_eq!(paths(&heard), ["/first"]);
    }

    #[test]
    fn thousands_of_refusals_are_bounded_and_said_to_be_more() {
        let mut heard = Heard::default();
        for number in 0..5000 {
            heard.add(access(number, "/of-somebody-else"));
        }
        assert_eq!(
            (heard.waiting.len(), heard.missing),
            (MOST_WAITING, true),
            "one of them may have been ours"
        );
        heard.claim(40, 1000);
        heard.add(Record::Domain { domain: 9, pid: 40, uid: 1000 });
        assert!(heard.waiting.is_empty());
        for number in 0..5000 {
            heard.add(access(9, &format!("/{number}")));
        }
        assert_eq!((heard.found.len(), heard.missing), (MOST_FOUND, true));

        let mut heard = Heard::default();
        heard.claim(40, 1000);
        for number in 0..5000 {
            heard.add(access(number, "/of-somebody-else"));
        }
        assert!(!heard.missing, "a busy machine alone takes nothing away");
        heard.add(access(9, "/the-same"));
        heard.add(Record::Domain { domain: 9, pid: 40, uid: 1000 });
        for _ in 0..MOST_READ * 2 {
            heard.add(access(9, "/the-same"));
        }
        assert_eq!((heard.found.len(), heard.read, heard.missing), (1, MOST_READ, true));
    }
}
