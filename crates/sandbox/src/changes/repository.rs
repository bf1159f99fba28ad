//! The workspace and what the program saw of it, for the question what of it is a repository; and where its own repository
//! has its hooks, when it is told to have them elsewhere.

use std::io::Read as _;
use std::os::fd::{AsRawFd as _, BorrowedFd};

use rustix::fs::OFlags;

use super::facts::Facts;
use crate::sys::mounting::open_beneath;
use crate::walk::join;
use crate::wire::Bytes;

/// Nobody's settings are longer.
const MOST: u64 = 1 << 20;

/// The workspace, and what the program saw of it.
#[derive(Clone, Copy)]
pub(super) struct Sides<'a> {
    pub(super) base: BorrowedFd<'a>,
    pub(super) view: BorrowedFd<'a>,
}

impl vambrace_core::repository::Sides for Sides<'_> {
    fn before(&self, folder: &[u8], name: &[u8]) -> bool {
        !matches!(Facts::look(self.base, &join(folder, name)), Ok(None))
    }

    fn has(&self, folder: &[u8], name: &[u8]) -> bool {
        self.before(folder, name) || !matches!(Facts::look(self.view, &join(folder, name)), Ok(None))
    }
}

/// The folders that the workspace's own repository takes for its hooks (`core.hooksPath`), as far as they lie in the
/// workspace. Which section it stands in is not asked: too much is withheld rather than too little.
pub(super) fn hooks_elsewhere(base: BorrowedFd<'_>) -> Vec<Bytes> {
    let mut text = Vec::new();
    let opened = open_beneath(base, b".git/config", OFlags::RDONLY | OFlags::NONBLOCK);
    let read = opened.map(|file| std::fs::File::from(file).take(MOST).read_to_end(&mut text));
    if !matches!(read, Ok(Ok(_))) {
        return Vec::new();
    }
    let own = rustix::fs::readlink(format!("/proc/self/fd/{}", base.as_raw_fd()), Vec::new());
    let own = own.map(std::ffi::CString::into_bytes).unwrap_or_default();
    text.split(|byte| *byte == b'\n').filter_map(|line| folder_in(line, &own)).collect()
}

fn folder_in(line: &[u8], workspace: &[u8]) -> Option<Bytes> {
    // A setting may follow its section on one line.
    let line = line.rsplit(|byte| *byte == b']').next()?.trim_ascii();
    let cut = line.iter().position(|byte| *byte == b'=')?;
    let (key, value) = (line.get(..cut)?.trim_ascii(), line.get(cut + 1..)?.trim_ascii());
    if !key.eq_ignore_ascii_case(b"hooksPath") {
        return None;
    }
    let value: Bytes = value.iter().copied().filter(|byte| *byte != b'"').collect();
    let inside = match value.strip_prefix(b"/") {
        Some(_) => value.strip_prefix(workspace)?.to_vec(),
        None => value,
    };
    let names: Vec<&[u8]> =
        inside.split(|byte| *byte == b'/').filter(|name| !matches!(*name, b"" | b".")).collect();
    (!names.is_empty() && !names.contains(&&b".."[..])).then(|| names.join(&b'/'))
}

#[cfg(test)]
mod tests {
    use super::folder_in;

    #[test]
    fn folders_of_hooks_are_found_in_every_spelling() {
        let check = |line: &str, expected: Option<&str>| {
            let found = folder_in(line.as_bytes(), b"/w/s");
            assert_eq!(found.as_deref(), expected.map(str::as_bytes), "{line}");
        };
        check("\thooksPath = .githooks", Some(".githooks"));
        check("[core] HOOKSPATH=./tools//hooks/", Some("tools/hooks"));
        check("hookspath = \"a b\"", Some("a b"));
        check("hooksPath = /w/s/x", Some("x"));
        check("hooksPath = /elsewhere", None);
        check("hooksPath = ../outside", None);
        check("hooksPath = .", None);
        check("hooksPathology = x", None);
        check("[core]", None);
    }
}
