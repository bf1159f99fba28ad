//! The test runners that are detected and run.

/// A test runner.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum TestRunner {
    /// `cargo nextest run`.
    Nextest,
    /// `cargo test`.
    CargoTest,
    /// pytest.
    Pytest,
    /// Python's unittest.
    Unittest,
    /// vitest.
    Vitest,
    /// jest.
    Jest,
    /// `node --test`.
    NodeTest,
    /// The script `test` of `package.json`, by npm, pnpm or yarn.
    PackageScript,
    /// `go test`.
    GoTest,
    /// Gradle.
    Gradle,
    /// Maven.
    Maven,
    /// A recipe of a justfile.
    Just,
    /// A target of a makefile.
    Make,
    /// The configured command.
    Configured,
}

impl TestRunner {
    /// The name in results and messages.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Nextest => "cargo nextest",
            Self::CargoTest => "cargo test",
            Self::Pytest => "pytest",
            Self::Unittest => "unittest",
            Self::Vitest => "vitest",
            Self::Jest => "jest",
            Self::NodeTest => "node --test",
            Self::PackageScript => "package script",
            Self::GoTest => "go test",
            Self::Gradle => "gradle",
            Self::Maven => "maven",
            Self::Just => "just",
            Self::Make => "make",
            Self::Configured => "configured command",
        }
    }

    /// What a target of this runner looks like, for suggestions.
    #[must_use]
    pub fn target_forms(self) -> &'static str {
        match self {
            Self::Nextest | Self::CargoTest => {
                "a package, a file, or a test as `package::module::test` or `module::test`"
            }
            Self::Pytest => {
                "a file, a directory, `tests/test_x.py::TestClass::test_name`, or a part of a name"
            }
            Self::Unittest => "a file, a directory, or `package.module.TestClass.test_name`",
            Self::Vitest | Self::Jest | Self::NodeTest => {
                "a file, a directory, `path/to/x.test.ts::name of the test`, or a name"
            }
            Self::PackageScript => "a file or directory that the script passes on",
            Self::GoTest => "a package directory such as `pkg/calc`, `pkg/calc::TestAdd`, or a name",
            Self::Gradle | Self::Maven => "a test file, a class, or `Class.method`",
            Self::Just => "a recipe that begins with `test`",
            Self::Make => "a make target that begins with `test` or `check`",
            Self::Configured => "what the configured command takes",
        }
    }
}
