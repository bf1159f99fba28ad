//! What an approver must type to approve a HIGH request, at every entry point: a click or a key is not enough.

use vambrace_broker::ApprovalView;

/// The name of the file or tool, or digits of the plan's digest if the name cannot be typed.
#[must_use]
pub fn confirmation_name(look: &ApprovalView) -> String {
    let row = look.request.as_ref();
    let path = look.files.first().map(|file| file.path.as_str());
    let name = path.and_then(|path| path.rsplit('/').next()).or(row.map(|row| row.tool.as_str()));
    let typable = |name: &&str| !name.is_empty() && name.chars().all(|c| c.is_ascii_graphic());
    match (name.filter(typable), row) {
        (Some(name), _) => name.to_owned(),
        (None, Some(row)) => short_digest(row.digest),
        (None, None) => String::new(),
    }
}

/// The first eight digits of a digest.
#[must_use]
pub fn short_digest(digest: impl std::fmt::Display) -> String {
    digest.to_string().chars().skip("sha256:".len()).take(8).collect()
}
