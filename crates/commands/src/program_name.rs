//! Which program a name or a path stands for.

use crate::built_in::BUILT_IN;
use crate::profile::CommandProfile;

/// The name without the directory, if the directory is one where the system keeps programs. A program of another
/// directory is unknown, whatever it is called.
pub(crate) fn known_name(written: &str) -> Option<&str> {
    let Some((directory, name)) = written.rsplit_once('/') else { return Some(written) };
    BUILT_IN.lists("program-directories", directory).then_some(name)
}

/// The name before a suffix that tells variants of one program apart: `mkfs.ext4` is `mkfs`.
pub(crate) fn family(name: &str) -> &str {
    match name.split_once('.') {
        Some((family, _)) if BUILT_IN.lists("dotted-families", family) => family,
        _ => name,
    }
}

/// The profile of a program: by its name, its family, or without the version in it (`python3.12`, `gcc-13`).
pub(crate) fn profile(name: &str) -> Option<&'static CommandProfile> {
    let by_name = |name: &str| BUILT_IN.program(name).filter(|_| !name.is_empty());
    by_name(name).or_else(|| by_name(family(name))).or_else(|| by_name(name.strip_suffix(".exe")?)).or_else(
        || by_name(name.trim_end_matches(|c: char| c.is_ascii_digit() || c == '.').trim_end_matches('-')),
    )
}
