//! `Gemfile.lock`: sections at the margin, fields indented by two spaces, gems by four.

use super::{HostCollector, LockfileError, LockfileProblemKind};

pub(crate) fn read(text: &str, file: &str, collector: &mut HostCollector) -> Result<(), LockfileError> {
    collector.file(file);
    let mut section = "";
    let mut pinned = false;
    let mut gems = 0_u64;
    for line in text.lines().map(str::trim_end) {
        if line.is_empty() {
            continue;
        }
        if !line.starts_with(' ') {
            let known = line.bytes().all(|byte| byte.is_ascii_uppercase() || byte == b' ');
            if !known {
                return Err(LockfileError::new(file, "a line that is no section (merge conflict?)"));
            }
            section = line;
            if section == "PLUGIN SOURCE" {
                collector.problem(
                    LockfileProblemKind::RunsCode,
                    section,
                    "bundler installs and runs plugins",
                );
            }
        } else if let Some(remote) = line.strip_prefix("  remote: ") {
            match section {
                "PATH" => collector.local_path(remote, "PATH"),
                _ => collector.location(remote, section),
            }
        } else if section == "CHECKSUMS" {
            pinned |= line.contains(" sha256=");
        } else if line.starts_with("    ") && !line.starts_with("     ") && section == "GEM" {
            gems += 1;
            collector.package();
        }
    }
    if gems > 0 && !pinned {
        collector.problem(LockfileProblemKind::MissingHash, "CHECKSUMS", "the gems are not pinned by hashes");
    }
    Ok(())
}
