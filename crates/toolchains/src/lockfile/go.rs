//! `go.mod` and `go.sum`. Modules come from the module proxy, which is the only host; `go.sum` pins them.

use super::{HostCollector, LockfileError, LockfileProblemKind};

/// Whether a `go.mod` requires anything from outside.
pub(crate) fn has_requirements(go_mod: &str) -> bool {
    directives(go_mod).any(|(directive, _)| directive == "require")
}

/// Reads `go.sum`.
pub(crate) fn read_sum(text: &str, file: &str, collector: &mut HostCollector) -> Result<(), LockfileError> {
    collector.file(file);
    for (number, line) in (1_usize..).zip(text.lines()).filter(|(_, line)| !line.trim().is_empty()) {
        let words: Vec<&str> = line.split_whitespace().take(4).collect();
        match words.as_slice() {
            // A module has two lines: its archive, and its `go.mod`.
            [_, version, _] if version.ends_with("/go.mod") => {}
            [_, _, hash] if hash.starts_with("h1:") => collector.package(),
            [module, _, _] => {
                collector.problem(LockfileProblemKind::MissingHash, module, "a hash of an unknown kind");
            }
            _ => return Err(LockfileError::new(file, format!("line {number} is not `module version hash`"))),
        }
    }
    Ok(())
}

/// Reads the replacements of `go.mod`.
pub(crate) fn read_mod(text: &str, file: &str, collector: &mut HostCollector) {
    collector.file(file);
    for (directive, rest) in directives(text) {
        if directive == "replace"
            && let Some((module, replacement)) = rest.split_once("=>")
        {
            let replacement = replacement.split_whitespace().next().unwrap_or_default();
            if replacement.starts_with(['.', '/']) {
                collector.local_path(replacement, module.trim());
            }
        }
    }
}

/// Directives with their arguments; those in a block have its name.
fn directives(text: &str) -> impl Iterator<Item = (&str, &str)> {
    let mut block = None;
    text.lines().filter_map(move |line| {
        let line = line.split("//").next().unwrap_or_default().trim();
        match (block, line) {
            (_, "") => None,
            (Some(_), ")") => {
                block = None;
                None
            }
            (Some(name), line) => Some((name, line)),
            (None, line) => {
                let (name, rest) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
                if rest.trim() == "(" {
                    block = Some(name);
                    return None;
                }
                Some((name, rest.trim()))
            }
        }
    })
}
