//! `cargo xtask lint-names`: type names that the product defines more than once.
//!
//! One name has one meaning in the workspace. Counted are structs, enums, unions, traits and type aliases below `crates/*/src`, private
//! ones too; inline test modules, test files and associated types are not.

use std::{collections::BTreeMap, fs, path::Path, process::ExitCode};

use crate::{
    error::{TaskResult, WithContext},
    project::Project,
    sources,
};

/// The share of names, in percent, that may have a second definition.
const MAX_SHARED_PERCENT: f64 = 4.0;

const KEYWORDS: [&str; 5] = ["struct ", "enum ", "union ", "trait ", "type "];

/// Prints every name with several definitions; fails above the accepted share.
pub(crate) fn run(project: &Project) -> TaskResult<ExitCode> {
    Ok(if check(project)? { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

pub(crate) fn check(project: &Project) -> TaskResult<bool> {
    let definitions = definitions(project.root())?;
    let shared: Vec<_> = definitions.iter().filter(|(_, places)| places.len() > 1).collect();
    for (name, places) in &shared {
        println!("{name}: {}", places.join(" "));
    }
    let percent = 100.0 * shared.len() as f64 / definitions.len().max(1) as f64;
    println!("{} type names, {} defined more than once ({percent:.1} %)", definitions.len(), shared.len());
    Ok(percent <= MAX_SHARED_PERCENT)
}

fn definitions(root: &Path) -> TaskResult<BTreeMap<String, Vec<String>>> {
    let mut definitions: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for file in sources::rust_files(root, &["crates"])? {
        if sources::is_test_file(&file) {
            continue;
        }
        let text =
            fs::read_to_string(root.join(&file)).when(|| format!("cannot read `{}`", file.display()))?;
        for (number, name) in defined_names(&text) {
            definitions.entry(name.to_owned()).or_default().push(format!("{}:{number}", file.display()));
        }
    }
    Ok(definitions)
}

/// Line numbers and names of the types that a source file defines outside `#[cfg(test)]`.
fn defined_names(text: &str) -> Vec<(usize, &str)> {
    let mut names = Vec::new();
    let mut lines = text.lines().enumerate();
    while let Some((at, line)) = lines.next() {
        if line.starts_with("#[cfg(test)]") {
            skip_item(&mut lines);
        } else if let Some(name) = defined_name(line) {
            names.push((at + 1, name));
        }
    }
    names
}

/// Skips the item after an attribute: one line, or up to the closing brace in the first column.
fn skip_item<'t>(lines: &mut impl Iterator<Item = (usize, &'t str)>) {
    let mut item = lines.by_ref().map(|(_, line)| line).skip_while(|line| line.starts_with("#["));
    let is_one_line = item.next().is_none_or(|line| line.ends_with([';', '}']));
    if !is_one_line {
        item.find(|line| line.starts_with('}') || line.starts_with(')'));
    }
}

fn defined_name(line: &str) -> Option<&str> {
    let mut rest = line.trim_start();
    let is_indented = rest.len() < line.len();
    if let Some(public) = rest.strip_prefix("pub") {
        rest = match public.strip_prefix('(') {
            Some(restricted) => restricted.split_once(')')?.1,
            None => public,
        };
        rest = rest.strip_prefix(' ')?;
    }
    rest = rest.strip_prefix("unsafe ").unwrap_or(rest);
    let keyword = KEYWORDS.into_iter().find(|keyword| rest.starts_with(keyword))?;
    // An indented alias is the associated type of a trait.
    if keyword == "type " && is_indented {
        return None;
    }
    let name = rest.strip_prefix(keyword)?;
    let end = name.find(|letter: char| !letter.is_alphanumeric() && letter != '_').unwrap_or(name.len());
    name.get(..end).filter(|name| !name.is_empty())
}

#[cfg(test)]
mod tests {
    use super::{defined_name, defined_names};

    #[test]
    fn definitions_are_recognised() {
        assert_eq!(defined_name("pub(crate) struct CommitQueue {"), Some("CommitQueue"));
        assert_eq!(defined_name("enum Verdict {"), Some("Verdict"));
        assert_eq!(defined_name("    pub(super) struct Row<T>(T);"), Some("Row"));
        assert_eq!(defined_name("pub unsafe trait Sealed {}"), Some("Sealed"));
        assert_eq!(defined_name("pub type Outcome<T> = Result<T, Fault>;"), Some("Outcome"));
    }

    #[test]
    fn test_items_are_skipped_and_the_rest_of_the_file_is_read() {
        let text = "struct A;\n#[cfg(test)]\nmod tests;\n#[cfg(test)]\nimpl A {\n    fn x() {}\n}\nenum B {}\n\
                    #[cfg(test)]\n#[expect(x)]\nmod cases {\n    struct C;\n}\ntrait D {}\n#[cfg(test)]\nstruct E;\n";
        assert_eq!(defined_names(text), [(1, "A"), (8, "B"), (14, "D")]);
    }

    #[test]
    fn uses_are_not_definitions() {
        assert_eq!(defined_name("    type Item = u8;"), None);
        assert_eq!(defined_name("let x = struct_of(1);"), None);
        assert_eq!(defined_name("// struct Fake"), None);
    }
}
