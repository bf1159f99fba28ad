//! What is known of a tool before it is called: its names, its group, the policy it declares.

use crate::id::{RoleName, ToolName};
use crate::risk::Level;

/// Every name and alias that a rule or a role can speak about, also of tools that this version does not have: a
/// misspelt name would be a rule that never applies. Tools of other servers are called `server__tool`.
pub const NAMES: &[&str] = &[
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

/// Whether a pattern of a rule or role means any tool that there is or will be.
#[must_use]
pub fn is_known(pattern: &str) -> bool {
    pattern.contains("__") || NAMES.iter().any(|name| wildcard(pattern, name))
}

/// A family of tools that roles, skills and profiles speak about as one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Group {
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
    /// The machine.
    System,
    /// The web.
    Web,
    /// Notes of an agent.
    Memory,
    /// Tools of other servers.
    Mcp,
    /// Tools declared by a spec.
    Spec,
}

impl Group {
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

/// What a tool may do to files.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum FilesystemPolicy {
    /// Nothing.
    Deny,
    /// Look.
    Read,
    /// Make new ones.
    Write,
    /// Everything.
    ReadWrite,
}

/// A list of names that may be touched.
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
    /// Looks at files, touches nothing else.
    pub const READS_FILES: Self =
        Self { network: NamePolicy::Deny, filesystem: FilesystemPolicy::Read, secrets: NamePolicy::Deny };

    /// Looks at files and changes them, touches nothing else.
    pub const CHANGES_FILES: Self = Self {
        network: NamePolicy::Deny,
        filesystem: FilesystemPolicy::ReadWrite,
        secrets: NamePolicy::Deny,
    };

    /// Asks servers, touches nothing else.
    pub const ASKS_SERVERS: Self =
        Self { network: NamePolicy::Allow, filesystem: FilesystemPolicy::Deny, secrets: NamePolicy::Deny };

    /// As a JSON object, for the timeline.
    #[must_use]
    pub fn words(&self) -> String {
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
        let words = serde_json::json!(
            {"network": names(&self.network), "filesystem": filesystem, "secrets": names(&self.secrets)});
        words.to_string()
    }
}

/// A tool as the decisions see it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct ToolFacts {
    /// Its canonical name.
    pub name: ToolName,
    /// Its other names.
    pub aliases: &'static [&'static str],
    /// Its family.
    pub group: Group,
    /// The policy it declares.
    pub policy: ToolPolicy,
    /// The one role that may use it, where a section of the requirements says so.
    pub required_role: Option<RoleName>,
    /// The least risk that any call of it has.
    pub risk: Level,
    /// Whether it only looks.
    pub read_only: bool,
}

impl ToolFacts {
    /// Whether one of the patterns means this tool; no pattern means every tool.
    #[must_use]
    pub fn is_meant_by_any(&self, patterns: &[String]) -> bool {
        patterns.is_empty() || patterns.iter().any(|pattern| self.is_meant_by(pattern))
    }

    /// Whether a name, alias, `group:NAME` or glob over names means this tool.
    #[must_use]
    pub fn is_meant_by(&self, pattern: &str) -> bool {
        if let Some(group) = pattern.strip_prefix("group:") {
            return group == self.group.as_str();
        }
        std::iter::once(self.name.as_str())
            .chain(self.aliases.iter().copied())
            .any(|name| wildcard(pattern, name))
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
    fn wildcards() {
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
