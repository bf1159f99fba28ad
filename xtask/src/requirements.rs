//! `docs/requirements.md` and `docs/threats.md`: which tests show which requirement.
//!
//! A test cites requirements in a comment directly above it: `// T9`, `// T12, T13: every denial has its code`. Only tests count; a
//! function is one by its attribute or by its place (a file below `tests/`, a `tests.rs`, a `mod tests`). The lists of tests in both
//! documents are generated from these comments; headings and texts of `docs/requirements.md` are written by hand and kept.
//! Documentation comments may mention ids; an unknown id is an error there, too.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
};

use crate::{
    error::{TaskError, TaskResult, WithContext},
    sources,
};

pub(crate) const REQUIREMENTS: &str = "docs/requirements.md";
pub(crate) const THREATS: &str = "docs/threats.md";

/// Where ids are cited and mentioned.
const SOURCE_DIRS: [&str; 5] = ["crates", "tests", "xtask", "benches", "fuzz"];
/// Lines between a citation and the function it belongs to, at most.
const MAX_LINES_TO_FUNCTION: usize = 8;

/// Attacks by subject, and the requirements whose tests try them.
const SUBJECTS: &[(&str, &[&str])] = &[
    ("Paths, symlinks, races", &["T12", "T13", "B4"]),
    ("Searches and patterns that burn time", &["T10", "T11"]),
    ("Policy, roles, configuration that comes with a project", &["T4", "T5", "T24", "P11", "S1", "S2", "S3"]),
    ("Approvals and who may decide", &["A6", "A7", "A8", "A12", "B2", "B3", "B7", "T25"]),
    ("Edits, patches, applying", &["T7", "T8", "T9", "A2", "A5"]),
    ("Secrets in what leaves", &["T21", "S11"]),
    ("Content that poses as instructions", &["S8", "S9"]),
    ("Floods and violations", &["T22", "T23"]),
    ("The ledger", &["B5"]),
    ("Programs in the sandbox", &["P4", "P5", "P6", "P12", "S4"]),
    ("The network of a program", &["P2", "P3", "S13"]),
];

/// One test that cites a requirement.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct CitingTest {
    file: PathBuf,
    name: String,
}

/// Tests by requirement id.
type Citations = BTreeMap<String, BTreeSet<CitingTest>>;

/// The documents as they should be, each with its path.
pub(crate) fn documents(root: &Path) -> TaskResult<[(&'static str, String); 2]> {
    let written =
        fs::read_to_string(root.join(REQUIREMENTS)).when(|| format!("cannot read `{REQUIREMENTS}`"))?;
    let mut citations = Citations::new();
    let known = statuses(&written);
    for file in sources::rust_files(root, &SOURCE_DIRS)? {
        let text =
            fs::read_to_string(root.join(&file)).when(|| format!("cannot read `{}`", file.display()))?;
        check_mentions(&known, &file, &text)?;
        for (ids, name) in cited(&text, sources::is_test_file(&file)) {
            for id in ids {
                let test = CitingTest { file: file.clone(), name: name.clone() };
                citations.entry(id).or_default().insert(test);
            }
        }
    }
    check_coverage(&known, &citations)?;
    Ok([(REQUIREMENTS, with_tests(&written, &citations)), (THREATS, threats(&citations))])
}

/// An unknown id in a comment is an error: anywhere in a documentation comment, at the beginning of another one.
fn check_mentions(known: &BTreeMap<String, String>, file: &Path, text: &str) -> TaskResult<()> {
    for (at, line) in text.lines().enumerate() {
        if let Some(id) = mentioned_ids(line).iter().find(|id| !known.contains_key(*id)) {
            return Err(TaskError::new(format!(
                "unknown requirement `{id}` in `{}`, line {}",
                file.display(),
                at + 1
            ))
            .hint(format!("add it to `{REQUIREMENTS}` or correct the comment")));
        }
    }
    Ok(())
}

/// A status that does not exist, or a done requirement without a test, is an error.
fn check_coverage(known: &BTreeMap<String, String>, citations: &Citations) -> TaskResult<()> {
    for (id, status) in known {
        if !["done", "partial", "open"].contains(&status.as_str()) {
            return Err(TaskError::new(format!("`{REQUIREMENTS}`: {id} has the status `{status}`"))
                .hint("use done, partial or open"));
        }
        if status == "done" && !citations.contains_key(id) {
            return Err(TaskError::new(format!(
                "`{REQUIREMENTS}`: {id} is marked done and no test cites it"
            ))
            .hint(format!("put `// {id}` above the test that shows it")));
        }
    }
    Ok(())
}

/// Ids and statuses from headings such as `### T9 (done)`.
fn statuses(written: &str) -> BTreeMap<String, String> {
    written.lines().filter_map(heading).map(|(id, status)| (id.to_owned(), status.to_owned())).collect()
}

fn heading(line: &str) -> Option<(&str, &str)> {
    let (id, status) = line.strip_prefix("### ")?.split_once(" (")?;
    Some((id, status.strip_suffix(')')?))
}

/// The document with its lists of tests written anew.
fn with_tests(written: &str, citations: &Citations) -> String {
    let mut document = String::new();
    let mut id = None;
    for line in written.lines().filter(|line| !line.starts_with("- `")) {
        if line.starts_with('#') {
            finish_section(&mut document, id, citations);
            id = heading(line).map(|(id, _)| id);
        }
        document.push_str(line);
        document.push('\n');
    }
    finish_section(&mut document, id, citations);
    while document.ends_with("\n\n") {
        document.pop();
    }
    document
}

fn finish_section(document: &mut String, id: Option<&str>, citations: &Citations) {
    let Some(tests) = id.and_then(|id| citations.get(id)) else { return };
    while document.ends_with("\n\n") {
        document.pop();
    }
    document.push('\n');
    for (file, names) in by_file(tests) {
        document.push_str(&format!("- `{}`: {}\n", file.display(), names.join(", ")));
    }
    document.push('\n');
}

fn by_file(tests: &BTreeSet<CitingTest>) -> BTreeMap<&Path, Vec<&str>> {
    let mut files: BTreeMap<&Path, Vec<&str>> = BTreeMap::new();
    for test in tests {
        files.entry(&test.file).or_default().push(&test.name);
    }
    files
}

fn threats(citations: &Citations) -> String {
    let mut document = String::from(
        "# Threats and the tests that try them\n\nGenerated by `cargo xtask generate` from the requirement ids above each test; the names of the tests say \
         what is tried and what must\nhappen. The model behind them is in [SECURITY.md](../SECURITY.md), the ids in [requirements.md](requirements.md).\n",
    );
    for (subject, ids) in SUBJECTS {
        let tests: BTreeSet<CitingTest> =
            ids.iter().filter_map(|id| citations.get(*id)).flatten().cloned().collect();
        document.push_str(&format!("\n## {subject}\n\n{} ({} tests)\n\n", ids.join(", "), tests.len()));
        for (file, names) in by_file(&tests) {
            document.push_str(&format!("`{}`\n\n", file.display()));
            for name in names {
                document.push_str(&format!("- {}\n", name.replace('_', " ")));
            }
            document.push('\n');
        }
        while document.ends_with("\n\n") {
            document.pop();
        }
    }
    document
}

/// Requirement ids in comments above tests, with the test's name.
fn cited(text: &str, is_test_file: bool) -> Vec<(Vec<String>, String)> {
    let lines: Vec<&str> = text.lines().collect();
    let mut found = Vec::new();
    let mut in_test_module = false;
    for (at, line) in lines.iter().enumerate() {
        in_test_module = match *line {
            "mod tests {" => true,
            "}" => false,
            _ => in_test_module,
        };
        let Some(comment) = line.trim_start().strip_prefix("// ") else { continue };
        let ids = leading_ids(comment);
        if ids.is_empty() {
            continue;
        }
        let next = lines.iter().enumerate().skip(at + 1).take(MAX_LINES_TO_FUNCTION);
        let function = next.filter_map(|(at, line)| Some((at, function_name(line)?))).next();
        if let Some((function, name)) = function
            && (is_test_file || in_test_module || has_test_attribute(&lines, function))
        {
            found.push((ids, name.to_owned()));
        }
    }
    found
}

/// Whether the function in a line is a test by an attribute above it.
fn has_test_attribute(lines: &[&str], function: usize) -> bool {
    let above = lines.get(..function).unwrap_or_default().iter().rev().map(|line| line.trim_start());
    above
        .take_while(|line| line.starts_with("#[") || line.starts_with("//"))
        .any(|line| line.starts_with("#[test]") || line.starts_with("#[tokio::test"))
}

/// Ids that a line mentions: all of a documentation comment, the leading ones of another comment.
fn mentioned_ids(line: &str) -> Vec<String> {
    let line = line.trim_start();
    match line.strip_prefix("///").or_else(|| line.strip_prefix("//!")) {
        Some(documentation) => documentation
            .split(|letter: char| !letter.is_alphanumeric() && letter != '_' && letter != '-')
            .filter(|word| is_id(word))
            .map(str::to_owned)
            .collect(),
        None => line.strip_prefix("// ").map(leading_ids).unwrap_or_default(),
    }
}

/// `T9, B3: text` has the ids T9 and B3. A comment that only mentions an id later cites nothing.
fn leading_ids(comment: &str) -> Vec<String> {
    comment
        .split([' ', ',', ':', ';', '.'])
        .filter(|word| !word.is_empty())
        .take_while(|word| is_id(word))
        .map(str::to_owned)
        .collect()
}

fn is_id(word: &str) -> bool {
    let mut letters = word.chars();
    let first = letters.next().is_some_and(|letter| "TAPBS".contains(letter));
    let digits = letters.as_str();
    first && (1..=2).contains(&digits.len()) && digits.chars().all(|digit| digit.is_ascii_digit())
}

fn function_name(line: &str) -> Option<&str> {
    let rest = line.trim_start();
    if rest.starts_with("//") {
        return None;
    }
    let (before, name) = rest.split_once("fn ")?;
    if !before.is_empty() && !before.ends_with(' ') {
        return None;
    }
    let end = name.find(['(', '<'])?;
    name.get(..end)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_citation_belongs_to_the_next_function() {
        let text = "// T9, B3: all or nothing\n#[test]\nfn edits_are_atomic() {}\n\n// A plain comment\nfn helper() {}\n";
        let expected = [(vec!["T9".to_owned(), "B3".to_owned()], "edits_are_atomic".to_owned())];
        assert_eq!(cited(text, false), expected);
    }

    #[test]
    fn only_tests_cite() {
        #[track_caller]
        fn check(text: &str, is_test_file: bool, expected: usize) {
            assert_eq!(cited(text, is_test_file).len(), expected, "{text}");
        }
        check("// T9\nfn apply() {}\n", false, 0);
        check("// T9\nfn trial() {}\n", true, 1);
        check("#[tokio::test]\n// T9\nasync fn test() {}\n", false, 1);
        check("#[test]\nfn test() {}\n\n// T9\nfn helper() {}\n", false, 0);
        check("mod tests {\n    // T9\n    fn case() {}\n}\n// T9\nfn apply() {}\n", false, 1);
    }

    #[test]
    fn unknown_ids_in_comments_are_errors() {
        #[track_caller]
        fn check(text: &str, is_known: bool) {
            let known = BTreeMap::from([("T1".to_owned(), "done".to_owned())]);
            assert_eq!(check_mentions(&known, Path::new("a.rs"), text).is_ok(), is_known, "{text}");
        }
        check("//! Reads a file (T1).\n/// P-256 and T1_x\n// see T99\n", true);
        check("//! Reads a file (T99).\n", false);
        check("    /// B8: limits\n", false);
        check("// T99\nfn x() {}\n", false);
    }

    #[test]
    fn lists_of_tests_are_replaced_and_texts_kept() {
        let tests = BTreeSet::from([CitingTest { file: "a.rs".into(), name: "x".into() }]);
        let citations = Citations::from([("T1".to_owned(), tests)]);
        let written = "# R\n\n### T1 (done)\n\nText.\n\n- `old.rs`: gone\n\n### T2 (open)\n\nMore.\n";
        let expected = "# R\n\n### T1 (done)\n\nText.\n\n- `a.rs`: x\n\n### T2 (open)\n\nMore.\n";
        assert_eq!(with_tests(written, &citations), expected);
        assert_eq!(with_tests(expected, &citations), expected);
    }

    #[test]
    fn uncovered_ids_and_unknown_statuses_are_errors() {
        let known = BTreeMap::from([("T1".to_owned(), "done".to_owned())]);
        assert!(check_coverage(&known, &Citations::new()).is_err());
        let tests = BTreeSet::from([CitingTest { file: "a.rs".into(), name: "x".into() }]);
        let cited = Citations::from([("T1".to_owned(), tests)]);
        assert!(check_coverage(&known, &cited).is_ok());
        let unknown = BTreeMap::from([("T1".to_owned(), "finished".to_owned())]);
        assert!(check_coverage(&unknown, &cited).is_err());
    }
}
