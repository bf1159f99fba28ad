//! Failures in the order of the output, found again by name, of limited number.

use std::collections::HashMap;

use super::{MAX_FAILURES, TestFailure};
use crate::bounded_text::{clip_message, clip_name};

/// Failures of one run.
#[derive(Debug, Default)]
pub(crate) struct FailureList {
    failures: Vec<Option<TestFailure>>,
    by_name: HashMap<String, usize>,
    left_out: u64,
}

impl FailureList {
    /// Adds a failure; names and messages are clipped.
    pub(crate) fn push(&mut self, mut failure: TestFailure) {
        if self.failures.len() >= MAX_FAILURES {
            self.left_out += 1;
            return;
        }
        failure.test = clip_name(&failure.test);
        failure.message = clip_message(&failure.message);
        self.failures.push(Some(failure));
    }

    /// The failure with this key, added if it is new; `None` beyond the limit.
    pub(crate) fn entry(&mut self, key: &str, new: impl FnOnce() -> TestFailure) -> Option<&mut TestFailure> {
        if let Some(place) = self.by_name.get(key) {
            return self.failures.get_mut(*place).and_then(Option::as_mut);
        }
        let before = self.failures.len();
        self.push(new());
        if self.failures.len() == before {
            return None;
        }
        self.by_name.insert(key.to_owned(), before);
        self.failures.get_mut(before).and_then(Option::as_mut)
    }

    /// Removes a failure: the test passed when it was tried again.
    pub(crate) fn discard(&mut self, key: &str) {
        if let Some(place) = self.by_name.get(key)
            && let Some(failure) = self.failures.get_mut(*place)
        {
            *failure = None;
        }
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &TestFailure> {
        self.failures.iter().flatten()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.iter().next().is_none() && self.left_out == 0
    }

    pub(crate) fn len(&self) -> u64 {
        self.iter().count() as u64 + self.left_out
    }

    /// The failures, and how many more there were.
    pub(crate) fn finish(self) -> (Vec<TestFailure>, u64) {
        (self.failures.into_iter().flatten().collect(), self.left_out)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hostile_number_of_failures_is_limited_and_counted() {
        let mut list = FailureList::default();
        for number in 0..MAX_FAILURES + 7 {
            list.push(TestFailure { test: format!("t{number}"), ..TestFailure::default() });
        }
        assert_eq!(list.len(), (MAX_FAILURES + 7) as u64);
        let (failures, left_out) = list.finish();
        assert_eq!((failures.len(), left_out), (MAX_FAILURES, 7));
    }
}
