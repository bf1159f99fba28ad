//! The effective settings as typed values, for the other crates.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value as Json;

use super::choice::{
    AuditSync, CommandApproval, Isolation, PackageInstall, Profile, SearchEngine, Tier, ViolationAction,
};
use super::error::ConfigNote;
use super::file::SettingValue;
use super::granted_roles::granted_by;
use super::origin::Located;
use super::rate::CallRates;
use super::role::LayerRoles;
use super::rule::RuleSettings;
use crate::blocked_paths::{BadPattern, BlockList};

/// The effective settings. [`EffectiveConfig::get`] returns the origin of a value.
#[derive(Debug, Clone, PartialEq)]
pub struct EffectiveConfig {
    /// A named set of tools and defaults.
    pub profile: Profile,
    /// The directory of the service, relative to the project root; `.` is the project root.
    pub service_root: String,
    /// Which services may be read.
    pub isolation: Isolation,
    /// Readable directories of the project root, each with a trailing slash.
    pub shared_paths: Vec<String>,
    /// Patterns of blocked paths, the built-in ones included.
    pub block: Vec<String>,
    /// Directories for new files, each with a trailing slash; `.` is the root level only, `**` every directory.
    pub create_in: Vec<String>,
    /// Further directories where files may be deleted.
    pub delete_in: Vec<String>,
    /// Whether executable files may be written.
    pub write_executables: bool,
    /// Limits of calls.
    pub limits: LimitSettings,
    /// Approval requests.
    pub approvals: ApprovalConfig,
    /// Rules from the organisation down, in file order.
    pub rules: Vec<RuleSettings>,
    /// Roles per file, from the organisation down.
    pub roles: Vec<LayerRoles>,
    /// The role of a caller that chooses none.
    pub default_role: Option<Located<String>>,
    /// Tools and programs.
    pub tools: ToolSettings,
    /// Allowed and denied hosts.
    pub network: NetworkSettings,
    /// Secrets and redaction.
    pub secrets: SecretSettings,
    /// The sandbox.
    pub sandbox: SandboxSettings,
    /// Limit of denied calls.
    pub violations: ViolationSettings,
    /// When the start record of a call is synced.
    pub audit_sync: AuditSync,
    /// A workspace file that also receives every record.
    pub audit_mirror: Option<String>,
    /// The witness that keeps the newest checkpoint elsewhere.
    pub audit_witness: Option<AuditWitnessSettings>,
    /// Defaults of `vambrace audit export`.
    pub audit_export: AuditExportSettings,
    /// Notes about ignored values.
    pub notes: Vec<ConfigNote>,
    pub(crate) values: BTreeMap<&'static str, Located<SettingValue>>,
    pub(crate) rates: Vec<CallRates>,
}

/// Limits of calls. `_hard` is the maximum that a call can request; without the suffix it is the default.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(missing_docs, reason = "the key table describes each field")]
pub struct LimitSettings {
    pub read_bytes: u64,
    pub read_bytes_hard: u64,
    pub write_bytes: u64,
    pub list_entries: u64,
    pub output_bytes: u64,
    pub regex_ms: u64,
    pub command_sec: u64,
    pub command_sec_hard: u64,
    pub fetch_bytes: u64,
    pub fetch_sec: u64,
}

/// Settings of approval requests.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ApprovalConfig {
    /// Seconds until a MEDIUM request expires.
    pub medium_sec: u64,
    /// Seconds until a HIGH request expires.
    pub high_sec: u64,
    /// Seconds until a proposal expires that no call waits for.
    pub proposal_ttl_sec: u64,
    /// Seconds until a grant expires.
    pub grant_sec: u64,
    /// Unapproved requests of a session within a minute; one more suspends the session.
    pub flood_limit: u64,
    /// Further names whose change is HIGH risk.
    pub high: Vec<String>,
    /// MCP clients whose user can decide; never set by a project file.
    pub trusted_clients: Vec<String>,
    /// When approval of a MEDIUM command is requested.
    pub commands: CommandApproval,
}

/// Tools and programs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ToolSettings {
    /// Allowed programs in addition to the built-in ones.
    pub whitelisted_binaries: Vec<String>,
    /// Program and arguments of run_test; detected if `None`.
    pub test: Option<Vec<String>>,
    /// Program and arguments of run_lint; detected if `None`.
    pub lint: Option<Vec<String>>,
    /// Whether the tool shell_exec exists.
    pub shell_exec: bool,
    /// The profile for tools.
    pub profile: Profile,
    /// Decision on package installations that are not from a lockfile.
    pub package_install: PackageInstall,
    /// The search engine of web_search, and its URL.
    pub web_search: Option<(SearchEngine, Option<String>)>,
    /// Files that declare tools.
    pub specs: Vec<String>,
}

/// Allowed and denied hosts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NetworkSettings {
    /// The allow list.
    pub allow: Vec<String>,
    /// The deny list; it wins over `allow`.
    pub deny: Vec<String>,
    /// Hosts for which the gate terminates TLS.
    pub terminate: Vec<TerminateSettings>,
    /// A file of root certificates that are trusted in addition to the machine's.
    pub roots: Option<String>,
}

/// Hosts for which the gate terminates TLS, and the requests that it allows.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct TerminateSettings {
    /// The host names.
    pub hosts: Vec<String>,
    /// Allowed methods; empty means all.
    pub methods: Vec<String>,
    /// Allowed paths; empty means all.
    pub paths: Vec<String>,
    /// Secret scope, header and environment variable of a credential.
    pub credential: Option<(String, String, String)>,
}

impl TerminateSettings {
    /// Reads entries that were validated when their file was parsed.
    fn read(entries: &Json) -> Vec<Self> {
        let texts = |entry: &Json, key: &str| -> Vec<String> {
            let list = entry.get(key).and_then(Json::as_array).into_iter().flatten();
            list.filter_map(Json::as_str).map(str::to_owned).collect()
        };
        let text = |entry: &Json, key: &str| entry.get(key).and_then(Json::as_str).map(str::to_owned);
        let entries = entries.as_array().into_iter().flatten();
        entries
            .map(|entry| Self {
                hosts: texts(entry, "hosts"),
                methods: texts(entry, "methods"),
                paths: texts(entry, "paths"),
                credential: match (text(entry, "secret"), text(entry, "header"), text(entry, "env")) {
                    (Some(secret), Some(header), Some(env)) => Some((secret, header, env)),
                    _ => None,
                },
            })
            .collect()
    }
}

/// Secrets and redaction.
#[derive(Debug, Clone, PartialEq)]
pub struct SecretSettings {
    /// Scopes by name, each `{env}` or `{file}`.
    pub scopes: Json,
    /// Further strings to redact.
    pub redact_patterns: Vec<String>,
    /// Minimum length of a known value that is redacted, in characters.
    pub least_length: u64,
    /// Strings that look like secrets but are not.
    pub not_secret: Vec<String>,
}

/// The sandbox; a limit that is `None` is not set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SandboxSettings {
    /// Whether programs are confined.
    pub enabled: bool,
    /// The required tier.
    pub tier: Tier,
    /// Memory of one run, in bytes.
    pub memory: Option<u64>,
    /// Number of processes of one run.
    pub pids: Option<u64>,
    /// CPU time in percent of one core.
    pub cpu: Option<u64>,
    /// Size of the private /tmp, in bytes.
    pub tmp: Option<u64>,
}

/// Defaults of `vambrace audit export`.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct AuditExportSettings {
    /// The record format.
    pub format: Option<String>,
    /// The output file.
    pub output: Option<String>,
}

/// A witness of the ledger.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AuditWitnessSettings {
    /// The witness's URL.
    pub url: String,
    /// The witness's verifier key.
    pub key: String,
}

/// Limit of denied calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ViolationSettings {
    /// Maximum number of denied calls within the window.
    pub limit: u64,
    /// Length of the window, in seconds.
    pub window_sec: u64,
    /// What happens to the session when the limit is exceeded.
    pub action: ViolationAction,
}

impl EffectiveConfig {
    pub(crate) fn new(
        values: BTreeMap<&'static str, Located<SettingValue>>,
        rates: Vec<CallRates>,
        roles: Vec<LayerRoles>,
        default_role: Option<Located<String>>,
        rules: Vec<RuleSettings>,
        notes: Vec<ConfigNote>,
    ) -> Self {
        let read = ValueReader(&values);
        let profile = read.choice("profile", Profile::from_name, Profile::Readonly);
        Self {
            profile,
            service_root: read.text("workspace.service_root").unwrap_or_else(|| ".".to_owned()),
            isolation: read.choice("workspace.isolation", Isolation::from_name, Isolation::Strict),
            shared_paths: read.list("workspace.shared_paths"),
            block: read.list("workspace.block"),
            create_in: read.list("workspace.create_in"),
            delete_in: read.list("workspace.delete_in"),
            write_executables: read.is_on("workspace.write_executables", false),
            limits: LimitSettings {
                read_bytes: read.int("limits.read_bytes"),
                read_bytes_hard: read.int("limits.read_bytes_hard"),
                write_bytes: read.int("limits.write_bytes"),
                list_entries: read.int("limits.list_entries"),
                output_bytes: read.int("limits.output_bytes"),
                regex_ms: read.int("limits.regex_ms"),
                command_sec: read.int("limits.command_sec"),
                command_sec_hard: read.int("limits.command_sec_hard"),
                fetch_bytes: read.int("limits.fetch_bytes"),
                fetch_sec: read.int("limits.fetch_sec"),
            },
            approvals: ApprovalConfig {
                medium_sec: read.int("approvals.medium_sec"),
                high_sec: read.int("approvals.high_sec"),
                proposal_ttl_sec: read.int("approvals.proposal_ttl_sec"),
                grant_sec: read.int("approvals.grant_sec"),
                flood_limit: read.int("approvals.flood_limit"),
                high: read.list("approvals.high"),
                trusted_clients: read.list("approvals.trusted_clients"),
                commands: read.choice(
                    "approvals.commands",
                    CommandApproval::from_name,
                    CommandApproval::AskFirst,
                ),
            },
            tools: ToolSettings {
                whitelisted_binaries: read.list("tools.whitelisted_binaries"),
                test: read.argv("tools.toolchain.test"),
                lint: read.argv("tools.toolchain.lint"),
                shell_exec: read.is_on("tools.shell_exec", false),
                profile: read.choice("tools.profile", Profile::from_name, profile),
                package_install: read.choice(
                    "tools.package_install",
                    PackageInstall::from_name,
                    PackageInstall::Deny,
                ),
                web_search: read
                    .text("tools.web_search.engine")
                    .and_then(|name| SearchEngine::from_name(&name))
                    .map(|engine| (engine, read.text("tools.web_search.url"))),
                specs: read.list("tools.specs"),
            },
            network: NetworkSettings {
                allow: read.list("network.allow"),
                deny: read.list("network.deny"),
                terminate: TerminateSettings::read(&read.json("network.terminate")),
                roots: read.text("network.roots"),
            },
            secrets: SecretSettings {
                scopes: read.json("secrets.scopes"),
                redact_patterns: read.list("secrets.redact_patterns"),
                least_length: read.int("secrets.least_length"),
                not_secret: read.list("secrets.not_secret"),
            },
            sandbox: SandboxSettings {
                enabled: read.is_on("sandbox.enabled", true),
                tier: read.choice("sandbox.tier", Tier::from_name, Tier::Namespaces),
                memory: read.maybe_int("sandbox.memory"),
                pids: read.maybe_int("sandbox.pids"),
                cpu: read.maybe_int("sandbox.cpu"),
                tmp: read.maybe_int("sandbox.tmp"),
            },
            violations: ViolationSettings {
                limit: read.int("violations.limit"),
                window_sec: read.int("violations.window_sec"),
                action: read.choice("violations.action", ViolationAction::from_name, ViolationAction::End),
            },
            audit_sync: read.choice("audit.sync", AuditSync::from_name, AuditSync::Always),
            audit_mirror: read.text("audit.mirror"),
            audit_witness: read
                .text("audit.witness.url")
                .zip(read.text("audit.witness.key"))
                .map(|(url, key)| AuditWitnessSettings { url, key }),
            audit_export: AuditExportSettings {
                format: read.text("audit.export.format"),
                output: read.text("audit.export.output"),
            },
            rules,
            roles,
            default_role,
            notes,
            rates,
            values,
        }
    }

    /// The effective value of a key, with its origin; `None` if it is unset (and for `roles`, `approvals.rules` and
    /// `limits.calls_per_minute`, which are kept per file).
    #[must_use]
    pub fn get(&self, key: &str) -> Option<&Located<SettingValue>> {
        self.values.get(key)
    }

    /// Compiles the patterns of blocked paths.
    pub fn block_list(&self) -> Result<BlockList, BadPattern> {
        BlockList::new(&self.block)
    }

    /// Maximum calls per minute of a tool in a session, by the tool's names: its own, its aliases, `group:NAME`. The
    /// lowest number of all files counts; `None` means no limit.
    #[must_use]
    pub fn calls_per_minute(&self, names: &[&str]) -> Option<&Located<u64>> {
        self.rates.iter().filter_map(|rates| rates.lookup(names)).min_by_key(|rate| rate.value)
    }

    /// The roles that a caller may choose (T5): those that the organisation names, else those that the user names. Empty
    /// if neither names one; then only [`Self::default_role`] is available.
    #[must_use]
    pub(crate) fn granted_roles(&self) -> BTreeSet<String> {
        granted_by(&self.roles)
    }
}

/// Typed access to combined values. A missing value reads as the narrowest one.
struct ValueReader<'a>(&'a BTreeMap<&'static str, Located<SettingValue>>);

impl ValueReader<'_> {
    fn value(&self, key: &str) -> Option<&SettingValue> {
        self.0.get(key).map(|value| &value.value)
    }

    fn maybe_int(&self, key: &str) -> Option<u64> {
        match self.value(key) {
            Some(SettingValue::Int(value)) => Some(*value),
            _ => None,
        }
    }

    fn int(&self, key: &str) -> u64 {
        self.maybe_int(key).unwrap_or_default()
    }

    fn is_on(&self, key: &str, otherwise: bool) -> bool {
        match self.value(key) {
            Some(SettingValue::Bool(value)) => *value,
            _ => otherwise,
        }
    }

    fn text(&self, key: &str) -> Option<String> {
        match self.value(key) {
            Some(SettingValue::Text(text)) => Some(text.clone()),
            _ => None,
        }
    }

    fn choice<T>(&self, key: &str, from_name: impl Fn(&str) -> Option<T>, otherwise: T) -> T {
        self.text(key).and_then(|name| from_name(&name)).unwrap_or(otherwise)
    }

    fn argv(&self, key: &str) -> Option<Vec<String>> {
        self.value(key).map(|_| self.list(key))
    }

    fn list(&self, key: &str) -> Vec<String> {
        match self.value(key) {
            Some(SettingValue::List(items)) => items.iter().map(|item| item.value.clone()).collect(),
            _ => Vec::new(),
        }
    }

    fn json(&self, key: &str) -> Json {
        match self.value(key) {
            Some(SettingValue::Json(json)) => json.clone(),
            _ => Json::Null,
        }
    }
}
