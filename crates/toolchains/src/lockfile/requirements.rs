//! Requirements files of pip in which every requirement has hashes. Such a file pins its packages as a lockfile does; any
//! other is refused.

use super::{HostCollector, LockfileProblemKind};
use crate::bounded_text::clip;
use crate::project_view::{ProjectView, parent};
use crate::run_output::RunLocation;

/// Maximum number of files that include each other.
const MAX_FILES: usize = 20;
/// Maximum number of reported lines without a hash.
const MAX_REPORTED: usize = 5;

/// Why a requirements file is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RequirementsError {
    /// Requirements without hashes.
    #[error("{count} requirements have no sha256 hash: {}", examples.join(", "))]
    Unhashed {
        /// How many.
        count: u64,
        /// The first few, as `file:line requirement`.
        examples: Vec<String>,
    },
    /// An included file is missing or outside of the service.
    #[error("`{file}` includes `{included}`, which is not a file of the service")]
    BadInclude {
        /// The file.
        file: String,
        /// What it includes.
        included: String,
    },
    /// Too many files.
    #[error("more than {MAX_FILES} requirements files include each other")]
    TooManyFiles,
}

/// Reads a requirements file and what it includes; whether it names an index of its own.
pub(crate) fn read(
    view: &dyn ProjectView,
    path: &str,
    collector: &mut HostCollector,
) -> Result<bool, RequirementsError> {
    let mut reader =
        RequirementsReader { view, collector, own_index: false, unhashed: 0, examples: Vec::new() };
    let mut files = vec![path.to_owned()];
    let mut next = 0;
    while let Some(file) = files.get(next).cloned() {
        next += 1;
        for included in reader.read_file(&file)? {
            if !files.contains(&included) {
                files.push(included);
            }
        }
        if files.len() > MAX_FILES {
            return Err(RequirementsError::TooManyFiles);
        }
    }
    match reader.unhashed {
        0 => Ok(reader.own_index),
        count => Err(RequirementsError::Unhashed { count, examples: reader.examples }),
    }
}

struct RequirementsReader<'a> {
    view: &'a dyn ProjectView,
    collector: &'a mut HostCollector,
    own_index: bool,
    unhashed: u64,
    examples: Vec<String>,
}

impl RequirementsReader<'_> {
    /// Reads one file; the files that it includes.
    fn read_file(&mut self, file: &str) -> Result<Vec<String>, RequirementsError> {
        let bad = |included: &str| RequirementsError::BadInclude {
            file: file.to_owned(),
            included: clip(included, 200),
        };
        let text = self.view.read(file).ok_or_else(|| bad(file))?;
        self.collector.file(file);
        let mut included = Vec::new();
        for (number, line) in logical_lines(&text) {
            let (word, rest) = line.split_once([' ', '=', '\t']).unwrap_or((&line, ""));
            let rest = rest.trim_start_matches(['=', ' ', '\t']).trim();
            // `-rfile` is `-r file`.
            let (word, rest) = match word.get(..2) {
                Some(short @ ("-r" | "-c" | "-i" | "-f" | "-e")) if word.len() > 2 => {
                    (short, word.get(2..).unwrap_or_default())
                }
                _ => (word, rest),
            };
            match word {
                "-r" | "--requirement" => {
                    included.push(included_path(self.view, file, rest).ok_or_else(|| bad(rest))?)
                }
                // Constraints install nothing.
                "-c" | "--constraint" => drop(included_path(self.view, file, rest).ok_or_else(|| bad(rest))?),
                "-i" | "--index-url" | "--pypi-url" => {
                    self.own_index = true;
                    self.collector.url(rest, word);
                }
                "--no-index" => self.own_index = true,
                "--extra-index-url" => self.collector.url(rest, word),
                "-f" | "--find-links" => self.collector.location(rest, word),
                "--trusted-host" => {
                    let detail = format!("certificates of `{}` are not checked", clip(rest, 100));
                    self.collector.problem(LockfileProblemKind::WeakenedChecks, word, detail);
                }
                "--no-binary" => {
                    let detail = "source packages run code when they are built";
                    self.collector.problem(LockfileProblemKind::RunsCode, word, detail);
                }
                "-e" | "--editable" => self.report(file, number, &line),
                word if word.starts_with('-') => {}
                _ => self.requirement(file, number, &line),
            }
        }
        Ok(included)
    }

    fn requirement(&mut self, file: &str, number: usize, line: &str) {
        self.collector.package();
        if !has_hash(line) {
            self.report(file, number, line);
        }
        let requirement = line.split(" --").next().unwrap_or(line).trim();
        let name =
            requirement.split(['=', '<', '>', '~', '!', ' ', '[', ';', '@']).next().unwrap_or_default();
        if let Some((_, location)) = requirement.split_once(" @ ") {
            self.collector.location(location.split(" ;").next().unwrap_or_default().trim(), name);
        } else if requirement.contains("://") || requirement.starts_with(['.', '/']) {
            self.collector.location(requirement, requirement);
        }
    }

    fn report(&mut self, file: &str, number: usize, line: &str) {
        self.unhashed += 1;
        if self.examples.len() < MAX_REPORTED {
            // Without options and URLs: they may contain a credential.
            let shown = line.split([' ', '@', ';']).find(|word| !word.is_empty() && !word.starts_with('-'));
            let shown = shown.filter(|word| !word.contains("://")).unwrap_or("a URL");
            self.examples.push(format!("`{file}:{number} {}`", clip(shown, 60)));
        }
    }
}

/// Whether a line has a strong hash.
fn has_hash(line: &str) -> bool {
    line.split(" --hash").skip(1).any(|rest| {
        let value = rest.trim_start_matches(['=', ' ']);
        value.split_once(':').is_some_and(|(algorithm, digest)| {
            let digits = digest.bytes().take_while(u8::is_ascii_hexdigit).count();
            matches!((algorithm, digits), ("sha256", 64) | ("sha384", 96) | ("sha512", 128))
        })
    })
}

/// The path of an included file, relative to the including one.
fn included_path(view: &dyn ProjectView, file: &str, included: &str) -> Option<String> {
    let at = RunLocation { root: "/", directory: parent(file) };
    let included = included.trim_matches(['"', '\'']);
    let path =
        at.service_path(included).filter(|_| !included.starts_with('/') && !included.contains("://"))?;
    (view.exists(&path) && !view.is_directory(&path)).then_some(path)
}

/// Lines with their number, without comments, with continued lines joined.
fn logical_lines(text: &str) -> Vec<(usize, String)> {
    let mut lines = Vec::new();
    let mut open: Option<(usize, String)> = None;
    for (number, line) in (1_usize..).zip(text.lines()) {
        let comment = line.trim_start().starts_with('#');
        let (part, continued) = match line.strip_suffix('\\') {
            Some(part) if !comment => (part, true),
            _ if comment => ("", false),
            _ => (line, false),
        };
        let part = part.split(" #").next().unwrap_or_default().trim();
        let (_, joined) = open.get_or_insert_with(|| (number, String::new()));
        if !joined.is_empty() && !part.is_empty() {
            joined.push(' ');
        }
        joined.push_str(part);
        if !continued {
            lines.extend(open.take());
        }
    }
    lines.extend(open);
    lines.retain(|(_, line)| !line.is_empty());
    lines
}
