//! The table of keys: the single source of validation, of the JSON Schema, of the reference in
//! `docs/configuration.md` and of how layers combine. Parents stand before what is below them.

use super::choice::{
    AuditSync, CommandApproval, Isolation, PackageInstall, Profile, SearchEngine, Tier, ViolationAction,
};
use super::key::Base::{AboveProject, AnyTrusted};
use super::key::Combine::{
    Above, Cap, Collect, Floor, Inside, Intersect, Narrowest, Own, Part, PerFile, Switch, Topmost, Union,
};
use super::key::Kind::{
    AlwaysFalse, Argv, Bool, Bytes, Choice, Fraction, Int, Items, List, Mapping, Name, Named,
    NeverOffInProject, Path, Rates, Section, Text,
};
use super::key::Preset::{self, Unset};
use super::key::{Combine, Covers, Item, Key, Kind, Status};
use crate::block::ALWAYS_BLOCKED;

/// The version of the layout that this program writes.
pub const LAYOUT_VERSION: u64 = 1;

/// The groups of tools that `group:NAME` can name.
pub const TOOL_GROUPS: &[&str] =
    &["fs", "web", "memory", "shell", "git", "process", "browser", "knowledge", "system", "mcp", "spec"];

/// What a rule decides ([`crate::rule::Decision`]).
pub const DECISIONS: &[&str] = &["deny", "ask", "allow"];

/// What a role permits ([`crate::effect::EffectKind`]).
pub const PERMITS: &[&str] =
    &["read", "create", "modify", "delete", "execute", "connect", "secret", "system"];

/// What `audit.export.format` can name.
pub const EXPORT_FORMATS: &[&str] = &["jsonl", "ocsf", "cef", "otlp"];

/// What `network.terminate[].methods` can name.
pub const HTTP_METHODS: &[&str] = &["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"];

const MIB: u64 = 1024 * 1024;
const GIB: u64 = 1024 * MIB;
const DAY: u64 = 86_400;
const SWITCHED_OFF: &str = "protection cannot be switched off from a project file";

const fn key(path: &'static str, kind: Kind, preset: Preset, combine: Combine, doc: &'static str) -> Key {
    Key { path, kind, preset, combine, status: Status::Used, doc }
}

const fn later(path: &'static str, kind: Kind, preset: Preset, combine: Combine, doc: &'static str) -> Key {
    Key { path, kind, preset, combine, status: Status::NotYet, doc }
}

const fn older(path: &'static str, kind: Kind, to: &'static str, doc: &'static str) -> Key {
    Key { path, kind, preset: Unset, combine: Part, status: Status::Older(to), doc }
}

const fn caps(min: u64, max: u64) -> Kind {
    Int { min, max }
}

const fn bytes(min: u64, max: u64) -> Kind {
    Bytes { min, max }
}

/// Every key of the present layout.
#[rustfmt::skip]
pub static KEYS: &[Key] = &[
    key("version", caps(1, LAYOUT_VERSION), Preset::Int(LAYOUT_VERSION), Own, "version of this layout"),
    key("profile", Choice(Profile::NAMES), Preset::Text("coding"), Combine::Profile, "a named set of tools and defaults; so far `ci` alone has any: nobody is there to be asked, so what would be asked is refused"),

    key("workspace", Section, Unset, Part, "what of the project is in scope"),
    key("workspace.service_root", Path, Preset::Text("."), Inside, "the folder of the service, relative to the project root"),
    key("workspace.isolation", Choice(Isolation::NAMES), Preset::Text("strict"), Narrowest(AnyTrusted), "strict: own service and shared paths; shared: sibling services too, for reading"),
    key("workspace.shared_paths", List(Item::Folder), Preset::List(&["shared/", "contracts/", "shared_contracts/", "docs/policies/"]), Intersect(Covers::Folder), "folders of the project root that are readable as `project:...`"),
    key("workspace.block", List(Item::Block), Preset::List(ALWAYS_BLOCKED), Union, "names that no agent reads, lists or searches, at any depth; of `.env.*` not what ends in `.example`, `.sample`, `.template`, `.dist`, `.defaults`"),
    key("workspace.create_in", List(Item::CreateFolder), Preset::List(&[".", "src/", "lib/", "tests/", "docs/", "scripts/"]), Intersect(Covers::Folder), "folders where new files are allowed; `.` is the root level alone, `**` everywhere"),
    key("workspace.delete_in", List(Item::CreateFolder), Preset::List(&[]), Intersect(Covers::Folder), "folders where files may be deleted, beside those where new ones are allowed"),
    key("workspace.write_executables", Bool, Preset::Bool(false), Switch(false, AboveProject), "whether `.exe .bin .so .dll` are written at all, as HIGH"),

    key("limits", Section, Unset, Part, "caps"),
    key("limits.read_bytes", bytes(1, 100 * MIB), Preset::Int(32_000), Cap, "bytes that a read returns unless it asks for more"),
    key("limits.read_bytes_hard", bytes(1, 100 * MIB), Preset::Int(131_072), Cap, "bytes that a read can ask for"),
    key("limits.write_bytes", bytes(1, 100 * MIB), Preset::Int(524_288), Cap, "bytes of one written file"),
    key("limits.list_entries", caps(1, 100_000), Preset::Int(1000), Cap, "entries of one listing"),
    key("limits.output_bytes", bytes(1, 100 * MIB), Preset::Int(1_048_576), Cap, "bytes of a command's output"),
    key("limits.regex_ms", caps(1, 10_000), Preset::Int(100), Cap, "milliseconds for a regular expression of an agent"),
    later("limits.command_sec", caps(1, 3600), Preset::Int(30), Cap, "seconds that a command runs unless it asks for more"),
    later("limits.command_sec_hard", caps(1, 3600), Preset::Int(300), Cap, "seconds that a command can ask for"),
    key("limits.fetch_bytes", bytes(1, 100 * MIB), Preset::Int(5 * MIB), Cap, "bytes of an answer that the web tools take"),
    key("limits.fetch_sec", caps(1, 600), Preset::Int(30), Cap, "seconds for a request of the web tools, redirects included"),
    key("limits.calls_per_minute", Rates, Unset, Cap, "calls of one session per tool: a number, or a mapping of `default` and tools"),

    key("approvals", Section, Unset, Part, "questions to a human"),
    key("approvals.medium_sec", caps(1, DAY), Preset::Int(300), Cap, "seconds to decide a MEDIUM question"),
    key("approvals.high_sec", caps(1, DAY), Preset::Int(600), Cap, "seconds to decide a HIGH question"),
    key("approvals.proposal_ttl_sec", caps(1, DAY), Preset::Int(120), Cap, "seconds that a proposal stands when nobody waits"),
    later("approvals.commands", Choice(CommandApproval::NAMES), Preset::Text("ask_first"), Narrowest(AnyTrusted), "ask before a MEDIUM command, or run it speculatively and ask about its effects"),
    key("approvals.grant_sec", caps(1, DAY), Preset::Int(3600), Cap, "seconds that a grant for a class of calls or a session stands"),
    key("approvals.flood_limit", caps(1, 1000), Preset::Int(20), Cap, "questions of one session within a minute that nobody agreed to; the next one pauses the session"),
    key("approvals.high", List(Item::Block), Preset::List(&[]), Union, "further names whose change is HIGH, at any depth"),
    key("approvals.trusted_clients", List(Item::Text), Preset::List(&[]), Above, "MCP clients, by the name they give, whose answer to a question decides it; never from a file of the project"),
    key("approvals.rules", Items, Unset, PerFile, "rules per tool, path and command"),
    key("approvals.rules[].id", Name, Unset, Part, "a name for explanations"),
    key("approvals.rules[].tools", List(Item::Tool), Unset, Part, "tools by name, with `*`, or as `group:NAME`"),
    key("approvals.rules[].paths", List(Item::Glob), Unset, Part, "globs over paths"),
    key("approvals.rules[].commands", List(Item::Text), Unset, Part, "commands by their first words"),
    key("approvals.rules[].decision", Choice(DECISIONS), Unset, Part, "what the rule decides"),
    key("approvals.rules[].reason", Text, Unset, Part, "told to whoever is asked or refused"),
    key("approvals.rules[].match", List(Item::Case), Unset, Part, "calls that the rule must meet, checked at load"),
    key("approvals.rules[].not_match", List(Item::Case), Unset, Part, "calls that the rule must not meet, checked at load"),

    key("roles", Named, Unset, PerFile, "roles: only roles permit"),
    key("roles.default", Name, Unset, Part, "the role of a caller that chooses none"),
    key("roles.NAME", Section, Unset, Part, "a role; a built-in one may be named with an empty body"),
    key("roles.NAME.tools", List(Item::Tool), Unset, Part, "tools by name, with `*`, or as `group:NAME`"),
    key("roles.NAME.paths", List(Item::Glob), Unset, Part, "globs over the paths that the role reaches"),
    key("roles.NAME.permits", List(Item::Choice(PERMITS)), Unset, Part, "kinds of effects"),

    key("tools", Section, Unset, Part, "tools and programs"),
    later("tools.whitelisted_binaries", List(Item::Program), Preset::List(&[]), Intersect(Covers::Same), "programs beside the built-in 24"),
    key("tools.toolchain", Section, Unset, Part, "what run_test and run_lint start; detected when unset"),
    later("tools.toolchain.test", Argv, Unset, Topmost(AnyTrusted), "program and arguments of run_test"),
    later("tools.toolchain.lint", Argv, Unset, Topmost(AnyTrusted), "program and arguments of run_lint"),
    later("tools.shell_exec", Bool, Preset::Bool(false), Switch(false, AboveProject), "whether the tool shell_exec exists"),
    later("tools.profile", Choice(Profile::NAMES), Unset, Combine::Profile, "the profile for tools alone, when it differs from `profile`"),
    later("tools.package_install", Choice(PackageInstall::NAMES), Preset::Text("deny"), Narrowest(AboveProject), "installations that are not from a lockfile"),
    key("tools.allow_legacy_run_command", AlwaysFalse("there is no raw run_command; execute_command runs listed commands without a shell"), Preset::Bool(false), Own, "only ever false"),
    key("tools.web_search", Section, Unset, Part, "who is asked by web_search; the scope `web_search` of `secrets.scopes` is its key"),
    key("tools.web_search.engine", Choice(SearchEngine::NAMES), Unset, Topmost(AboveProject), "which interface it has"),
    key("tools.web_search.url", Text, Unset, Topmost(AboveProject), "where it listens; of `brave` its public address unless said otherwise"),
    later("tools.specs", List(Item::Text), Preset::List(&[]), Collect, "files that declare tools (`*.tool.yaml`)"),

    key("network", Section, Unset, Part, "where connections may go"),
    key("network.allow", List(Item::Host), Preset::List(&[]), Intersect(Covers::Host), "what tools and sandboxes may reach: `host`, `*.host`, addresses, networks, each with or without `:port`; `*` is everything but this machine and metadata addresses"),
    key("network.terminate", Items, Unset, Topmost(AboveProject), "hosts whose TLS ends at the gate, so that their requests can be judged and given credentials"),
    key("network.terminate[].hosts", List(Item::Host), Unset, Part, "names as in `network.allow`, which or `--network` must allow them as well; without a port every port is meant"),
    key("network.terminate[].methods", List(Item::Choice(HTTP_METHODS)), Unset, Part, "methods that pass; all when left out"),
    key("network.terminate[].paths", List(Item::Text), Unset, Part, "paths that pass: `/v1/users`, `/v1/*` for everything below; all when left out"),
    key("network.terminate[].secret", Name, Unset, Part, "the scope of `secrets.scopes` whose value the gate puts in place of the placeholder"),
    key("network.terminate[].header", Text, Unset, Part, "the header in which it does so"),
    key("network.terminate[].env", Text, Unset, Part, "the variable that holds the placeholder inside the sandbox"),
    key("network.roots", Text, Unset, Topmost(AboveProject), "a file of certificates (PEM) that are trusted beside the machine's"),
    key("network.deny", List(Item::Host), Preset::List(&[]), Union, "what is refused whatever allows it"),

    key("secrets", Section, Unset, Part, "what is secret"),
    key("secrets.scopes", Named, Unset, Collect, "secrets that a tool can be given by name; wherever their values appear they are masked"),
    key("secrets.scopes.NAME", Section, Unset, Part, "one secret: from the environment or from a file"),
    key("secrets.scopes.NAME.env", Text, Unset, Part, "the variable of the broker's environment"),
    key("secrets.scopes.NAME.file", Text, Unset, Part, "the file that holds it"),
    key("secrets.redact_patterns", List(Item::Text), Preset::List(&[]), Union, "further texts to redact; `sk-...` means the rest of the token too"),
    key("secrets.least_length", caps(4, 64), Preset::Int(6), Cap, "known values that are shorter are not looked for; most such texts would be met by chance"),
    key("secrets.not_secret", List(Item::Text), Preset::List(&[]), Intersect(Covers::Same), "texts that look like secrets and are none, known values included"),

    key("sandbox", Section, Unset, Part, "the sandbox of processes"),
    later("sandbox.enabled", NeverOffInProject(SWITCHED_OFF), Preset::Bool(true), Switch(true, AboveProject), "whether processes are confined"),
    key("sandbox.tier", Choice(Tier::NAMES), Preset::Text("auto"), Narrowest(AboveProject), "the strength that is demanded"),
    key("sandbox.memory", bytes(MIB, 1024 * GIB), Unset, Cap, "memory of one run"),
    key("sandbox.pids", caps(1, 100_000), Unset, Cap, "processes of one run"),
    key("sandbox.cpu", caps(1, 100_000), Unset, Cap, "percent of one core; 200 is two cores"),
    key("sandbox.tmp", bytes(1, 1024 * GIB), Unset, Cap, "size of the private /tmp"),

    key("violations", Section, Unset, Part, "too many refused calls"),
    key("violations.limit", caps(1, 10_000), Preset::Int(5), Cap, "refused calls that a window may hold"),
    key("violations.window_sec", caps(1, DAY), Preset::Int(60), Floor, "seconds of the window"),
    key("violations.action", Choice(ViolationAction::NAMES), Preset::Text("alert"), Narrowest(AnyTrusted), "what happens to the session past the limit"),

    key("audit", Section, Unset, Part, "the ledger"),
    key("audit.sync", Choice(AuditSync::NAMES), Preset::Text("reads_later"), Narrowest(AnyTrusted), "when the start of a call is synced: `always` before it happens; `reads_later` the same but for calls that only read, whose written record is synced within 100 ms"),
    later("audit.mirror", Path, Unset, Topmost(AnyTrusted), "a file of the workspace that also gets every record"),
    key("audit.export", Section, Unset, Part, "what `vambrace audit export` does where its words do not say"),
    key("audit.export.format", Choice(EXPORT_FORMATS), Unset, Topmost(AboveProject), "the form of the records"),
    key("audit.export.output", Text, Unset, Topmost(AboveProject), "the file that they are appended to, by its absolute path"),
    key("audit.witness", Section, Unset, Part, "who keeps the newest checkpoint elsewhere, so that a rolled-back state folder is found"),
    key("audit.witness.url", Text, Unset, Topmost(AboveProject), "where the witness listens: `https://...`, or `http://...` inside a machine or a trusted network"),
    key("audit.witness.key", Text, Unset, Topmost(AboveProject), "its verifier key, as `vambrace witness key` prints it"),

    later("elevation", Mapping, Unset, Topmost(AnyTrusted), "break glass"),
    later("intents", Section, Unset, Part, "which request activates which skill"),
    later("intents.enabled", Bool, Unset, Topmost(AnyTrusted), "whether requests are routed"),
    later("intents.match_threshold", Fraction, Unset, Topmost(AnyTrusted), "how well a pattern must fit"),
    later("intents.rules", Items, Unset, Collect, "patterns and their skills"),
    later("intents.rules[].name", Text, Unset, Part, "a name for explanations"),
    later("intents.rules[].patterns", List(Item::Text), Unset, Part, "globs over the request"),
    later("intents.rules[].target", Section, Unset, Part, "what is activated"),
    later("intents.rules[].target.type", Choice(&["skill"]), Unset, Part, "its kind"),
    later("intents.rules[].target.name", Text, Unset, Part, "its name"),
    later("intents.rules[].enabled", Bool, Unset, Part, "whether the rule counts"),
    later("skills", Mapping, Unset, Topmost(AnyTrusted), "where skills come from"),
    later("mcp_servers", Named, Unset, Collect, "other MCP servers whose tools are governed here"),
    later("mcp_servers.NAME", Mapping, Unset, Part, "how the server is started or reached"),
    later("knowledge", Mapping, Unset, Topmost(AnyTrusted), "the index"),
];

/// Sections of older layouts: `scope` of `.flow/config.json`, and `file_broker`. (`tools` and `secrets`
/// of `.flow/config.json` are spelled as in the present layout.)
#[rustfmt::skip]
pub static OLDER_KEYS: &[Key] = &[
    older("scope", Section, "", "older layout of `workspace`"),
    older("scope.service_isolation", Choice(&["STRICT", "SHARED", "strict", "shared"]), "workspace.isolation", ""),
    older("scope.shared_paths", List(Item::Folder), "workspace.shared_paths", ""),
    older("scope.block_patterns", List(Item::Block), "workspace.block", ""),
    older("file_broker", Section, "", "older layout of several sections"),
    older("file_broker.enabled", NeverOffInProject(SWITCHED_OFF), "", ""),
    older("file_broker.audit_log_enabled", NeverOffInProject(SWITCHED_OFF), "", ""),
    older("file_broker.hitl_ttl_seconds", caps(1, DAY), "approvals.proposal_ttl_sec", ""),
    older("file_broker.max_read_bytes_default", bytes(1, 100 * MIB), "limits.read_bytes", ""),
    older("file_broker.max_read_bytes_hard", bytes(1, 100 * MIB), "limits.read_bytes_hard", ""),
    older("file_broker.max_write_bytes_hard", bytes(1, 100 * MIB), "limits.write_bytes", ""),
    older("file_broker.allowlisted_create_dirs", List(Item::CreateFolder), "workspace.create_in", ""),
    older("file_broker.deny_path_globs", List(Item::Block), "workspace.block", ""),
];
