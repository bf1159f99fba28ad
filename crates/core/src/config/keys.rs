//! The key table: the single source for validation, for the JSON Schema, for the reference in `docs/configuration.md` and
//! for how layers combine. Parents come before their children.

use super::choice::{
    AuditSync, CommandApproval, Isolation, PackageInstall, Profile, SearchEngine, Tier, ViolationAction,
};
use super::key::BaseSetter::{AboveProject, AnyTrusted};
use super::key::Combine::{
    Cap, Collect, Floor, Inside, Intersect, Narrowest, NotFromProject, Own, Part, PerFile, Switch, Topmost,
    Union,
};
use super::key::Preset::{self, Unset};
use super::key::ValueKind::{
    AlwaysFalse, Argv, Bool, Bytes, Choice, Fraction, Int, Items, List, Mapping, Name, Named,
    NeverOffInProject, Path, Rates, Section, Text,
};
use super::key::{Combine, ConfigKey, Covers, ItemKind, KeyStatus, ValueKind};
use crate::blocked_paths::ALWAYS_BLOCKED;

/// The version of the layout that this program writes.
pub(crate) const LAYOUT_VERSION: u64 = 1;

/// The groups of tools that `group:NAME` can name.
pub(crate) const TOOL_GROUPS: &[&str] =
    &["fs", "web", "memory", "shell", "git", "process", "browser", "knowledge", "system", "mcp", "spec"];

/// Decisions of a rule ([`crate::rule::RuleDecision`]).
pub(crate) const DECISIONS: &[&str] = &["deny", "ask", "allow"];

/// Kinds of effects that a role can permit ([`crate::effect::EffectKind`]).
pub(crate) const PERMITS: &[&str] =
    &["read", "create", "modify", "delete", "execute", "connect", "secret", "system"];

/// Valid values of `audit.export.format`.
pub(crate) const EXPORT_FORMATS: &[&str] = &["jsonl", "ocsf", "cef", "otlp"];

/// Valid values of `network.terminate[].methods`.
pub(crate) const HTTP_METHODS: &[&str] = &["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"];

const MIB: u64 = 1024 * 1024;
const GIB: u64 = 1024 * MIB;
const DAY: u64 = 86_400;
const CANNOT_SWITCH_OFF: &str = "protection cannot be switched off from a project file";

const fn key(
    path: &'static str,
    kind: ValueKind,
    preset: Preset,
    combine: Combine,
    doc: &'static str,
) -> ConfigKey {
    ConfigKey { path, kind, preset, combine, status: KeyStatus::Used, doc }
}

/// A key of a later version.
const fn planned_key(
    path: &'static str,
    kind: ValueKind,
    preset: Preset,
    combine: Combine,
    doc: &'static str,
) -> ConfigKey {
    ConfigKey { path, kind, preset, combine, status: KeyStatus::NotAvailable, doc }
}

const fn older_key(path: &'static str, kind: ValueKind, to: &'static str, doc: &'static str) -> ConfigKey {
    ConfigKey { path, kind, preset: Unset, combine: Part, status: KeyStatus::Older(to), doc }
}

const fn int(min: u64, max: u64) -> ValueKind {
    Int { min, max }
}

const fn bytes(min: u64, max: u64) -> ValueKind {
    Bytes { min, max }
}

/// Every key of the current layout.
#[rustfmt::skip]
pub static KEYS: &[ConfigKey] = &[
    key("version", int(1, LAYOUT_VERSION), Preset::Int(LAYOUT_VERSION), Own, "version of this layout"),
    key("profile", Choice(Profile::NAMES), Preset::Text("coding"), Combine::Profile, "which tools a role has left: `coding` all of them; `readonly` reads and searches; `messaging` these, web and memory; `ci` like `coding`, without a person: calls that need approval are denied"),

    key("workspace", Section, Unset, Part, "which part of the project is in scope"),
    key("workspace.service_root", Path, Preset::Text("."), Inside, "directory of the service, relative to the project root"),
    key("workspace.isolation", Choice(Isolation::NAMES), Preset::Text("strict"), Narrowest(AnyTrusted), "`strict`: own service and shared paths; `shared`: sibling services can be read too"),
    key("workspace.shared_paths", List(ItemKind::Directory), Preset::List(&["shared/", "contracts/", "shared_contracts/", "docs/policies/"]), Intersect(Covers::Directory), "directories of the project root that are readable as `project:...`"),
    key("workspace.block", List(ItemKind::Block), Preset::List(ALWAYS_BLOCKED), Union, "names that agents can never read, list or search, at any depth; `.env.*` does not include names that end in `.example`, `.sample`, `.template`, `.dist` or `.defaults`"),
    key("workspace.create_in", List(ItemKind::CreateDirectory), Preset::List(&[".", "src/", "lib/", "tests/", "docs/", "scripts/"]), Intersect(Covers::Directory), "directories where new files are allowed; `.` is the root level only, `**` every directory"),
    key("workspace.delete_in", List(ItemKind::CreateDirectory), Preset::List(&[]), Intersect(Covers::Directory), "further directories where files may be deleted, in addition to those of `workspace.create_in`"),
    key("workspace.write_executables", Bool, Preset::Bool(false), Switch(false, AboveProject), "whether `.exe .bin .so .dll` files may be written, with HIGH risk"),

    key("limits", Section, Unset, Part, "limits of calls"),
    key("limits.read_bytes", bytes(1, 100 * MIB), Preset::Int(32_000), Cap, "bytes that a read returns by default"),
    key("limits.read_bytes_hard", bytes(1, 100 * MIB), Preset::Int(131_072), Cap, "maximum bytes that a read can request"),
    key("limits.write_bytes", bytes(1, 100 * MIB), Preset::Int(524_288), Cap, "maximum bytes of one written file"),
    key("limits.list_entries", int(1, 100_000), Preset::Int(1000), Cap, "maximum entries of one listing"),
    key("limits.output_bytes", bytes(1, 100 * MIB), Preset::Int(1_048_576), Cap, "maximum bytes of a command's output"),
    key("limits.regex_ms", int(1, 10_000), Preset::Int(100), Cap, "maximum milliseconds for a regular expression of an agent"),
    key("limits.command_sec", int(1, 3600), Preset::Int(30), Cap, "timeout of a command by default, in seconds"),
    key("limits.command_sec_hard", int(1, 3600), Preset::Int(300), Cap, "maximum timeout that a command can request, in seconds"),
    key("limits.fetch_bytes", bytes(1, 100 * MIB), Preset::Int(5 * MIB), Cap, "maximum bytes of a response that the web tools read"),
    key("limits.fetch_sec", int(1, 600), Preset::Int(30), Cap, "timeout of a request of the web tools, redirects included, in seconds"),
    key("limits.calls_per_minute", Rates, Unset, Cap, "maximum calls per minute of one tool in one session: a number, or a mapping of `default` and tools"),

    key("approvals", Section, Unset, Part, "approval requests"),
    key("approvals.medium_sec", int(1, DAY), Preset::Int(300), Cap, "seconds until a MEDIUM approval request expires"),
    key("approvals.high_sec", int(1, DAY), Preset::Int(600), Cap, "seconds until a HIGH approval request expires"),
    key("approvals.proposal_ttl_sec", int(1, DAY), Preset::Int(120), Cap, "seconds until a proposal expires if no call waits for it"),
    key("approvals.commands", Choice(CommandApproval::NAMES), Preset::Text("ask_first"), Narrowest(AnyTrusted), "request approval before a MEDIUM command runs, or run it speculatively and request approval of its effects"),
    key("approvals.grant_sec", int(1, DAY), Preset::Int(3600), Cap, "seconds until a grant for a class of calls or for a session expires"),
    key("approvals.flood_limit", int(1, 1000), Preset::Int(20), Cap, "unapproved requests of one session within a minute; one more suspends the session"),
    key("approvals.high", List(ItemKind::Block), Preset::List(&[]), Union, "further names whose change is HIGH risk, at any depth"),
    key("approvals.trusted_clients", List(ItemKind::Text), Preset::List(&[]), NotFromProject, "MCP clients, by the name they give, whose user can decide approval requests; never set by a project file"),
    key("approvals.rules", Items, Unset, PerFile, "rules for tools, paths and commands"),
    key("approvals.rules[].id", Name, Unset, Part, "a name for explanations"),
    key("approvals.rules[].tools", List(ItemKind::Tool), Unset, Part, "tools by name, with `*`, or as `group:NAME`"),
    key("approvals.rules[].paths", List(ItemKind::Glob), Unset, Part, "path globs"),
    key("approvals.rules[].commands", List(ItemKind::Text), Unset, Part, "commands by their first words"),
    key("approvals.rules[].decision", Choice(DECISIONS), Unset, Part, "what the rule decides"),
    key("approvals.rules[].reason", Text, Unset, Part, "reason, shown to the approver or with the denial"),
    key("approvals.rules[].match", List(ItemKind::Case), Unset, Part, "calls that the rule must match, checked when the file is loaded"),
    key("approvals.rules[].not_match", List(ItemKind::Case), Unset, Part, "calls that the rule must not match, checked when the file is loaded"),

    key("roles", Named, Unset, PerFile, "roles: only roles permit"),
    key("roles.default", Name, Unset, Part, "role of a caller that chooses none"),
    key("roles.NAME", Section, Unset, Part, "a role; a built-in role may have an empty body"),
    key("roles.NAME.tools", List(ItemKind::Tool), Unset, Part, "tools by name, with `*`, or as `group:NAME`"),
    key("roles.NAME.paths", List(ItemKind::Glob), Unset, Part, "path globs that the role permits"),
    key("roles.NAME.permits", List(ItemKind::Choice(PERMITS)), Unset, Part, "kinds of effects that the role permits"),

    key("tools", Section, Unset, Part, "tools and programs"),
    key("tools.whitelisted_binaries", List(ItemKind::Program), Preset::List(&[]), Intersect(Covers::Same), "allowed programs in addition to the 24 built-in ones"),
    key("tools.toolchain", Section, Unset, Part, "commands of run_test and run_lint; detected if unset"),
    key("tools.toolchain.test", Argv, Unset, Topmost(AnyTrusted), "program and arguments of run_test"),
    key("tools.toolchain.lint", Argv, Unset, Topmost(AnyTrusted), "program and arguments of run_lint"),
    key("tools.shell_exec", Bool, Preset::Bool(false), Switch(false, AboveProject), "whether the tool shell_exec exists"),
    planned_key("tools.profile", Choice(Profile::NAMES), Unset, Combine::Profile, "profile for tools, if it differs from `profile`"),
    planned_key("tools.package_install", Choice(PackageInstall::NAMES), Preset::Text("deny"), Narrowest(AboveProject), "package installations that are not from a lockfile"),
    key("tools.allow_legacy_run_command", AlwaysFalse("there is no raw run_command; execute_command runs listed commands without a shell"), Preset::Bool(false), Own, "must be `false`"),
    key("tools.web_search", Section, Unset, Part, "search engine of web_search; its API key is the scope `web_search` of `secrets.scopes`"),
    key("tools.web_search.engine", Choice(SearchEngine::NAMES), Unset, Topmost(AboveProject), "API of the search engine"),
    key("tools.web_search.url", Text, Unset, Topmost(AboveProject), "URL of the search engine; `brave` has a default"),
    planned_key("tools.specs", List(ItemKind::Text), Preset::List(&[]), Collect, "files that declare tools (`*.tool.yaml`)"),

    key("network", Section, Unset, Part, "allowed and denied destinations"),
    key("network.allow", List(ItemKind::Host), Preset::List(&[]), Intersect(Covers::Host), "hosts that tools and sandboxes can reach: `host`, `*.host`, addresses, networks, each with or without `:port`; `*` is everything except this machine and metadata addresses"),
    key("network.terminate", Items, Unset, Topmost(AboveProject), "hosts for which the gate terminates TLS, in order to check their requests and to add credentials"),
    key("network.terminate[].hosts", List(ItemKind::Host), Unset, Part, "host names as in `network.allow`; `network.allow` or `--network` must allow them too; without a port, every port is meant"),
    key("network.terminate[].methods", List(ItemKind::Choice(HTTP_METHODS)), Unset, Part, "allowed methods; all if unset"),
    key("network.terminate[].paths", List(ItemKind::Text), Unset, Part, "allowed paths: `/v1/users`, `/v1/*` for everything below; all if unset"),
    key("network.terminate[].secret", Name, Unset, Part, "scope of `secrets.scopes` whose value replaces the placeholder"),
    key("network.terminate[].header", Text, Unset, Part, "header in which the gate replaces the placeholder"),
    key("network.terminate[].env", Text, Unset, Part, "environment variable with the placeholder inside the sandbox"),
    key("network.roots", Text, Unset, Topmost(AboveProject), "file of root certificates (PEM) that are trusted in addition to the machine's"),
    key("network.deny", List(ItemKind::Host), Preset::List(&[]), Union, "hosts that are denied even if `network.allow` allows them"),

    key("secrets", Section, Unset, Part, "secrets and redaction"),
    key("secrets.scopes", Named, Unset, Collect, "secrets that a tool can request by name; their values are redacted wherever they appear"),
    key("secrets.scopes.NAME", Section, Unset, Part, "one secret: from an environment variable or from a file"),
    key("secrets.scopes.NAME.env", Text, Unset, Part, "environment variable of the broker"),
    key("secrets.scopes.NAME.file", Text, Unset, Part, "file that contains the secret"),
    key("secrets.redact_patterns", List(ItemKind::Text), Preset::List(&[]), Union, "further strings to redact; `sk-...` includes the rest of the token"),
    key("secrets.least_length", int(4, 64), Preset::Int(6), Cap, "minimum length of a known value that is redacted; shorter values would match by chance"),
    key("secrets.not_secret", List(ItemKind::Text), Preset::List(&[]), Intersect(Covers::Same), "strings that look like secrets but are not, known values included"),

    key("sandbox", Section, Unset, Part, "the sandbox of programs"),
    planned_key("sandbox.enabled", NeverOffInProject(CANNOT_SWITCH_OFF), Preset::Bool(true), Switch(true, AboveProject), "whether programs are confined"),
    key("sandbox.tier", Choice(Tier::NAMES), Preset::Text("auto"), Narrowest(AboveProject), "required sandbox tier"),
    key("sandbox.memory", bytes(MIB, 1024 * GIB), Unset, Cap, "maximum memory of one run"),
    key("sandbox.pids", int(1, 100_000), Unset, Cap, "maximum processes of one run"),
    key("sandbox.cpu", int(1, 100_000), Unset, Cap, "maximum CPU time in percent of one core; 200 is two cores"),
    key("sandbox.tmp", bytes(1, 1024 * GIB), Unset, Cap, "maximum size of the private /tmp"),

    key("violations", Section, Unset, Part, "limit of denied calls"),
    key("violations.limit", int(1, 10_000), Preset::Int(5), Cap, "maximum denied calls within the window"),
    key("violations.window_sec", int(1, DAY), Preset::Int(60), Floor, "length of the window, in seconds"),
    key("violations.action", Choice(ViolationAction::NAMES), Preset::Text("alert"), Narrowest(AnyTrusted), "what happens to the session when the limit is exceeded"),

    key("audit", Section, Unset, Part, "the ledger"),
    key("audit.sync", Choice(AuditSync::NAMES), Preset::Text("reads_later"), Narrowest(AnyTrusted), "when the start record of a call is synced to disk: `always` before the call runs; `reads_later` the same, but within 100 ms after the start for calls that only read"),
    planned_key("audit.mirror", Path, Unset, Topmost(AnyTrusted), "workspace file that also receives every record"),
    key("audit.export", Section, Unset, Part, "defaults of `vambrace audit export`"),
    key("audit.export.format", Choice(EXPORT_FORMATS), Unset, Topmost(AboveProject), "format of the records"),
    key("audit.export.output", Text, Unset, Topmost(AboveProject), "file that the records are appended to; an absolute path"),
    key("audit.witness", Section, Unset, Part, "witness that keeps the newest checkpoint elsewhere, so that a rolled-back state directory is detected"),
    key("audit.witness.url", Text, Unset, Topmost(AboveProject), "URL of the witness: `https://...`, or `http://...` on the same machine or in a trusted network"),
    key("audit.witness.key", Text, Unset, Topmost(AboveProject), "verifier key of the witness, as `vambrace witness key` prints it"),

    planned_key("elevation", Mapping, Unset, Topmost(AnyTrusted), "emergency elevation (break glass)"),
    planned_key("intents", Section, Unset, Part, "which request activates which skill"),
    planned_key("intents.enabled", Bool, Unset, Topmost(AnyTrusted), "whether requests are routed to skills"),
    planned_key("intents.match_threshold", Fraction, Unset, Topmost(AnyTrusted), "minimum match score of a pattern"),
    planned_key("intents.rules", Items, Unset, Collect, "patterns and their skills"),
    planned_key("intents.rules[].name", Text, Unset, Part, "a name for explanations"),
    planned_key("intents.rules[].patterns", List(ItemKind::Text), Unset, Part, "globs over the request"),
    planned_key("intents.rules[].target", Section, Unset, Part, "what the rule activates"),
    planned_key("intents.rules[].target.type", Choice(&["skill"]), Unset, Part, "kind of target"),
    planned_key("intents.rules[].target.name", Text, Unset, Part, "name of the target"),
    planned_key("intents.rules[].enabled", Bool, Unset, Part, "whether the rule is enabled"),
    planned_key("skills", Mapping, Unset, Topmost(AnyTrusted), "sources of skills"),
    planned_key("mcp_servers", Named, Unset, Collect, "other MCP servers whose tools are governed here"),
    planned_key("mcp_servers.NAME", Mapping, Unset, Part, "how to start or reach the server"),
    planned_key("knowledge", Mapping, Unset, Topmost(AnyTrusted), "the knowledge index"),
];

/// Sections of older layouts: `scope` of `.flow/config.json`, and `file_broker`. (`tools` and `secrets` of
/// `.flow/config.json` are the same in the current layout.)
#[rustfmt::skip]
pub(crate) static OLDER_KEYS: &[ConfigKey] = &[
    older_key("scope", Section, "", "older layout of `workspace`"),
    older_key("scope.service_isolation", Choice(&["STRICT", "SHARED", "strict", "shared"]), "workspace.isolation", ""),
    older_key("scope.shared_paths", List(ItemKind::Directory), "workspace.shared_paths", ""),
    older_key("scope.block_patterns", List(ItemKind::Block), "workspace.block", ""),
    older_key("file_broker", Section, "", "older layout of several sections"),
    older_key("file_broker.enabled", NeverOffInProject(CANNOT_SWITCH_OFF), "", ""),
    older_key("file_broker.audit_log_enabled", NeverOffInProject(CANNOT_SWITCH_OFF), "", ""),
    older_key("file_broker.hitl_ttl_seconds", int(1, DAY), "approvals.proposal_ttl_sec", ""),
    older_key("file_broker.max_read_bytes_default", bytes(1, 100 * MIB), "limits.read_bytes", ""),
    older_key("file_broker.max_read_bytes_hard", bytes(1, 100 * MIB), "limits.read_bytes_hard", ""),
    older_key("file_broker.max_write_bytes_hard", bytes(1, 100 * MIB), "limits.write_bytes", ""),
    older_key("file_broker.allowlisted_create_dirs", List(ItemKind::CreateDirectory), "workspace.create_in", ""),
    older_key("file_broker.deny_path_globs", List(ItemKind::Block), "workspace.block", ""),
];
