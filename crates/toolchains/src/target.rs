//! Targets of `run_test` and `run_lint`: text of an agent that becomes a path, a path with a test name, or a name.
//!
//! **Invariant.** No part of a target begins with a dash or contains a control character, so none can become an option;
//! a path lies in the service and exists. What a runner takes beyond that is checked where its arguments are built.

use vambrace_core::error::{CallError, ErrorCode};
use vambrace_core::path::{AskedPath, Zone};

use crate::bounded_text::clip;
use crate::project_view::{ProjectView, file_name, parent};

/// Maximum length of a target, in bytes.
const MAX_TARGET_BYTES: usize = 1000;
/// Suffixes of source files: a target that ends so is meant as a path.
const SOURCE_SUFFIXES: &[&str] = &[
    ".rs", ".py", ".js", ".mjs", ".cjs", ".jsx", ".ts", ".mts", ".cts", ".tsx", ".go", ".java", ".kt",
    ".kts", ".groovy", ".scala", ".sh", ".bash",
];

/// What to test or lint.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ToolTarget {
    /// Everything.
    All,
    /// A file or directory of the service, and perhaps a test in it.
    Path {
        /// The path, relative to the service root.
        path: String,
        /// The test.
        name: Option<String>,
    },
    /// A test, a package or a part of a name.
    Name(String),
}

/// Why a target is not taken.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TargetError {
    /// It would be an option.
    #[error("target `{0}` begins with a dash: options are not targets")]
    OptionLike(String),
    /// Control characters, whitespace at an end, or too long.
    #[error("target `{target}` {problem}")]
    Malformed {
        /// The target.
        target: String,
        /// What is wrong with it.
        problem: &'static str,
    },
    /// The path is outside of the service.
    #[error("{}", .0.message)]
    OutsideService(CallError),
    /// The path does not exist.
    #[error("target `{0}` does not exist in the service")]
    NotFound(String),
    /// The runner or linter does not take it.
    #[error("{tool} does not take the target `{target}`")]
    NotSupported {
        /// The runner or linter.
        tool: String,
        /// The target.
        target: String,
        /// What it takes.
        takes: String,
    },
}

impl TargetError {
    pub(crate) fn not_supported(tool: &str, target: &str, takes: impl Into<String>) -> Self {
        Self::NotSupported { tool: tool.to_owned(), target: clip(target, 200), takes: takes.into() }
    }

    /// What the caller can do.
    #[must_use]
    pub fn suggestion(&self) -> String {
        match self {
            Self::OptionLike(_) => {
                "give a path or a test name; a file whose name begins with a dash is `./-name`".to_owned()
            }
            Self::Malformed { .. } => "give a path or a test name on one line".to_owned(),
            Self::OutsideService(error) => error.suggestion.clone(),
            Self::NotFound(_) => {
                "check the path with list_files, or leave the target out to run everything".to_owned()
            }
            Self::NotSupported { takes, .. } => format!("it takes {takes}"),
        }
    }
}

impl From<TargetError> for CallError {
    fn from(error: TargetError) -> Self {
        match error {
            TargetError::OutsideService(error) => error,
            TargetError::NotFound(_) => {
                Self::new(ErrorCode::FileNotFound, error.to_string()).suggest(error.suggestion())
            }
            error => Self::new(ErrorCode::InvalidArguments, error.to_string()).suggest(error.suggestion()),
        }
    }
}

impl ToolTarget {
    /// Parses and checks a target.
    pub fn parse(text: &str, view: &dyn ProjectView) -> Result<Self, TargetError> {
        let malformed =
            |problem| TargetError::Malformed { target: clip(text, 200).escape_debug().to_string(), problem };
        if matches!(text, "" | "." | "./" | "./...") {
            return Ok(Self::All);
        }
        if text.len() > MAX_TARGET_BYTES {
            return Err(malformed("is longer than 1000 bytes"));
        }
        if text.chars().any(|c| c.is_control() || matches!(c, '\u{2028}' | '\u{2029}')) {
            return Err(malformed("contains a control character"));
        }
        if text.trim() != text {
            return Err(malformed("begins or ends with whitespace"));
        }
        if text.starts_with('-') || text.split("::").any(|part| part.starts_with('-')) {
            return Err(TargetError::OptionLike(clip(text, 200)));
        }
        // Go's notation for a directory and everything below it.
        let plain = text.strip_suffix("/...").unwrap_or(text);
        if let Some(target) = existing_path(plain, view)? {
            return Ok(target);
        }
        if let Some((path, name)) = text.split_once("::")
            && !name.trim().is_empty()
            && let Some(Self::Path { path, .. }) = existing_path(path, view)?
        {
            return Ok(Self::Path { path, name: Some(name.trim().to_owned()) });
        }
        let path = text.split("::").next().unwrap_or_default();
        let meant_as_path = path.starts_with("./")
            || SOURCE_SUFFIXES.iter().any(|suffix| path.ends_with(suffix))
            || (path.contains('/')
                && !path.contains(' ')
                && view.is_directory(path.split('/').next().unwrap_or_default()));
        if meant_as_path {
            return Err(TargetError::NotFound(clip(path, 200)));
        }
        Ok(Self::Name(text.to_owned()))
    }

    /// The directory in which the search for a toolchain begins.
    pub(crate) fn directory<'a>(&'a self, view: &dyn ProjectView) -> &'a str {
        match self {
            Self::All | Self::Name(_) => "",
            Self::Path { path, .. } if view.is_directory(path) => path,
            Self::Path { path, .. } => parent(path),
        }
    }

    /// The file name, if the target is or names a file.
    pub(crate) fn file_name(&self) -> Option<&str> {
        match self {
            Self::Path { path, .. } => Some(file_name(path)),
            _ => None,
        }
    }
}

/// The path, if it exists; `None` if it can be something else.
fn existing_path(text: &str, view: &dyn ProjectView) -> Result<Option<ToolTarget>, TargetError> {
    let outside = text.starts_with(['/', '~'])
        || text.starts_with("project:")
        || text.split('/').any(|name| name == "..");
    match AskedPath::new(text).parse() {
        Ok(path) if path.zone() == Zone::Service => {
            let path = path.relative().to_owned();
            if path.is_empty() {
                return Ok(Some(ToolTarget::All));
            }
            Ok(view.exists(&path).then_some(ToolTarget::Path { path, name: None }))
        }
        Ok(_) => Err(TargetError::OutsideService(
            CallError::new(
                ErrorCode::ScopeViolation,
                format!("target `{}` is outside of the service", clip(text, 200)),
            )
            .suggest("give a path relative to the service root"),
        )),
        Err(error) if outside => Err(TargetError::OutsideService(error)),
        Err(_) => Ok(None),
    }
}

/// Whether a text is safe inside a shell word of a script or recipe: no quotes, no expansion, no separators.
pub(crate) fn is_shell_safe(text: &str) -> bool {
    !text.starts_with('-')
        && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_./@:+-,=".contains(&byte))
}

/// A text with the special characters of regular expressions escaped.
pub(crate) fn regex_escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        if r"\.+*?()|[]{}^$/".contains(c) {
            out.push('\\');
        }
        out.push(c);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::project_view::tests::MemoryProject;
    use proptest::prelude::*;

    fn view() -> MemoryProject {
        MemoryProject::of_names(&["src/lib.rs", "tests/test_x.py", "pkg/calc/calc.go", "-odd.py"])
    }

    fn path(path: &str, name: Option<&str>) -> ToolTarget {
        ToolTarget::Path { path: path.to_owned(), name: name.map(str::to_owned) }
    }

    // T14
    #[test]
    fn targets_become_paths_and_names() {
        let check = |text: &str, expected: ToolTarget| {
            assert_eq!(ToolTarget::parse(text, &view()), Ok(expected), "{text}")
        };
        check("", ToolTarget::All);
        check(".", ToolTarget::All);
        check("./...", ToolTarget::All);
        check("src/lib.rs", path("src/lib.rs", None));
        check("./src//lib.rs", path("src/lib.rs", None));
        check("tests/test_x.py::TestA::test_b[x y]", path("tests/test_x.py", Some("TestA::test_b[x y]")));
        check("./pkg/calc/...", path("pkg/calc", None));
        check("pkg/calc::TestAdd", path("pkg/calc", Some("TestAdd")));
        check("module::test_name", ToolTarget::Name("module::test_name".to_owned()));
        check("adds two numbers", ToolTarget::Name("adds two numbers".to_owned()));
        check("TestTable/two", ToolTarget::Name("TestTable/two".to_owned()));
        check("./-odd.py", path("-odd.py", None));
    }

    // T14
    #[test]
    fn options_outside_paths_and_control_characters_are_refused() {
        let check = |text: &str, expected: &str| {
            let error = ToolTarget::parse(text, &view()).unwrap_err();
            assert!(error.to_string().contains(expected), "{text}: {error}");
            assert!(!error.suggestion().is_empty());
        };
        check("--config=evil", "begins with a dash");
        check("-odd.py", "begins with a dash");
        check("src/lib.rs::--exec", "begins with a dash");
        check("a\nb", "control character");
        check("a\0b", "control character");
        check(" a", "whitespace");
        check("/etc/passwd", "is absolute");
        check("../other", "contains `..`");
        check("src/../../other::test", "contains `..`");
        check("~/x", "starts with `~`");
        check("project:shared", "outside of the service");
        check("tests/missing.py", "does not exist");
        check("tests/missing.py::test_a", "does not exist");
        check("src/nothere", "does not exist");
        check(&"x".repeat(2000), "longer than");
        let call: CallError = ToolTarget::parse("../x", &view()).unwrap_err().into();
        assert_eq!(call.code, ErrorCode::ScopeViolation);
        let call: CallError = ToolTarget::parse("x.py", &view()).unwrap_err().into();
        assert_eq!(call.code, ErrorCode::FileNotFound);
    }

    proptest! {
        #[test]
        fn no_parsed_target_can_be_an_option(text in "(-|/|\\.|:|[a-z]| |tests/test_x.py|src|\u{0}|\n){0,20}") {
            match ToolTarget::parse(&text, &view()) {
                Ok(ToolTarget::Name(name)) => prop_assert!(!name.starts_with('-')),
                Ok(ToolTarget::Path { path, name }) => {
                    prop_assert!(view().exists(&path) && !path.starts_with('/') && !path.contains(".."));
                    prop_assert!(name.is_none_or(|name| !name.starts_with('-')));
                }
                Ok(ToolTarget::All) | Err(_) => {}
            }
        }
    }
}
