//! Repositories under any name. Git takes a folder for one by what lies in it (`objects` and `refs`, or a `HEAD` with a
//! `commondir` that leads to them), and then runs its hooks and heeds its settings: they are protected as those in a `.git` are,
//! from programs and from tools that write.
//!
//! What will be there after a change is not known yet, so what is there before or comes with it counts.

use std::collections::HashMap;

/// Of a repository, what runs or configures something.
const SETTINGS: &[&[u8]] = &[b"hooks", b"config", b"config.worktree", b"modules", b"worktrees"];
/// Where a repository has its settings instead.
const ELSEWHERE: &[u8] = b"commondir";
const HEAD: &[u8] = b"HEAD";
/// What makes a folder one.
const PARTS: [&[u8]; 2] = [b"objects", b"refs"];

/// A tree before a change, and the change.
pub trait Sides {
    /// Whether a folder has such an entry before. What cannot be looked at is taken to be there.
    fn before(&self, folder: &[u8], name: &[u8]) -> bool;
    /// Or gets it.
    fn has(&self, folder: &[u8], name: &[u8]) -> bool;
}

/// The folders that were asked about.
#[derive(Debug, Default)]
pub struct Repositories {
    known: HashMap<Vec<u8>, bool>,
}

impl Repositories {
    /// Whether a path is, or lies in, what runs or configures a repository.
    pub fn configured_by(&mut self, sides: &impl Sides, path: &[u8]) -> bool {
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
    pub fn completed_by(&mut self, sides: &impl Sides, path: &[u8]) -> bool {
        let cut = path.iter().rposition(|byte| *byte == b'/');
        let (folder, name) = match cut {
            Some(cut) => (path.get(..cut).unwrap_or_default(), path.get(cut + 1..).unwrap_or_default()),
            None => (&b""[..], path),
        };
        if is(name, HEAD) {
            return sides.before(folder, ELSEWHERE);
        }
        PARTS.iter().any(|part| is(name, part))
            && self.is_one(sides, folder)
            && SETTINGS.iter().any(|setting| sides.before(folder, setting))
    }

    fn is_one(&mut self, sides: &impl Sides, folder: &[u8]) -> bool {
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
