//! What a run printed and where it ran: the input of every report reader.

use std::borrow::Cow;

use crate::bounded_text::without_escapes;

/// Maximum size of a stream or a report file that is read, in bytes. Larger ones are read from their end, where the
/// summaries are.
const MAX_READ_BYTES: usize = 16 * 1024 * 1024;

/// What a program left behind.
#[derive(Debug, Clone, Copy, Default)]
pub struct RunOutput<'a> {
    /// Standard output.
    pub stdout: &'a str,
    /// Standard error.
    pub stderr: &'a str,
    /// Exit code; `None` if a signal or the deadline ended it.
    pub exit_code: Option<i32>,
    /// Content of the plan's `report_file`, if it was written.
    pub report: Option<&'a str>,
    /// Whether the caller cut the streams.
    pub truncated: bool,
}

impl RunOutput<'_> {
    pub(crate) fn clean(&self) -> PlainOutput<'_> {
        PlainOutput {
            stdout: without_escapes(tail(self.stdout)),
            stderr: without_escapes(tail(self.stderr)),
            report: self.report.filter(|report| report.len() <= MAX_READ_BYTES),
            exit_code: self.exit_code,
            truncated: self.truncated
                || [self.stdout, self.stderr].iter().any(|text| text.len() > MAX_READ_BYTES),
        }
    }
}

fn tail(text: &str) -> &str {
    let mut start = text.len().saturating_sub(MAX_READ_BYTES);
    while !text.is_char_boundary(start) {
        start += 1;
    }
    text.split_at(start).1
}

/// Output without terminal sequences.
#[derive(Debug)]
pub(crate) struct PlainOutput<'a> {
    pub(crate) stdout: Cow<'a, str>,
    pub(crate) stderr: Cow<'a, str>,
    pub(crate) report: Option<&'a str>,
    pub(crate) exit_code: Option<i32>,
    pub(crate) truncated: bool,
}

impl PlainOutput<'_> {
    /// The lines of standard output, then those of standard error.
    pub(crate) fn lines(&self) -> impl Iterator<Item = &str> {
        self.stdout.lines().chain(self.stderr.lines())
    }
}

/// Where the program ran. Turns a path that it printed into a path of the service.
#[derive(Debug, Clone, Copy)]
pub struct RunLocation<'a> {
    /// Absolute path of the service root, as the program sees it.
    pub root: &'a str,
    /// Working directory, relative to the service root; `""` for the root.
    pub directory: &'a str,
}

impl RunLocation<'_> {
    /// The path relative to the service root; `None` if it lies outside, or in the dependencies.
    pub(crate) fn service_path(&self, printed: &str) -> Option<String> {
        let printed = printed.strip_prefix("file://").unwrap_or(printed);
        let root = self.root.trim_end_matches('/');
        let relative = match printed.strip_prefix(root) {
            Some(rest) if printed.starts_with('/') => rest.strip_prefix('/')?.to_owned(),
            _ if printed.is_empty() || printed.starts_with('/') => return None,
            _ if self.directory.is_empty() => printed.to_owned(),
            _ => format!("{}/{printed}", self.directory),
        };
        let mut names: Vec<&str> = Vec::new();
        for name in relative.split('/') {
            match name {
                "" | "." => {}
                ".." => drop(names.pop()?),
                name => names.push(name),
            }
        }
        let foreign = |name: &&str| {
            matches!(*name, "node_modules" | "site-packages" | ".venv" | "dist-packages")
                || name.starts_with('<')
                || name.starts_with("node:")
        };
        let valid = !names.is_empty() && relative.len() <= 4096 && !names.iter().any(foreign);
        valid.then(|| names.join("/"))
    }

    /// The file and line of a printed `file:line` or `file:line:column`.
    pub(crate) fn code_position(&self, printed: &str) -> Option<(String, u32)> {
        let (file, line) = split_position(printed)?;
        Some((self.service_path(file)?, line))
    }
}

/// Splits `file:line` and `file:line:column`.
pub(crate) fn split_position(printed: &str) -> Option<(&str, u32)> {
    let (rest, last) = printed.trim().trim_end_matches(':').rsplit_once(':')?;
    let last: u32 = last.parse().ok()?;
    let (file, line) = match rest.rsplit_once(':') {
        Some((file, line)) if !file.is_empty() => line.parse().map_or((rest, last), |line| (file, line)),
        _ => (rest, last),
    };
    (!file.is_empty()).then_some((file, line))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn printed_paths_become_paths_of_the_service() {
        let check = |printed: &str, expected: Option<&str>| {
            let at = RunLocation { root: "/srv/project", directory: "web" };
            assert_eq!(at.service_path(printed).as_deref(), expected, "{printed}");
        };
        check("/srv/project/web/a.js", Some("web/a.js"));
        check("file:///srv/project/a.js", Some("a.js"));
        check("src/a.js", Some("web/src/a.js"));
        check("../api/./b.py", Some("api/b.py"));
        check("../../etc/passwd", None);
        check("/etc/passwd", None);
        check("/srv/project2/a.js", None);
        check("node_modules/x/y.js", None);
        check("node:internal/timers", None);
        check("", None);
    }

    #[test]
    fn positions_are_split_from_the_right() {
        assert_eq!(split_position("src/lib.rs:15:9"), Some(("src/lib.rs", 15)));
        assert_eq!(split_position("src/lib.rs:15:9:"), Some(("src/lib.rs", 15)));
        assert_eq!(split_position("a.py:3"), Some(("a.py", 3)));
        assert_eq!(split_position("node:events:4:5"), Some(("node:events", 4)));
        assert_eq!(split_position("a.py"), None);
        assert_eq!(split_position(":3"), None);
        assert_eq!(split_position("a:99999999999"), None);
    }
}
