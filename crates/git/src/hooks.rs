//! Which hooks a repository has. They never run here, and an answer about a commit says so when there are any.

/// The hooks that git runs, of git 2.39 and newer.
const HOOKS: &[&str] = &[
    "applypatch-msg",
    "commit-msg",
    "fsmonitor-watchman",
    "p4-changelist",
    "p4-post-changelist",
    "p4-pre-submit",
    "p4-prepare-changelist",
    "post-applypatch",
    "post-checkout",
    "post-commit",
    "post-index-change",
    "post-merge",
    "post-receive",
    "post-rewrite",
    "post-update",
    "pre-applypatch",
    "pre-auto-gc",
    "pre-commit",
    "pre-merge-commit",
    "pre-push",
    "pre-rebase",
    "pre-receive",
    "prepare-commit-msg",
    "proc-receive",
    "push-to-checkout",
    "reference-transaction",
    "sendemail-validate",
    "update",
];

/// The hooks among the entries of a hook directory, given as names and whether they are executable; git ignores the others.
#[must_use]
pub fn present_hooks<'e>(entries: impl IntoIterator<Item = (&'e [u8], bool)>) -> Vec<&'static str> {
    let mut present: Vec<&'static str> = entries
        .into_iter()
        .filter(|(_, executable)| *executable)
        .filter_map(|(name, _)| HOOKS.iter().find(|hook| hook.as_bytes() == name).copied())
        .collect();
    present.sort_unstable();
    present.dedup();
    present
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn executable_hooks_with_a_known_name_are_present() {
        let entries: [(&[u8], bool); 5] = [
            (b"pre-commit", true),
            (b"pre-commit.sample", true),
            (b"commit-msg", false),
            (b"post-checkout", true),
            (b"other", true),
        ];
        assert_eq!(present_hooks(entries), ["post-checkout", "pre-commit"]);
        assert!(HOOKS.is_sorted());
    }
}
