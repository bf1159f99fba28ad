//! A policy decision through all layers, with 50 rules in each, and its explanation.

use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Instant;

use serde_json::json;
use vambrace_core::config::{self, ConfigSource};
use vambrace_core::effect::Effect;
use vambrace_core::explain::explain;
use vambrace_core::glob::GlobRoots;
use vambrace_core::id::ToolName;
use vambrace_core::path::AskedPath;
use vambrace_core::plan::Plan;
use vambrace_core::policy::Policy;
use vambrace_core::risk::{Risk, RiskLevel};
use vambrace_core::session::SessionView;
use vambrace_core::settle::settle;
use vambrace_core::skill::Skill;
use vambrace_core::timestamp::Timestamp;
use vambrace_core::tool::{ToolDescriptor, ToolGroup, ToolPolicy};
use vambrace_core::verdict::SourceLocation;

use crate::report::{Report, Requirement};

const RULES: usize = 50;
const ROUNDS: usize = 20_000;

/// Runs the bench.
pub(crate) fn run() -> Report {
    let tool = Arc::new(ToolDescriptor {
        name: ToolName::new("read_file"),
        aliases: vec!["file.read".to_owned()],
        group: ToolGroup::Fs,
        policy: ToolPolicy::READ_FILES,
        required_role: None,
        risk: RiskLevel::Low,
        read_only: true,
    });
    let policy = policy(&tool);
    let plan = |path: &str| Plan {
        tool: Arc::clone(&tool),
        args: json!({"path": path}),
        effects: vec![Effect::read(AskedPath::new(path).parse().expect("a plain path"))],
        content_digest: None,
        risk: Risk::low("it only reads"),
        workspace_denial: None,
    };
    let plans =
        [plan("docs/guide/chapter.md"), plan("src/module17/deep/file.rs"), plan("area3/private/x.txt")];
    let mut report = Report::new("decide");
    let mut decided = Vec::with_capacity(ROUNDS);
    let mut explained = Vec::with_capacity(ROUNDS);
    let mut printed = 0;
    for round in 0..ROUNDS {
        let plan = &plans[round % plans.len()];
        let before = Instant::now();
        let decision = policy.decide(plan, &SessionView::OPEN);
        let settlement = settle(&decision, &[], Timestamp::from_millis(0));
        decided.push(before.elapsed().as_nanos());
        let told_at = Instant::now();
        printed += explain(plan, &decision, &settlement, "r").to_string().len();
        explained.push(told_at.elapsed().as_nanos());
    }
    let p50 = |times: &mut Vec<u128>| {
        times.sort_unstable();
        times[times.len() / 2] as f64 / 1000.0
    };
    let rules: usize = policy.rules.iter().map(|(_, table)| table.rules().len()).sum();
    report.add("rules in the three files", rules as f64, "");
    report.add("bytes of an explanation", printed as f64 / ROUNDS as f64, "bytes");
    report.require(
        "decide and settle, with every reason, p50",
        p50(&mut decided),
        "us",
        Requirement::AtMost(10.0),
    );
    report.add("rendering that explanation as JSON text, p50", p50(&mut explained), "us");
    report
}

fn policy(tool: &Arc<ToolDescriptor>) -> Policy {
    let rules = |file: &str| {
        let mut text = String::from("approvals:\n  rules:\n");
        for n in 0..RULES {
            let decision = if n % 2 == 0 { "ask" } else { "deny" };
            let _ = write!(
                text,
                "    - id: {file}-{n}\n      tools: [read_file, 'git_*']\n      paths: ['area{n}/private/**', '{file}{n}/*.key']\n      decision: {decision}\n"
            );
        }
        text
    };
    let mut user = rules("user");
    let _ = write!(user, "roles:\n  default: wide\n  wide:\n    paths: [docs/, 'area*/'");
    (0..RULES).for_each(|n| {
        let _ = write!(user, ", 'src/module{n}/**'");
    });
    user.push_str("]\n");
    let file =
        |text: String, name: &str, source| Some(config::parse(&text, name, source).expect("a valid file"));
    let settings = config::combine(
        file(rules("org"), "org.yaml", ConfigSource::Organisation),
        file(user, "user.yaml", ConfigSource::User),
        file(rules("project"), "project.yaml", ConfigSource::Project { trusted: true }),
    );
    let globs: Vec<String> = (0..RULES)
        .map(|n| format!("src/module{n}/**"))
        .chain(["docs/".to_owned(), "area*/".to_owned()])
        .collect();
    let manifest = json!({"permissions": {"tool_groups": ["fs"], "fs": {"read": globs}}}).to_string();
    let site = SourceLocation { file: "manifest.json".to_owned(), line: 0 };
    let skill =
        Skill::from_manifest("bench", site, &manifest, &GlobRoots::plain()).expect("a valid manifest");
    Policy::compile(&settings, None, Some(skill), std::slice::from_ref(tool)).expect("a policy")
}
