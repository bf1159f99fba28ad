//! The configuration that `init` writes: short, commented, and in place at once or not at all. Links are not followed:
//! the folder is opened without, and the file is renamed into it.
#![expect(
    clippy::disallowed_methods,
    reason = "names below `.vambrace`; the files themselves are read through its handle"
)]

use std::io::Write as _;
use std::os::fd::AsFd;
use std::path::Path;

use rustix::fs::{AtFlags, CWD, Mode, OFlags, RenameFlags};
use rustix::io::Errno;

use super::detect::Detected;
use crate::failure::Failure;
use crate::project::CONFIG;

/// The text for a project.
pub(super) fn text(found: &Detected) -> String {
    let kinds = found.kinds();
    let kinds = if kinds.is_empty() { String::new() } else { format!("# {}\n", kinds.join(", ")) };
    let mut create = vec!["\".\"".to_owned()];
    let usual = ["src", "tests", "docs"];
    let folders = if found.folders.is_empty() { usual.as_slice() } else { &found.folders };
    create.extend(folders.iter().map(|folder| format!("\"{folder}/\"")));
    let services = match found.services.as_slice() {
        [] => String::new(),
        [first, ..] => format!(
            "  # services: {}\n  # `service_root: {first}` keeps agents inside one of them\n",
            found.services.join(", ")
        ),
    };
    format!(
        "\
# What agents may do here. `vambrace config reference` lists every key, `vambrace config show` what is in force.
# After a change: `vambrace policy check`, then `vambrace trust`.
version: 1
profile: coding

# Only roles permit: dev, sre, release_manager, product_owner, or your own.
roles:
  default: dev

{kinds}workspace:
{services}  service_root: .
  isolation: strict
  # where new files are allowed; `.` is the root level alone
  create_in: [{}]
  # names that no agent reads, beside the built-in ones (.env, .git/, secrets/, *.pem ...)
  # block: [\"*.sqlite\"]

approvals:
  # run a MEDIUM command apart from the files and ask about what it changed
  commands: effects_first
  # rules:
  #   - id: generated-code
  #     tools: [write_file, edit_file]
  #     paths: [\"src/generated/**\"]
  #     decision: deny
  #     reason: generated; change its source instead
  #     match: [\"write_file src/generated/api.rs\"]
  #     not_match: [\"write_file src/main.rs\"]
",
        create.join(", ")
    )
}

/// Puts the text in its place.
pub(super) fn write(project: &Path, text: &str, force: bool) -> Result<(), Failure> {
    put(project, text, force).map_err(|errno| match errno {
        Errno::EXIST => Failure::usage(
            format!("`{CONFIG}` is there already"),
            "`vambrace trust` trusts it as it is; `--force` writes it anew",
        ),
        Errno::LOOP | Errno::NOTDIR => {
            Failure::failed("`.vambrace` is not a folder").hint("remove it: links are not followed here")
        }
        errno => Failure::failed(format!("cannot write `{CONFIG}`: {errno}")),
    })
}

fn put(project: &Path, text: &str, force: bool) -> Result<(), Errno> {
    let folder = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let root = rustix::fs::openat(CWD, project, folder, Mode::empty())?;
    match rustix::fs::mkdirat(&root, ".vambrace", Mode::from_raw_mode(0o755)) {
        Ok(()) | Err(Errno::EXIST) => {}
        Err(errno) => return Err(errno),
    }
    let inside = rustix::fs::openat(&root, ".vambrace", folder | OFlags::NOFOLLOW, Mode::empty())?;
    if !force && rustix::fs::statat(&inside, "config.yaml", AtFlags::SYMLINK_NOFOLLOW).is_ok() {
        return Err(Errno::EXIST);
    }
    let made = format!(".config.yaml.{}", std::process::id());
    let placed = make(&inside, &made, text).and_then(|()| {
        let flags = if force { RenameFlags::empty() } else { RenameFlags::NOREPLACE };
        rustix::fs::renameat_with(&inside, &made, &inside, "config.yaml", flags)
    });
    if placed.is_err() {
        // Nothing is left behind; the first fault is the one to tell.
        let _ = rustix::fs::unlinkat(&inside, &made, AtFlags::empty());
    }
    placed?;
    rustix::fs::fsync(&inside)
}

fn make(folder: impl AsFd, name: &str, text: &str) -> Result<(), Errno> {
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let made = rustix::fs::openat(folder, name, flags, Mode::from_raw_mode(0o644))?;
    let mut file = std::fs::File::from(made);
    let written = file.write_all(text.as_bytes()).and_then(|()| file.sync_all());
    written.map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))
}

/// Whether the configuration is all that lies below `.vambrace`.
pub(super) fn is_alone(project: &Path) -> bool {
    let entries = std::fs::read_dir(project.join(".vambrace"));
    entries.is_ok_and(|entries| entries.flatten().all(|entry| entry.file_name() == "config.yaml"))
}

#[cfg(test)]
mod tests {
    use vambrace_core::config::{self, Source};

    use super::*;

    #[test]
    fn what_is_written_loads_without_notes() {
        let services = vec!["services/a".to_owned(), "services/b".to_owned()];
        let mut service_project = Detected::default();
        (service_project.folders, service_project.services) = (vec!["src", "crates"], services);
        for found in [Detected::default(), service_project] {
            let text = text(&found);
            let file = config::parse(&text, CONFIG, Source::Project { trusted: true }).unwrap();
            let effective = config::combine(None, None, Some(file));
            assert_eq!(effective.notes, [], "{text}");
            assert_eq!(effective.default_role.unwrap().value, "dev");
        }
    }

    #[test]
    fn the_commented_rule_is_a_rule_whose_cases_hold() {
        let text = text(&Detected::default()).replace("  # rules:", "  rules:").replace("  #  ", "   ");
        let file = config::parse(&text, CONFIG, Source::Project { trusted: true }).unwrap();
        let results = vambrace_core::policy::cases::check_cases(&file.rules, &[]);
        assert_eq!(results.len(), 2);
        assert!(results.iter().all(|result| result.fault.is_none()), "{results:?}");
    }

    #[test]
    fn nothing_is_overwritten_unasked_and_no_link_is_followed() {
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
