//! Files that the binary itself makes: written by `cargo xtask generate`, compared by `cargo xtask test`.

use std::{
    fs,
    process::{Command, ExitCode},
};

use crate::{
    fault::{Fault, Outcome, While},
    program::{aloud, quietly},
    project::Project,
};

/// Each file, and what `vambrace` is asked for it.
const GENERATED: &[(&str, &[&str])] = &[
    ("docs/configuration.md", &["config", "reference"]),
    ("docs/config.schema.json", &["config", "schema"]),
    ("docs/errors.md", &["errors", "--markdown"]),
    ("docs/tools.md", &["tools", "list", "--markdown"]),
];

/// Builds the binary and writes every file that changed.
pub(crate) fn write(project: &Project) -> Outcome<ExitCode> {
    build(project)?;
    for (file, question) in GENERATED {
        let path = project.root().join(file);
        let made = ask(project, question)?;
        if fs::read_to_string(&path).is_ok_and(|there| there == made) {
            println!("{file}: as it was");
            continue;
        }
        if let Some(folder) = path.parent() {
            fs::create_dir_all(folder).when(|| format!("cannot make `{}`", folder.display()))?;
        }
        fs::write(&path, made).when(|| format!("cannot write `{file}`"))?;
        println!("{file}: written");
    }
    Ok(ExitCode::SUCCESS)
}

/// Builds the binary and compares.
pub(crate) fn check_built(project: &Project) -> Outcome<ExitCode> {
    build(project)?;
    Ok(if check(project)? { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Whether every committed file is what the built binary makes; says where one is not.
pub(crate) fn check(project: &Project) -> Outcome<bool> {
    let mut same = true;
    for (file, question) in GENERATED {
        let there = fs::read_to_string(project.root().join(file)).unwrap_or_default();
        let difference = match ask(project, question) {
            Ok(made) => difference(&there, &made),
            Err(fault) => Some(fault.to_string()),
        };
        if let Some(difference) = difference {
            println!("{file}: {difference}");
            same = false;
        }
    }
    if !same {
        println!("hint: `cargo xtask generate` writes them anew");
    }
    Ok(same)
}

fn build(project: &Project) -> Outcome<()> {
    if aloud(project.cargo("build").args(["--workspace", "--bins"]))? {
        Ok(())
    } else {
        Err(Fault::new("the binary does not build"))
    }
}

/// What the binary prints, away from the configuration of whoever runs this.
fn ask(project: &Project, question: &[&str]) -> Outcome<String> {
    let nowhere = project.tools().join("nowhere");
    quietly(
        Command::new(project.built("debug", "vambrace"))
            .args(question)
            .current_dir(project.root())
            .env("HOME", &nowhere)
            .env("XDG_CONFIG_HOME", nowhere.join("config"))
            .env("VAMBRACE_HOME", nowhere.join("state"))
            .env("NO_COLOR", "1"),
    )
}

/// Where two texts begin to differ, and by how much.
fn difference(there: &str, made: &str) -> Option<String> {
    if there == made {
        return None;
    }
    if there.is_empty() {
        return Some("missing or empty".to_owned());
    }
    let same = there.lines().zip(made.lines()).take_while(|(old, new)| old == new).count();
    let old = there.lines().nth(same).unwrap_or("(end)");
    let new = made.lines().nth(same).unwrap_or("(end)");
    Some(format!(
        "differs from line {} on ({} lines committed, {} made)\n  committed: {old}\n  made:      {new}",
        same + 1,
        there.lines().count(),
        made.lines().count()
    ))
}

#[cfg(test)]
mod tests {
    use super::difference;

    #[test]
    fn equal_texts_do_not_differ() {
        assert_eq!(difference("a\nb\n", "a\nb\n"), None);
    }

    #[test]
    fn the_first_different_line_is_named() {
        let said = difference("a\nb\nc\n", "a\nx\n").unwrap();
        assert!(said.starts_with("differs from line 2 on (3 lines committed, 2 made)"), "{said}");
        assert!(said.contains("committed: b") && said.contains("made:      x"), "{said}");
    }

    #[test]
    fn a_missing_end_is_a_difference() {
        assert!(difference("a\n", "a\nb\n").unwrap().contains("committed: (end)"));
        assert!(difference("a", "a\n").is_some());
        assert_eq!(difference("", "a\n").as_deref(), Some("missing or empty"));
    }
}
