//! The scope of a service as fences for a program: a program opens files by itself, so the scope is enforced by hiding what
//! is outside it.

use std::sync::Arc;

use vambrace_core::fence::PathFence;
use vambrace_core::glob::{GlobPurpose, GlobRoots, PathGlobs};

use crate::scope::Scope;

/// What a program may use of the project.
#[derive(Debug, Clone, PartialEq)]
pub struct ProgramScope {
    /// What it may read.
    pub read: PathFence,
    /// What it may change.
    pub write: PathFence,
}

impl ProgramScope {
    /// `None` if the service is the whole project.
    pub(crate) fn of(scope: &Scope) -> Option<Self> {
        if scope.service().is_empty() {
            return None;
        }
        let own = scope.service().to_owned();
        let siblings = scope.siblings().map(|parent| {
            let parent = if parent.is_empty() { String::new() } else { format!("{}/", escaped(parent)) };
            format!("project:{parent}*/**")
        });
        let tree =
            |root: &String| [format!("project:{}", escaped(root)), format!("project:{}/**", escaped(root))];
        let readable: Vec<String> =
            std::iter::once(&own).chain(scope.shared()).flat_map(tree).chain(siblings).collect();
        Some(Self { read: only(&readable, &own)?, write: only(&tree(&own), &own)? })
    }
}

/// `None` only for patterns that do not compile; names are escaped, so they do.
fn only(globs: &[String], service_root: &str) -> Option<PathFence> {
    let roots = GlobRoots { service_root: service_root.to_owned(), author_root: String::new() };
    let globs = PathGlobs::new(globs, GlobPurpose::Permit, &roots).ok();
    Some(globs.map_or_else(PathFence::nothing, |globs| PathFence::only(Arc::new(globs))))
}

/// A name in a glob, literally.
fn escaped(name: &str) -> String {
    name.chars().fold(String::new(), |mut text, letter| {
        if "*?[]{}!\\".contains(letter) {
            text.push('[');
            text.push(letter);
            text.push(']');
        } else {
            text.push(letter);
        }
        text
    })
}
