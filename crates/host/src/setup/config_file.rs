//! Writes the configuration file of `init` atomically. Symlinks are not followed: the directory is opened with O_NOFOLLOW and
//! the file is renamed into it.
#![expect(clippy::disallowed_methods, reason = "lists `.vambrace`; files are written through its handle")]

use std::io::Write as _;
use std::os::fd::AsFd;
use std::path::Path;

use rustix::fs::{AtFlags, CWD, Mode, OFlags, RenameFlags};
use rustix::io::Errno;

use super::detect::DetectedProject;
use crate::error::HostError;
use crate::project_files::CONFIG;

/// The configuration for a project.
pub(super) fn text(found: &DetectedProject) -> String {
    let kinds = found.kinds();
    let kinds = if kinds.is_empty() { String::new() } else { format!("# {}\n", kinds.join(", ")) };
    let mut create = vec!["\".\"".to_owned()];
    let usual = ["src", "tests", "docs"];
    let dirs = if found.dirs.is_empty() { usual.as_slice() } else { &found.dirs };
    create.extend(dirs.iter().map(|dir| format!("\"{dir}/\"")));
    let services = match found.services.as_slice() {
        [] => String::new(),
        [first, ..] => format!(
            "  # services: {}\n  # `service_root: {first}` restricts agents to one of them\n",
            found.services.join(", ")
        ),
    };
    format!(
        "\
# What agents may do here. `vambrace config reference` lists all keys, `vambrace config show` the effective values.
# After a change: `vambrace policy check`, then `vambrace trust`.
version: 1
profile: coding

# Only a role permits calls: dev, sre, release_manager, product_owner, or your own.
roles:
  default: dev

{kinds}workspace:
{services}  service_root: .
  isolation: strict
  # where new files are allowed; `.` is only the root directory itself
  create_in: [{}]
  # blocked paths, in addition to the built-in ones (.env, .git/, secrets/, *.pem ...)
  # block: [\"*.sqlite\"]

approvals:
  # a MEDIUM command runs at once over a copy of the project; what it changed is proposed as a diff
  commands: effects_first
#   rules:
#     - id: generated-code
#       tools: [write_file, edit_file]
#       paths: [\"src/generated/**\"]
#       decision: deny
#       reason: generated; change its source instead
#       match: [\"write_file src/generated/api.rs\"]
#       not_match: [\"write_file src/main.rs\"]
",
        create.join(", ")
    )
}

/// Writes the configuration.
pub(super) fn write(project: &Path, text: &str, force: bool) -> Result<(), HostError> {
    put(project, text, force).map_err(|errno| match errno {
        Errno::EXIST => HostError::usage(
            format!("`{CONFIG}` already exists"),
            "`vambrace trust` trusts it as it is; `--force` overwrites it",
        ),
        Errno::LOOP | Errno::NOTDIR => HostError::failed("`.vambrace` is not a directory")
            .hint("remove it: symlinks are not followed here"),
        errno => HostError::failed(format!("cannot write `{CONFIG}`: {errno}")),
    })
}

fn put(project: &Path, text: &str, force: bool) -> Result<(), Errno> {
    let dir = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let root = rustix::fs::openat(CWD, project, dir, Mode::empty())?;
    match rustix::fs::mkdirat(&root, ".vambrace", Mode::from_raw_mode(0o755)) {
        Ok(()) | Err(Errno::EXIST) => {}
        Err(errno) => return Err(errno),
    }
    let inside = rustix::fs::openat(&root, ".vambrace", dir | OFlags::NOFOLLOW, Mode::empty())?;
    if !force && rustix::fs::statat(&inside, "config.yaml", AtFlags::SYMLINK_NOFOLLOW).is_ok() {
        return Err(Errno::EXIST);
    }
    let made = format!(".config.yaml.{}", std::process::id());
    let placed = make(&inside, &made, text).and_then(|()| {
        let flags = if force { RenameFlags::empty() } else { RenameFlags::NOREPLACE };
        rustix::fs::renameat_with(&inside, &made, &inside, "config.yaml", flags)
    });
    if placed.is_err() {
        // Removes the temporary file; the first error is the one to report.
        let _ = rustix::fs::unlinkat(&inside, &made, AtFlags::empty());
    }
    placed?;
    rustix::fs::fsync(&inside)
}

fn make(dir: impl AsFd, name: &str, text: &str) -> Result<(), Errno> {
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let made = rustix::fs::openat(dir, name, flags, Mode::from_raw_mode(0o644))?;
    let mut file = std::fs::File::from(made);
    let written = file.write_all(text.as_bytes()).and_then(|()| file.sync_all());
    written.map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))
}

/// Whether the configuration is the only file in `.vambrace`.
pub(super) fn is_alone(project: &Path) -> bool {
    let entries = std::fs::read_dir(project.join(".vambrace"));
    entries.is_ok_and(|entries| entries.flatten().all(|entry| entry.file_name() == "config.yaml"))
}

#[cfg(test)]
mod tests {
    use vambrace_core::config::{self, ConfigSource};

    use super::*;

    #[test]
    fn written_configuration_loads_without_notes() {
        let services = vec!["services/a".to_owned(), "services/b".to_owned()];
        let mut service_project = DetectedProject::default();
        (service_project.dirs, service_project.services) = (vec!["src", "crates"], services);
        for found in [DetectedProject::default(), service_project] {
            let text = text(&found);
            let file = config::parse(&text, CONFIG, ConfigSource::Project { trusted: true }).unwrap();
            let effective = config::combine(None, None, Some(file));
            assert_eq!(effective.notes, [], "{text}");
            assert_eq!(effective.default_role.unwrap().value, "dev");
        }
    }

    #[test]
    fn commented_example_rule_passes_its_test_cases() {
        let text = text(&DetectedProject::default());
        let (before, rule) = text.split_once("#   rules:").unwrap();
        let text = format!("{before}  rules:{}", rule.replace("\n# ", "\n"));
        let file = config::parse(&text, CONFIG, ConfigSource::Project { trusted: true }).unwrap();
        let results = vambrace_core::policy::rule_cases::check_cases(&file.rules, &[]);
        assert_eq!(results.len(), 2);
        assert!(results.iter().all(|result| result.fault.is_none()), "{results:?}");
    }

    #[test]
    fn existing_file_is_kept_without_force_and_symlinks_are_not_followed() {
        let temp = tempfile::tempdir().unwrap();
        let (project, outside) = (temp.path().join("p"), temp.path().join("o"));
        std::fs::create_dir_all(&project).unwrap();
        std::fs::create_dir_all(&outside).unwrap();
        let config = project.join(CONFIG);
        write(&project, "one\n", false).unwrap();
        assert!(write(&project, "two\n", false).unwrap_err().error.message.contains("already"));
        assert_eq!(std::fs::read_to_string(&config).unwrap(), "one\n");
        write(&project, "three\n", true).unwrap();
        assert_eq!(std::fs::read_to_string(&config).unwrap(), "three\n");
        assert!(is_alone(&project));

        let target = outside.join("target");
        std::fs::write(&target, "kept").unwrap();
        std::fs::remove_file(&config).unwrap();
        std::os::unix::fs::symlink(&target, &config).unwrap();
        write(&project, "four\n", true).unwrap();
        assert_eq!(std::fs::read_to_string(&target).unwrap(), "kept");

        std::fs::remove_dir_all(project.join(".vambrace")).unwrap();
        std::os::unix::fs::symlink(&outside, project.join(".vambrace")).unwrap();
        assert!(write(&project, "five\n", true).is_err());
        assert!(!outside.join("config.yaml").exists());
    }
}
