//! The settings in force, typed, for other rooms to read.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value as Json;

use super::choice::{
    AuditSync, CommandApproval, Isolation, PackageInstall, Profile, SearchEngine, Tier, ViolationAction,
};
use super::fault::Note;
use super::file::Setting;
use super::grant::granted_by;
use super::origin::Sited;
use super::rate::CallRates;
use super::role::LayerRoles;
use super::rule::Rule;
use crate::block::{BadPattern, BlockList};

/// The settings in force. [`Effective::get`] has the origin of every value.
#[derive(Debug, Clone, PartialEq)]
pub struct Effective {
    /// A named set of tools and defaults.
    pub profile: Profile,
    /// The folder of the service, relative to the project root; `.` is the project root.
    pub service_root: String,
    /// How far reading reaches.
    pub isolation: Isolation,
    /// Folders of the project root that are readable, each with a trailing slash.
    pub shared_paths: Vec<String>,
    /// Blocked patterns, the built-in ones included.
    pub block: Vec<String>,
    /// Folders for new files, each with a trailing slash; `.` is the root level alone, `**` everywhere.
    pub create_in: Vec<String>,
    /// Folders where files may be deleted, beside those.
    pub delete_in: Vec<String>,
    /// Whether executable files are written at all.
    pub write_executables: bool,
    /// Caps.
    pub limits: Limits,
    /// Questions to a human.
    pub approvals: Approvals,
    /// Rules from the organisation's down, in the order of their files.
    pub rules: Vec<Rule>,
    /// Roles per file, from the organisation's down.
    pub roles: Vec<LayerRoles>,
    /// The role of a caller that chooses none.
    pub default_role: Option<Sited<String>>,
    /// Tools and programs.
    pub tools: Tools,
    /// Hosts.
    pub network: Network,
    /// What is secret.
    pub secrets: Secrets,
    /// The sandbox.
    pub sandbox: Sandbox,
    /// Too many refused calls.
    pub violations: Violations,
    /// When the start of a call is synced.
    pub audit_sync: AuditSync,
    /// A file of the workspace that also gets every record.
    pub audit_mirror: Option<String>,
    /// Who keeps the newest checkpoint elsewhere.
    pub audit_witness: Option<AuditWitness>,
    /// What an export does where its words do not say.
    pub audit_export: AuditExport,
    /// What was set aside.
    pub notes: Vec<Note>,
    pub(crate) values: BTreeMap<&'static str, Sited<Setting>>,
    pub(crate) rates: Vec<CallRates>,
}

/// Caps; `_hard` is what a call can ask for, its fellow what it gets without asking.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(missing_docs, reason = "the table of keys describes each")]
pub struct Limits {
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

/// Deadlines of questions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Approvals {
    /// Seconds for MEDIUM.
    pub medium_sec: u64,
    /// Seconds for HIGH.
    pub high_sec: u64,
    /// Seconds that a proposal stands when nobody waits.
    pub proposal_ttl_sec: u64,
    /// Seconds that a grant stands.
    pub grant_sec: u64,
    /// Questions of a session within a minute that nobody agreed to; the next one pauses it.
    pub flood_limit: u64,
    /// Further names whose change is HIGH.
    pub high: Vec<String>,
    /// MCP clients whose answer decides; the user's own file only.
    pub trusted_clients: Vec<String>,
    /// When a human is asked about a MEDIUM command.
    pub commands: CommandApproval,
}

/// Tools and programs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tools {
    /// Programs beside the built-in ones.
    pub whitelisted_binaries: Vec<String>,
    /// Program and arguments of run_test; detected when `None`.
    pub test: Option<Vec<String>>,
    /// Program and arguments of run_lint; detected when `None`.
    pub lint: Option<Vec<String>>,
    /// Whether shell_exec exists.
    pub shell_exec: bool,
    /// The profile for tools.
    pub profile: Profile,
    /// Installations that are not from a lockfile.
    pub package_install: PackageInstall,
    /// Who is asked by web_search, and where that one listens.
    pub web_search: Option<(SearchEngine, Option<String>)>,
    /// Files that declare tools.
    pub specs: Vec<String>,
}

/// Hosts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Network {
    /// Allowed.
    pub allow: Vec<String>,
    /// Refused whatever allows them.
    pub deny: Vec<String>,
    /// Hosts whose TLS ends at the gate.
    pub terminate: Vec<Terminated>,
    /// A file of certificates that are trusted beside the machine's.
    pub roots: Option<String>,
}

/// Hosts whose TLS ends at the gate.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Terminated {
    /// Which.
    pub hosts: Vec<String>,
    /// Methods that pass; all where none is named.
    pub methods: Vec<String>,
    /// Paths that pass; all where none is named.
    pub paths: Vec<String>,
    /// Secret scope, header and variable of a credential.
    pub credential: Option<(String, String, String)>,
}

impl Terminated {
    /// Of entries that were checked when their file was read.
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

/// What is secret.
#[derive(Debug, Clone, PartialEq)]
pub struct Secrets {
    /// Scopes by name, each `{env}` or `{file}`.
    pub scopes: Json,
    /// Further texts to redact.
    pub redact_patterns: Vec<String>,
    /// Known values that are shorter are not looked for.
    pub least_length: u64,
    /// Texts that look like secrets and are none.
    pub not_secret: Vec<String>,
}

/// The sandbox; what is `None` has no configured limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sandbox {
    /// Whether processes are confined.
    pub enabled: bool,
    /// The strength that is demanded.
    pub tier: Tier,
    /// Bytes of memory.
    pub memory: Option<u64>,
    /// Processes.
    pub pids: Option<u64>,
    /// Percent of one core.
    pub cpu: Option<u64>,
    /// Bytes of the private /tmp.
    pub tmp: Option<u64>,
}

/// How records are handed to another system.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct AuditExport {
    /// The form.
    pub format: Option<String>,
    /// The file.
    pub output: Option<String>,
}

/// A witness of the ledger.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AuditWitness {
    /// Where it listens.
    pub url: String,
    /// Its verifier key.
    pub key: String,
}

/// Too many refused calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Violations {
    /// Refused calls that a window may hold.
    pub limit: u64,
    /// Seconds of the window.
    pub window_sec: u64,
    /// What happens past the limit.
    pub action: ViolationAction,
}

impl Effective {
    pub(crate) fn new(
        values: BTreeMap<&'static str, Sited<Setting>>,
        rates: Vec<CallRates>,
        roles: Vec<LayerRoles>,
        default_role: Option<Sited<String>>,
        rules: Vec<Rule>,
        notes: Vec<Note>,
    ) -> Self {
        let read = Reading(&values);
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
            limits: Limits {
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
            approvals: Approvals {
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
            tools: Tools {
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
            network: Network {
                allow: read.list("network.allow"),
                deny: read.list("network.deny"),
                terminate: Terminated::read(&read.json("network.terminate")),
                roots: read.text("network.roots"),
            },
            secrets: Secrets {
                scopes: read.json("secrets.scopes"),
                redact_patterns: read.list("secrets.redact_patterns"),
                least_length: read.int("secrets.least_length"),
                not_secret: read.list("secrets.not_secret"),
            },
            sandbox: Sandbox {
                enabled: read.is_on("sandbox.enabled", true),
                tier: read.choice("sandbox.tier", Tier::from_name, Tier::Namespaces),
                memory: read.maybe_int("sandbox.memory"),
                pids: read.maybe_int("sandbox.pids"),
                cpu: read.maybe_int("sandbox.cpu"),
                tmp: read.maybe_int("sandbox.tmp"),
            },
            violations: Violations {
                limit: read.int("violations.limit"),
                window_sec: read.int("violations.window_sec"),
                action: read.choice("violations.action", ViolationAction::from_name, ViolationAction::End),
            },
            audit_sync: read.choice("audit.sync", AuditSync::from_name, AuditSync::Always),
            audit_mirror: read.text("audit.mirror"),
            audit_witness: read
                .text("audit.witness.url")
                .zip(read.text("audit.witness.key"))
                .map(|(url, key)| AuditWitness { url, key }),
            audit_export: AuditExport {
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

    /// The value of a key in force, with its origin; `None` when unset (and for `roles`,
    /// `approvals.rules` and `limits.calls_per_minute`, which are kept per file).
    #[must_use]
    pub fn get(&self, key: &str) -> Option<&Sited<Setting>> {
        self.values.get(key)
    }

    /// The blocked patterns, compiled.
    pub fn block_list(&self) -> Result<BlockList, BadPattern> {
        BlockList::new(&self.block)
    }

    /// Calls per minute of a session for a tool, by its names: its own, its aliases, `group:NAME`. The
    /// lowest number of all files; `None`: no limit.
    #[must_use]
    pub fn calls_per_minute(&self, names: &[&str]) -> Option<&Sited<u64>> {
        self.rates.iter().filter_map(|rates| rates.lookup(names)).min_by_key(|rate| rate.value)
    }

    /// The roles that a caller may choose (T5): those that the organisation names, else those that the user
    /// names. Empty when neither names one; then only [`Self::default_role`] is there.
    #[must_use]
    pub fn granted_roles(&self) -> BTreeSet<String> {
        granted_by(&self.roles)
    }
}

/// Typed reading of combined values. What is missing reads as the narrowest.
struct Reading<'a>(&'a BTreeMap<&'static str, Sited<Setting>>);

impl Reading<'_> {
    fn value(&self, key: &str) -> Option<&Setting> {
        self.0.get(key).map(|value| &value.value)
    }

    fn maybe_int(&self, key: &str) -> Option<u64> {
        match self.value(key) {
            Some(Setting::Int(value)) => Some(*value),
            _ => None,
        }
    }

    fn int(&self, key: &str) -> u64 {
        self.maybe_int(key).unwrap_or_default()
    }

    fn is_on(&self, key: &str, otherwise: bool) -> bool {
        match self.value(key) {
            Some(Setting::Bool(value)) => *value,
            _ => otherwise,
        }
    }

    fn text(&self, key: &str) -> Option<String> {
        match self.value(key) {
            Some(Setting::Text(text)) => Some(text.clone()),
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
            Some(Setting::List(items)) => items.iter().map(|item| item.value.clone()).collect(),
            _ => Vec::new(),
        }
    }

    fn json(&self, key: &str) -> Json {
        match self.value(key) {
            Some(Setting::Json(json)) => json.clone(),
            _ => Json::Null,
        }
    }
}
