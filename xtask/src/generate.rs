//! Generated files: reference pages that the binary prints and lists of tests by requirement. `cargo xtask generate` writes them,
//! `cargo xtask test` compares them.

use std::{
    fs,
    process::{Command, ExitCode},
};

use crate::{
    error::{TaskError, TaskResult, WithContext},
    pictures,
    program::{run_captured, run_shown},
    project::Project,
    requirements,
};

/// Files that `vambrace` prints, with its arguments.
const GENERATED: &[(&str, &[&str])] = &[
    ("docs/configuration.md", &["config", "reference"]),
    ("docs/config.schema.json", &["config", "schema"]),
    ("docs/errors.md", &["errors", "--markdown"]),
    ("docs/tools.md", &["tools", "list", "--markdown"]),
];

/// Builds the binary and writes every file that changed.
pub(crate) fn write(project: &Project) -> TaskResult<ExitCode> {
    build(project)?;
    for (file, made) in generated(project)? {
        let path = project.root().join(file);
        if fs::read_to_string(&path).is_ok_and(|committed| committed == made) {
            println!("{file}: unchanged");
            continue;
        }
        if let Some(dir) = path.parent() {
            fs::create_dir_all(dir).when(|| format!("cannot create `{}`", dir.display()))?;
        }
        fs::write(&path, made).when(|| format!("cannot write `{file}`"))?;
        println!("{file}: written");
    }
    Ok(ExitCode::SUCCESS)
}

/// Every generated file with its content.
fn generated(project: &Project) -> TaskResult<Vec<(&'static str, String)>> {
    let mut files = Vec::from(requirements::documents(project.root())?);
    for (file, arguments) in GENERATED {
        files.push((*file, ask(project, arguments)?));
    }
    files.extend(pictures::draw(project)?);
    Ok(files)
}

/// Builds the binary and compares.
pub(crate) fn check_built(project: &Project) -> TaskResult<ExitCode> {
    build(project)?;
    Ok(if check(project)? { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Whether every committed file equals the generated one; prints the differences.
pub(crate) fn check(project: &Project) -> TaskResult<bool> {
    let mut same = true;
    let files = match generated(project) {
        Ok(files) => files,
        Err(error) => {
            println!("{error}");
            return Ok(false);
        }
    };
    for (file, made) in files {
        let committed = fs::read_to_string(project.root().join(file)).unwrap_or_default();
        if let Some(difference) = difference(&committed, &made) {
            println!("{file}: {difference}");
            same = false;
        }
    }
    if !same {
        println!("hint: `cargo xtask generate` regenerates them");
    }
    Ok(same)
}

fn build(project: &Project) -> TaskResult<()> {
    if run_shown(project.cargo("build").args(["--workspace", "--bins"]))? {
        Ok(())
    } else {
        Err(TaskError::new("the binary does not build"))
    }
}

/// What the binary prints, without the developer's own configuration.
fn ask(project: &Project, question: &[&str]) -> TaskResult<String> {
    let nowhere = project.tools().join("nowhere");
    run_captured(
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
