//! The desk: a project's settings, policy, files and ledger, opened and put together for one caller. Whatever cannot
//! be opened or read is a failure, and nothing is called then.
#![expect(
    clippy::disallowed_methods,
    reason = "the files of the organisation and the user are read by their path"
)]

mod refusing;
mod web;

pub(crate) use web::trust;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use vambrace_broker::{AskedCall, Asking, Broker, Pace, Parts, Person, Violations};
use vambrace_core::config::{self, ConfigError, Effective, Isolation, Profile, ViolationAction};
use vambrace_core::digest::Digest;
use vambrace_core::error::ErrorCode;
use vambrace_core::id::Id;
use vambrace_core::policy::Policy;
use vambrace_core::policy::compile::{BadPolicy, ground};
use vambrace_core::principal::{Peer, Principal};
use vambrace_core::redacted::{Redact, Redacted};
use vambrace_core::session::SessionState;
use vambrace_core::skill::Skill;
use vambrace_core::tool::ToolFacts;
use vambrace_core::verdict::{LayerKind, Site};
use vambrace_redact::Redactor;
use vambrace_sandbox::{Journaled, Places};
use vambrace_store::{Options, SqliteStore, StateDir, Store as _, Text};
use vambrace_tools::{Catalogue, Changes, Limits, Room};
use vambrace_workspace::{Applier, LoomLimits, ScopeRules, Workspace};

use crate::args::Seat;
use crate::failure::{Failure, exit};
use crate::found;
use crate::machine::{self, SystemChance, SystemClock};
use crate::places;
use crate::project::ProjectFiles;
use crate::vault::Vault;
use crate::witness;

/// How far a search may go on.
const SEARCH_DEADLINE: Duration = Duration::from_secs(30);

/// How the project's own files stand.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Trust {
    /// There are none.
    NoFiles,
    /// Pinned, and as they were.
    Trusted,
    /// Never trusted.
    Untrusted,
    /// Changed since they were trusted.
    Changed,
}

/// Settings of one project.
#[derive(Debug)]
pub(crate) struct Settings {
    pub(crate) project: PathBuf,
    pub(crate) files: ProjectFiles,
    pub(crate) trust: Trust,
    pub(crate) effective: Effective,
}

/// Everything for calls of one caller.
pub(crate) struct Desk {
    pub(crate) broker: Broker,
    pub(crate) peer: Peer,
    project: PathBuf,
    store: Arc<SqliteStore>,
    revision: Digest,
    damage: Option<String>,
    vault: Arc<Vault>,
    trusted_clients: Vec<String>,
}

/// Opens state and ledger.
pub(crate) fn open_store() -> Result<Arc<SqliteStore>, Failure> {
    open_with(Options::new(Arc::new(SystemClock)))
}

/// Opens a ledger that was set back or rewritten all the same, which is put on record.
pub(crate) fn acknowledge_rollback() -> Result<(), Failure> {
    open_with(Options { acknowledge_rollback: true, ..Options::new(Arc::new(SystemClock)) }).map(drop)
}

fn open_with(options: Options) -> Result<Arc<SqliteStore>, Failure> {
    let options = Options { anchors: places::anchors(), witness: witness::configured()?, ..options };
    Ok(Arc::new(SqliteStore::open(StateDir::open(places::state()?)?, &options)?))
}

/// How a project is called in the table of trust.
pub(crate) fn project_key(project: &Path) -> Digest {
    Digest::of(project.as_os_str().as_encoded_bytes())
}

impl Settings {
    /// Reads the three files and puts them together.
    pub(crate) async fn load(project: &Path, store: &SqliteStore) -> Result<Self, Failure> {
        let files = ProjectFiles::open(project)?;
        let (trust, _) = found::standing(project, &files, store).await?;
        let effective = found::combine(&found::find(&files, trust == Trust::Trusted)?)
            .map_err(|errors| bad_configuration(&errors))?;
        Ok(Self { project: project.to_owned(), files, trust, effective })
    }

    /// The policy for a caller, or every fault in it.
    pub(crate) fn policy(&self, seat: &Seat, tools: &[Arc<ToolFacts>]) -> Result<Policy, Failure> {
        let skill = seat.skill.as_deref().map(|name| self.skill(name)).transpose()?;
        let mut policy = Policy::compile(&self.effective, seat.role.as_deref(), skill, tools)
            .map_err(|faults| bad_policy(&faults))?;
        if policy.role.is_err() && seat.role.is_none() {
            let why = match self.trust {
                Trust::Untrusted => {
                    "the project's configuration is not trusted yet, so no role is in force; look at it, then run `vambrace trust`"
                }
                Trust::Changed => {
                    "the project's configuration has changed since it was trusted, so no role is in force; look at it, then run `vambrace trust`"
                }
                Trust::NoFiles | Trust::Trusted => return Ok(policy),
            };
            policy.role = Err(why.to_owned());
        }
        Ok(policy)
    }

    fn skill(&self, name: &str) -> Result<Skill, Failure> {
        let at = Site { file: format!(".vambrace/skills/{name}/manifest.json"), line: 0 };
        let manifest = self.files.manifest(name)?.ok_or_else(|| {
            let hint = "skills are folders with a manifest.json below `.vambrace/skills`";
            Failure::denied(ErrorCode::PermissionDenied, format!("there is no skill `{name}`"), hint)
        })?;
        let ground = ground(&self.effective, Some(LayerKind::Project));
        Skill::from_manifest(name, at, &manifest, &ground).map_err(|bad| {
            Failure::denied(ErrorCode::PermissionDenied, bad.to_string(), "correct the manifest")
        })
    }

    /// The project's files as the tools may see them.
    pub(crate) fn workspace(&self) -> Result<Workspace, Failure> {
        let settings = &self.effective;
        let block = settings.block_list().map_err(|bad| Failure::failed(bad.to_string()))?;
        let rules = ScopeRules {
            service_root: settings.service_root.clone(),
            isolation: match settings.isolation {
                Isolation::Strict => vambrace_workspace::Isolation::Strict,
                Isolation::Shared => vambrace_workspace::Isolation::Shared,
            },
            shared_paths: settings.shared_paths.clone(),
            block,
        };
        Workspace::open(&self.project, rules).map_err(|error| {
            Failure::denied(ErrorCode::ScopeViolation, error.to_string(), "run `vambrace doctor`")
        })
    }
}

impl Desk {
    /// Opens everything for a caller.
    pub(crate) async fn open(seat: &Seat, agent: &str, door: &'static str) -> Result<Self, Failure> {
        let project = places::project(seat.workspace.as_deref())?;
        let store = open_store()?;
        let principal = Principal {
            tenant: "default".to_owned(),
            user: machine::user(),
            agent: agent.to_owned(),
            sub_agent: None,
            skill: seat.skill.clone(),
        };
        let peer = Peer { principal, session: session(seat, &project, door)?, door };
        let desk = Self::assemble(seat, project, store, peer, door == "cli").await?;
        desk.broker.recover().await.map_err(Failure::of)?;
        Ok(desk)
    }

    /// The desk at which a call was made that waits for a decision: its project, role, skill and session, under the
    /// configuration as it is now.
    pub(crate) async fn of_call(call: &AskedCall, store: Arc<SqliteStore>) -> Result<Self, Failure> {
        let project = PathBuf::from(&call.project);
        let seat = Seat {
            workspace: Some(project.clone()),
            role: call.role.clone(),
            skill: call.peer.principal.skill.clone(),
            session: Some(call.peer.session.to_string()),
        };
        let desk = Self::assemble(&seat, project, store, call.peer.clone(), false).await?;
        desk.broker.recover().await.map_err(Failure::of)?;
        Ok(desk)
    }

    /// The desk of a project, for what a person does there.
    pub(crate) async fn at(seat: &Seat, store: Arc<SqliteStore>) -> Result<Self, Failure> {
        let project = places::project(seat.workspace.as_deref())?;
        let principal = Principal {
            tenant: "default".to_owned(),
            user: machine::user(),
            agent: "command-line".to_owned(),
            sub_agent: None,
            skill: None,
        };
        let peer = Peer { principal, session: session(seat, &project, "cli")?, door: "cli" };
        let desk = Self::assemble(seat, project, store, peer, false).await?;
        desk.broker.recover().await.map_err(Failure::of)?;
        Ok(desk)
    }

    /// State and ledger.
    pub(crate) fn store(&self) -> &Arc<SqliteStore> {
        &self.store
    }

    /// Whether an answer through this client decides: only the user's own file says so.
    pub(crate) fn trusts_client(&self, name: &str) -> bool {
        self.trusted_clients.iter().any(|trusted| trusted == name)
    }

    /// The same under the configuration as it is now.
    pub(crate) async fn renewed(&self, seat: &Seat) -> Result<Self, Failure> {
        Self::assemble(seat, self.project.clone(), Arc::clone(&self.store), self.peer.clone(), false).await
    }

    async fn assemble(
        seat: &Seat,
        project: PathBuf,
        store: Arc<SqliteStore>,
        peer: Peer,
        one_call: bool,
    ) -> Result<Self, Failure> {
        // What a run in a sandbox had half taken over when it was killed.
        Journaled::recover(&Places::below(&places::state()?));
        let revision = revision(&project, &store).await?;
        let catalogue = catalogue()?;
        let facts = facts(&catalogue);
        let loaded = match load(seat, &project, &store, &facts).await {
            Err(failure) if failure.exit == exit::BAD_USAGE => return Err(failure),
            // Whatever is wrong with the configuration: calls are denied, with the reason, on record.
            Err(failure) => Loaded::damaged(&project, &failure)?,
            Ok(loaded) => loaded,
        };
        let Loaded { settings, policy, workspace } = loaded;
        let damage = policy.damage.clone();
        let vault = Arc::new(Vault::open(&settings.secrets)?);
        let redactor: Arc<dyn Redact> = Arc::new(vault.redactor().clone());
        let trusted_clients = settings.approvals.trusted_clients.clone();
        let parts = Parts {
            asking: asking(&settings),
            asked_role: seat.role.clone(),
            role: policy.role.as_ref().map_or_else(|_| "none".to_owned(), |role| role.name().to_string()),
            policy: Arc::new(policy),
            room: Room {
                changes: changes(&workspace, &settings, Arc::clone(&redactor), &store, one_call)?,
                workspace: Arc::new(workspace),
                limits: limits(&settings),
                web: web::web(&settings, &vault)?,
            },
            store: store.clone(),
            redactor,
            clock: Arc::new(SystemClock),
            chance: Arc::new(SystemChance),
            project: project.display().to_string(),
            sync: settings.audit_sync,
            violations: violations(&settings),
            pace: pace(&settings, &facts),
            catalogue,
        };
        let broker = Broker::new(parts);
        Ok(Self { broker, peer, project, store, revision, damage, vault, trusted_clients })
    }

    /// Whether the configuration or the trust in it is another by now.
    pub(crate) async fn is_outdated(&self) -> bool {
        // A secret that cannot be read any more leaves the known values as they were.
        let _ = self.vault.renew();
        revision(&self.project, &self.store).await.ok() != Some(self.revision)
    }

    /// A failure where the configuration cannot be used.
    pub(crate) fn check(&self) -> Result<(), Failure> {
        match &self.damage {
            Some(why) => Err(Failure::denied(ErrorCode::PermissionDenied, why.clone(), DAMAGED_HINT)),
            None => Ok(()),
        }
    }
}

const DAMAGED_HINT: &str =
    "nothing runs under a damaged policy: correct the places named; `vambrace policy check` tells them again";

/// What a configuration amounts to.
struct Loaded {
    settings: Effective,
    policy: Policy,
    workspace: Workspace,
}

async fn load(
    seat: &Seat,
    project: &Path,
    store: &SqliteStore,
    facts: &[Arc<ToolFacts>],
) -> Result<Loaded, Failure> {
    let settings = Settings::load(project, store).await?;
    let policy = settings.policy(seat, facts)?;
    let workspace = settings.workspace()?;
    Ok(Loaded { settings: settings.effective, policy, workspace })
}

impl Loaded {
    fn damaged(project: &Path, failure: &Failure) -> Result<Self, Failure> {
        let fault = |why: String| Failure::failed(why);
        let policy = Policy::damaged(&failure.error.message).map_err(|bad| fault(bad.to_string()))?;
        let workspace = Workspace::open(project, ScopeRules::new("", policy.block.clone()))
            .map_err(|error| fault(error.to_string()))?;
        Ok(Self { settings: config::combine(None, None, None), policy, workspace })
    }
}

/// What the configuration depends on, in one digest: the bytes of every file and what was trusted.
async fn revision(project: &Path, store: &SqliteStore) -> Result<Digest, Failure> {
    let own = match ProjectFiles::open(project) {
        Ok(files) => files.digest().map(|digest| digest.to_string()),
        Err(failure) => Some(failure.error.message),
    };
    let above = found::above()
        .into_iter()
        .flat_map(|(_, path, _)| [path.display().to_string().into_bytes(), bytes(&path)]);
    let trusted = store.trust(project_key(project)).await?.map(|row| row.digest.to_string());
    let mut parts: Vec<Vec<u8>> = above.collect();
    parts.extend([own, trusted].map(|text| text.unwrap_or_default().into_bytes()));
    Ok(Digest::of_parts(parts.iter().map(Vec::as_slice)))
}

fn bytes(path: &Path) -> Vec<u8> {
    std::fs::read(path).unwrap_or_else(|error| error.to_string().into_bytes())
}

/// The built-in tools.
pub(crate) fn catalogue() -> Result<Arc<Catalogue>, Failure> {
    Catalogue::built_in().map(Arc::new).map_err(|error| Failure::failed(error.message))
}

/// What the decisions need to know of them.
pub(crate) fn facts(catalogue: &Catalogue) -> Vec<Arc<ToolFacts>> {
    catalogue.tools().map(|tool| Arc::clone(tool.facts())).collect()
}

fn session(seat: &Seat, project: &Path, door: &'static str) -> Result<Id, Failure> {
    if let Some(id) = &seat.session {
        return Id::new(id).map_err(|bad| {
            Failure::usage(format!("session `{id}` is {bad}"), "use letters, digits, `-`, `_`")
        });
    }
    if door == "mcp" {
        let mut random = [0; 10];
        let chance = vambrace_core::clock::Chance::draw(&SystemChance).to_be_bytes();
        random.iter_mut().zip(chance).for_each(|(to, from)| *to = from);
        let now = vambrace_core::clock::Clock::now(&SystemClock).millis().unsigned_abs();
        return Ok(Id::timed("mcp-", now, random));
    }
    let key = Digest::of_parts([machine::user().as_bytes(), project.as_os_str().as_encoded_bytes()]);
    let hex: String = key.hex().iter().take(12).map(|digit| char::from(*digit)).collect();
    Id::new(&format!("{door}-{hex}")).map_err(|bad| Failure::failed(bad.to_string()))
}

fn asking(settings: &Effective) -> Asking {
    let ms = |seconds: u64| i64::try_from(seconds.saturating_mul(1000)).unwrap_or(i64::MAX);
    let approvals = &settings.approvals;
    Asking {
        medium_ms: ms(approvals.medium_sec),
        high_ms: ms(approvals.high_sec),
        proposal_ms: ms(approvals.proposal_ttl_sec),
        grant_ms: ms(approvals.grant_sec),
        flood_limit: u32::try_from(approvals.flood_limit).unwrap_or(u32::MAX),
        person: if settings.profile == Profile::Ci { Person::Nowhere } else { Person::Somewhere },
    }
}

/// Locks and journals lie in the state folder; all processes that work on it share them.
fn changes(
    workspace: &Workspace,
    settings: &Effective,
    redactor: Arc<dyn Redact>,
    store: &SqliteStore,
    one_call: bool,
) -> Result<Changes, Failure> {
    let fault = |error: std::io::Error| Failure::failed(format!("the state folder: {error}"));
    let state = std::fs::File::open(store.dir().path()).map_err(fault)?;
    let folder = |name: &str| vambrace_workspace::state_folder(&state, name).map_err(fault);
    let limits = LoomLimits {
        write_bytes: settings.limits.write_bytes,
        regex_budget: Duration::from_millis(settings.limits.regex_ms),
        ..LoomLimits::default()
    };
    let applier = Applier::new(workspace.clone(), folder("locks")?, folder("journals")?);
    // A process that carries out one call may be ended by whoever waits for its file for too long; a server or a screen not.
    let applier = if one_call { applier.in_a_worker() } else { applier };
    Ok(Changes { applier: Some(applier), redactor, limits })
}

fn limits(settings: &Effective) -> Limits {
    let caps = &settings.limits;
    let count = |number: u64| usize::try_from(number).unwrap_or(usize::MAX);
    Limits {
        read_bytes: caps.read_bytes,
        read_bytes_hard: caps.read_bytes_hard,
        list_entries: count(caps.list_entries),
        output_bytes: count(caps.output_bytes),
        regex: Duration::from_millis(caps.regex_ms),
        search: SEARCH_DEADLINE,
    }
}

fn violations(settings: &Effective) -> Violations {
    let rules = &settings.violations;
    Violations {
        limit: rules.limit,
        window_ms: i64::try_from(rules.window_sec.saturating_mul(1000)).unwrap_or(i64::MAX),
        action: match rules.action {
            ViolationAction::Alert => SessionState::Alert,
            ViolationAction::Suspend => SessionState::Suspended,
            ViolationAction::End => SessionState::Ended,
        },
    }
}

fn pace(settings: &Effective, tools: &[Arc<ToolFacts>]) -> Pace {
    let mut limits = BTreeMap::new();
    for tool in tools {
        let group = format!("group:{}", tool.group.as_str());
        let names: Vec<&str> =
            [tool.name.as_str(), &group].into_iter().chain(tool.aliases.iter().copied()).collect();
        if let Some(rate) = settings.calls_per_minute(&names) {
            limits.insert(tool.name.to_string(), u32::try_from(rate.value).unwrap_or(u32::MAX));
        }
    }
    Pace { default: None, tools: limits }
}

/// Text for a record: nothing is written that the redactor has not seen.
pub(crate) fn clean(text: &str) -> Result<Text, Failure> {
    Redacted::text(text, &redactor()?).map_err(|error| Failure::failed(error.to_string()))
}

/// The redactor where no configuration is at hand: the built-in rules and our own environment.
pub(crate) fn redactor() -> Result<Redactor, Failure> {
    Ok(Vault::open(&config::combine(None, None, None).secrets)?.redactor().clone())
}

fn bad_configuration(errors: &[ConfigError]) -> Failure {
    let list: Vec<String> = errors.iter().map(ToString::to_string).collect();
    let message = format!("the configuration cannot be used:\n{}", list.join("\n"));
    Failure::denied(ErrorCode::PermissionDenied, message, DAMAGED_HINT)
}

fn bad_policy(faults: &[BadPolicy]) -> Failure {
    let list: Vec<String> = faults.iter().map(ToString::to_string).collect();
    let message = format!("the policy cannot be used:\n{}", list.join("\n"));
    Failure::denied(
        ErrorCode::PermissionDenied,
        message,
        "correct the rules named; `vambrace policy test` runs their cases",
    )
}
