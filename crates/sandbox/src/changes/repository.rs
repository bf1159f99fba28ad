//! Repositories under any name. Git takes a folder for one by what lies in it (`objects` and `refs`, or a `HEAD` with a
//! `commondir` that leads to them), and then runs its hooks and heeds its settings: they are protected as those in a `.git` are.
//!
//! What will be there after a promotion is not known yet, so what is there before or in the program's view counts.

use std::collections::HashMap;
use std::os::fd::BorrowedFd;

use super::facts::Facts;
use crate::walk::join;
use crate::wire::Bytes;

/// Of a repository, what runs or configures something.
const SETTINGS: &[&[u8]] = &[b"hooks", b"config", b"config.worktree", b"modules", b"worktrees"];
/// Where a repository has its settings instead.
const ELSEWHERE: &[u8] = b"commondir";
const HEAD: &[u8] = b"HEAD";
/// What makes a folder one.
const PARTS: [&[u8]; 2] = [b"objects", b"refs"];

/// The folders that were asked about.
#[derive(Default)]
pub(super) struct Repositories {
    known: HashMap<Bytes, bool>,
}

/// The workspace, and what the program saw of it.
#[derive(Clone, Copy)]
pub(super) struct Sides<'a> {
    pub(super) base: BorrowedFd<'a>,
    pub(super) view: BorrowedFd<'a>,
}

impl Sides<'_> {
    /// What cannot be looked at is taken to be there.
    fn in_base(self, folder: &[u8], name: &[u8]) -> bool {
        !matches!(Facts::look(self.base, &join(folder, name)), Ok(None))
    }

    fn has(self, folder: &[u8], name: &[u8]) -> bool {
        self.in_base(folder, name) || !matches!(Facts::look(self.view, &join(folder, name)), Ok(None))
    }
}

impl Repositories {
    /// Whether a path is, or lies in, what runs or configures a repository.
    pub(super) fn configured_by(&mut self, sides: Sides<'_>, path: &[u8]) -> bool {
        let mut start = 0;
        path.split(|byte| *byte == b'/').any(|name| {
            let folder = path.get(..start.max(1) - 1).unwrap_or_default();
            start += name.len() + 1;
            if is(name, ELSEWHERE) {
                return sides.has(folder, HEAD) || self.is_one(sides, folder);
            }
            match folder.strip_suffix(b"info") {
                Some(outer) if is(name, b"attributes") => {
                    self.is_one(sides, outer.strip_suffix(b"/").unwrap_or(outer))
                }
                _ => SETTINGS.iter().any(|setting| is(name, setting)) && self.is_one(sides, folder),
            }
        })
    }

    /// Whether a new entry would make a repository of a folder that holds settings already.
    pub(super) fn completed_by(&mut self, sides: Sides<'_>, path: &[u8]) -> bool {
        let cut = path.iter().rposition(|byte| *byte == b'/');
        let (folder, name) = match cut {
            Some(cut) => (path.get(..cut).unwrap_or_default(), path.get(cut + 1..).unwrap_or_default()),
            None => (&b""[..], path),
        };
        if is(name, HEAD) {
            return sides.in_base(folder, ELSEWHERE);
        }
        PARTS.iter().any(|part| is(name, part))
            && self.is_one(sides, folder)
            && SETTINGS.iter().any(|setting| sides.in_base(folder, setting))
    }

    fn is_one(&mut self, sides: Sides<'_>, folder: &[u8]) -> bool {
        if let Some(known) = self.known.get(folder) {
            return *known;
        }
        let one = PARTS.iter().all(|part| sides.has(folder, part));
        self.known.insert(folder.to_vec(), one);
        one
    }
}

/// Some file systems do not tell upper from lower case.
fn is(name: &[u8], other: &[u8]) -> bool {
    name.eq_ignore_ascii_case(other)
}
