//! Names of the recipes of a justfile and of the targets of a makefile.

use crate::project_view::{ProjectView, join};

/// Maximum number of names that are read from a file.
const MAX_NAMES: usize = 500;

/// The file of a directory that just or make reads, and its recipes.
pub(crate) fn recipes(
    view: &dyn ProjectView,
    directory: &str,
    files: &[&str],
) -> Option<(String, Vec<String>)> {
    let file = files.iter().find(|file| view.exists(&join(directory, file)))?;
    let text = view.read(&join(directory, file))?;
    let names = text.lines().filter_map(recipe_name).take(MAX_NAMES).map(str::to_owned).collect();
    Some(((*file).to_owned(), names))
}

pub(crate) const JUST_FILES: &[&str] = &["justfile", "Justfile", ".justfile"];
pub(crate) const MAKE_FILES: &[&str] = &["GNUmakefile", "makefile", "Makefile"];

/// The name of `name args: dependencies`; assignments (`x := 1`, `x ::= 1`) and comments have none.
fn recipe_name(line: &str) -> Option<&str> {
    let (head, rest) = line.split_once(':')?;
    if rest.starts_with('=') || rest.starts_with(":=") || line.starts_with([' ', '\t', '#', '.']) {
        return None;
    }
    let name = head.split(' ').next()?.trim_start_matches('@');
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'.');
    (!name.is_empty() && !name.starts_with('-') && name.bytes().all(plain)).then_some(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn recipes_are_found_and_assignments_are_not() {
        let check = |line: &str, expected: Option<&str>| assert_eq!(recipe_name(line), expected, "{line}");
        check("test: build", Some("test"));
        check("test target='': build", Some("test"));
        check("@quiet:", Some("quiet"));
        check("X := 1", None);
        check("X ::= 1", None);
        check("\techo a:b", None);
        check(".PHONY: test", None);
        check("$(BIN): x", None);
        check("-evil: x", None);
    }
}
