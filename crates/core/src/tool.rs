//! Descriptors of tools: names, group, and the policy that a tool declares.

use crate::id::{RoleName, ToolName};
use crate::risk::RiskLevel;

/// Names and aliases that no declared tool can take, including those of tools that this version does not have. A rule or
/// role may use them, the names in the catalogue, and `server__tool` for tools of other servers.
pub(crate) const RESERVED_TOOL_NAMES: &[&str] = &[
    "read_file",
    "file.read",
    "tool_read_file",
    "list_files",
    "file.list",
    "list_directory",
    "tool_list_directory",
    "search_file",
    "count_matches",
    "write_file",
    "file.write",
    "tool_write_file",
    "edit_file",
    "file.edit",
    "apply_patch",
    "file.patch",
    "delete_file",
    "file.delete",
    "run_test",
    "run_lint",
    "execute_command",
    "tool_execute_command",
    "sandbox_run",
    "shell_exec",
    "shell.exec",
    "process_start",
    "process_kill",
    "process_output",
    "process_list",
    "process.start",
    "process.kill",
    "process.output",
    "process.list",
    "git_status",
    "git_diff",
    "git_log",
    "git_show",
    "git_add",
    "git_commit",
    "git_checkout",
    "git_push",
    "install_dependencies",
    "search_knowledge",
    "find_usage",
    "get_related_tests",
    "get_system_map",
    "get_task_context",
    "rag_search_knowledge",
    "rag_find_usage",
    "rag_get_related_tests",
    "rag_get_system_map",
    "rag_get_task_context",
    "install_package",
    "verify_binary",
    "system_ctl",
    "migrate_config",
    "web_fetch",
    "web.fetch",
    "web_search",
    "web.search",
    "memory_get",
    "memory_put",
    "memory_search",
    "memory.get",
    "memory.put",
    "memory.search",
    "http",
    "rest",
    "auth",
    "api-auth",
    "storage",
    "input",
    "output",
    "logger",
    "conditional",
    "loop",
    "transform",
    "validate-data",
];

/// Whether a pattern of a rule or role matches a reserved name or can match a tool of another server.
#[must_use]
pub(crate) fn is_reserved(pattern: &str) -> bool {
    pattern.contains("__") || RESERVED_TOOL_NAMES.iter().any(|name| wildcard(pattern, name))
}

/// Where the work of a call runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ExecutionEnvironment {
    /// In the broker's own process.
    #[default]
    InProcess,
    /// In the kernel sandbox.
    Sandbox,
}

impl ExecutionEnvironment {
    /// The word in results and records.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::InProcess => "in_process",
            Self::Sandbox => "sandbox",
        }
    }
}

/// A group of tools that roles, skills and profiles can name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum ToolGroup {
    /// Files.
    Fs,
    /// Programs.
    Shell,
    /// Long-running programs.
    Process,
    /// Version control.
    Git,
    /// Index and search.
    Knowledge,
    /// Administration of the machine.
    System,
    /// The web.
    Web,
    /// Persistent notes of an agent.
    Memory,
    /// Tools of other servers.
    Mcp,
    /// Tools declared by a spec file.
    Spec,
}

impl ToolGroup {
    /// The word after `group:`.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Fs => "fs",
            Self::Shell => "shell",
            Self::Process => "process",
            Self::Git => "git",
            Self::Knowledge => "knowledge",
            Self::System => "system",
            Self::Web => "web",
            Self::Memory => "memory",
            Self::Mcp => "mcp",
            Self::Spec => "spec",
        }
    }
}

/// What a tool may do with files.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum FilesystemPolicy {
    /// Nothing.
    Deny,
    /// Read them.
    Read,
    /// Create new ones.
    Write,
    /// Everything.
    ReadWrite,
}

/// Which names (hosts, secret scopes) a tool may use.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum NamePolicy {
    /// None.
    Deny,
    /// All.
    Allow,
    /// Those that match one of the patterns.
    Only(Vec<String>),
}

/// The policy that a tool declares for itself.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct ToolPolicy {
    /// Hosts.
    pub network: NamePolicy,
    /// Files.
    pub filesystem: FilesystemPolicy,
    /// Secrets.
    pub secrets: NamePolicy,
}

impl ToolPolicy {
    /// Reads files; no network, no secrets.
    pub const READ_FILES: Self =
        Self { network: NamePolicy::Deny, filesystem: FilesystemPolicy::Read, secrets: NamePolicy::Deny };

    /// Reads and changes files; no network, no secrets.
    pub const EDIT_FILES: Self = Self {
        network: NamePolicy::Deny,
        filesystem: FilesystemPolicy::ReadWrite,
        secrets: NamePolicy::Deny,
    };

    /// Uses the network; no files, no secrets.
    pub const USE_NETWORK: Self =
        Self { network: NamePolicy::Allow, filesystem: FilesystemPolicy::Deny, secrets: NamePolicy::Deny };

    /// As a JSON object, for the timeline.
    #[must_use]
    pub fn to_json_text(&self) -> String {
        let names = |policy: &NamePolicy| match policy {
            NamePolicy::Deny => "deny".into(),
            NamePolicy::Allow => "allow".into(),
            NamePolicy::Only(names) => serde_json::json!({"allow": names}),
        };
        let filesystem = match self.filesystem {
            FilesystemPolicy::Deny => "deny",
            FilesystemPolicy::Read => "read",
            FilesystemPolicy::Write => "write",
            FilesystemPolicy::ReadWrite => "readwrite",
        };
        let json = serde_json::json!(
            {"network": names(&self.network), "filesystem": filesystem, "secrets": names(&self.secrets)});
        json.to_string()
    }
}

/// A tool as policy sees it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct ToolDescriptor {
    /// The canonical name.
    pub name: ToolName,
    /// Other names.
    pub aliases: Vec<String>,
    /// The group.
    pub group: ToolGroup,
    /// The policy it declares.
    pub policy: ToolPolicy,
    /// The only role that may use it, if the requirements name one.
    pub required_role: Option<RoleName>,
    /// The minimum risk of its calls.
    pub risk: RiskLevel,
    /// Whether it changes nothing.
    pub read_only: bool,
}

impl ToolDescriptor {
    /// Whether one of the patterns matches this tool; an empty list matches every tool.
    #[must_use]
    pub(crate) fn matches_any_pattern(&self, patterns: &[String]) -> bool {
        patterns.is_empty() || patterns.iter().any(|pattern| self.matches_pattern(pattern))
    }

    /// Whether a name, alias, `group:NAME` or glob over names matches this tool.
    #[must_use]
    pub fn matches_pattern(&self, pattern: &str) -> bool {
        if let Some(group) = pattern.strip_prefix("group:") {
            return group == self.group.as_str();
        }
        self.names().any(|name| wildcard(pattern, name))
    }

    /// The canonical name, then the aliases.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        std::iter::once(self.name.as_str()).chain(self.aliases.iter().map(String::as_str))
    }
}

/// Matches `*` (any run of characters) in a name pattern. Linear in the text for each star.
#[must_use]
pub fn wildcard(pattern: &str, text: &str) -> bool {
    let mut parts = pattern.split('*');
    let Some(rest) = parts.next().and_then(|first| text.strip_prefix(first)) else {
        return false;
    };
    let mut parts = parts.peekable();
    if parts.peek().is_none() {
        return rest.is_empty();
    }
    let mut rest = rest;
    while let Some(part) = parts.next() {
        if parts.peek().is_none() {
            return rest.ends_with(part);
        }
        match rest.split_once(part) {
            Some((_, after)) => rest = after,
            None => return false,
        }
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn star_matches_any_run_of_characters() {
        for (pattern, text, expected) in [
            ("*", "", true),
            ("*", "abc", true),
            ("a*", "abc", true),
            ("a*c", "abc", true),
            ("a*b*c", "a-b-c", true),
            ("a*b*c", "acb", false),
            ("abc", "abc", true),
            ("abc", "abcd", false),
            ("*bc", "abc", true),
            ("", "", true),
            ("", "a", false),
            ("ab*ba", "aba", false),
            ("AWS_*", "AWS_REGION", true),
        ] {
            assert_eq!(wildcard(pattern, text), expected, "{pattern} {text}");
        }
    }
}
