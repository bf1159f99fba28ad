//! A project in a temporary directory, and short methods to read, list and search it.

use std::path::{Path, PathBuf};

use vambrace_core::blocked_paths::BlockList;
use vambrace_core::path::{AskedPath, ScopedPath};
use vambrace_core::{CallError, ErrorCode};
use vambrace_workspace::{
    Content, DirectoryListing, Isolation, ListRequest, ReadRequest, ScopeRules, SearchMode, SearchRequest,
    SearchResult, Workspace,
};

/// Content outside the project that must never be returned.
pub(crate) const CANARY: &str = "CANARY-outside-content";

pub(crate) struct TestProject {
    pub(crate) home: tempfile::TempDir,
    pub(crate) project: PathBuf,
}

impl TestProject {
    /// An empty project beside a directory `outside` that holds the canary.
    pub(crate) fn new() -> Self {
        let home = tempfile::tempdir().unwrap();
        let project = home.path().join("project");
        std::fs::create_dir(&project).unwrap();
        let tree = Self { home, project };
        std::fs::create_dir(tree.outside()).unwrap();
        std::fs::write(tree.outside().join("secret.txt"), format!("{CANARY}\n")).unwrap();
        tree
    }

    pub(crate) fn outside(&self) -> PathBuf {
        self.home.path().join("outside")
    }

    pub(crate) fn at(&self, path: &str) -> PathBuf {
        self.project.join(path)
    }

    pub(crate) fn file(&self, path: &str, content: impl AsRef<[u8]>) -> &Self {
        std::fs::create_dir_all(self.at(path).parent().unwrap()).unwrap();
        std::fs::write(self.at(path), content).unwrap();
        self
    }

    pub(crate) fn link(&self, path: &str, target: impl AsRef<Path>) -> &Self {
        std::fs::create_dir_all(self.at(path).parent().unwrap()).unwrap();
        std::os::unix::fs::symlink(target, self.at(path)).unwrap();
        self
    }

    pub(crate) fn open(&self) -> TestWorkspace {
        self.open_as("", Isolation::Strict)
    }

    pub(crate) fn open_as(&self, service: &str, isolation: Isolation) -> TestWorkspace {
        let block = BlockList::with_defaults(&["config/prod/"]).unwrap();
        let rules = ScopeRules { isolation, ..ScopeRules::new(service, block) };
        TestWorkspace(Workspace::open(&self.project, rules).unwrap())
    }
}

/// A workspace whose methods take path text.
pub(crate) struct TestWorkspace(pub(crate) Workspace);

impl TestWorkspace {
    pub(crate) fn read(&self, asked: &str) -> Result<String, CallError> {
        match self.0.read(&path(asked), &ReadRequest::default())?.content {
            Content::Text(text) => Ok(text),
            Content::Binary(_) => panic!("binary"),
        }
    }

    #[track_caller]
    pub(crate) fn check_read(&self, asked: &str, expected: Result<&str, ErrorCode>) {
        let got = self.read(asked);
        let got = got.as_deref().map_err(|error| error.code);
        assert_eq!(got, expected, "reading `{asked}`");
    }

    pub(crate) fn list_with(
        &self,
        asked: &str,
        request: &ListRequest,
    ) -> Result<DirectoryListing, CallError> {
        Ok(self.0.list(&path(asked), request)?)
    }

    /// `path:type:size`, in order.
    pub(crate) fn list(&self, asked: &str, recursive: bool, pattern: Option<&str>) -> Vec<String> {
        let pattern = pattern.map(str::to_owned);
        let request = ListRequest { recursive, pattern, ..ListRequest::default() };
        let listing = self.list_with(asked, &request).unwrap();
        listing.files.iter().map(|e| format!("{}:{}:{}", e.path, e.kind.as_str(), e.size)).collect()
    }

    pub(crate) fn search_with(
        &self,
        asked: &str,
        request: &SearchRequest,
    ) -> Result<SearchResult, CallError> {
        Ok(self.0.search(&path(asked), request)?)
    }

    /// `path:line:column:text`, in order.
    pub(crate) fn search(&self, asked: &str, regex: &str) -> Vec<String> {
        let result = self.search_with(asked, &lines(regex)).unwrap();
        let show =
            |m: &vambrace_workspace::LineMatch| format!("{}:{}:{}:{}", m.path, m.line, m.column, m.text);
        result.matches.iter().map(show).collect()
    }

    pub(crate) fn count(&self, asked: &str, regex: &str) -> (u64, u64) {
        let request = SearchRequest { mode: SearchMode::Count, ..lines(regex) };
        let result = self.search_with(asked, &request).unwrap();
        (result.total, result.files)
    }
}

pub(crate) fn lines(regex: &str) -> SearchRequest {
    // Generous: time is not tested here.
    let regex_budget = std::time::Duration::from_secs(10);
    SearchRequest { regex: regex.to_owned(), context_lines: 0, regex_budget, ..Default::default() }
}

pub(crate) fn path(asked: &str) -> ScopedPath {
    AskedPath::new(asked).parse().unwrap()
}

pub(crate) fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}
