//! A decision through all layers, 50 rules in each, with its explanation.

use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Instant;

use serde_json::json;
use vambrace_core::config::{self, Source};
use vambrace_core::effect::Effect;
use vambrace_core::explain::explain;
use vambrace_core::glob::Ground;
use vambrace_core::id::ToolName;
use vambrace_core::path::AskedPath;
use vambrace_core::plan::Plan;
use vambrace_core::policy::Policy;
use vambrace_core::risk::{Level, Risk};
use vambrace_core::session::SessionView;
use vambrace_core::settle::settle;
use vambrace_core::skill::Skill;
use vambrace_core::timestamp::Timestamp;
use vambrace_core::tool::{Group, ToolFacts, ToolPolicy};
use vambrace_core::verdict::Site;

use crate::report::{Must, Report};

const RULES: usize = 50;
const ROUNDS: usize = 20_000;

/// Runs the bench.
pub(crate) fn run() -> Report {
    let tool = Arc::new(ToolFacts {
        name: ToolName::new("read_file"),
        aliases: &["file.read"],
        group: Group::Fs,
        policy: ToolPolicy::READS_FILES,
        required_role: None,
        risk: Level::Low,
        read_only: true,
    });
    let policy = policy(&tool);
    let plan = |path: &str| Plan {
        tool: Arc::clone(&tool),
        args: json!({"path": path}),
        effects: vec![Effect::read(AskedPath::new(path).parse().expect("a plain path"))],
        binds: None,
        risk: Risk::low("it only reads"),
        refused: None,
    };
    let plans =
        [plan("docs/guide/chapter.md"), plan("src/module17/deep/file.rs"), plan("area3/private/x.txt")];
    let mut report = Report::new("decide");
    let mut decided = Vec::with_capacity(ROUNDS);
    let mut explained = Vec::with_capacity(ROUNDS);
    let mut told = 0;
    for round in 0..ROUNDS {
        let plan = &plans[round % plans.len()];
        let before = Instant::now();
        let decision = policy.decide(plan, &SessionView::OPEN);
        let settlement = settle(&decision, &[], Timestamp::from_millis(0));
        decided.push(before.elapsed().as_nanos());
        let told_at = Instant::now();
        told += explain(plan, &decision, &settlement, "r").to_string().len();
        explained.push(told_at.elapsed().as_nanos());
    }
    let p50 = |times: &mut Vec<u128>| {
        times.sort_unstable();
        times[times.len() / 2] as f64 / 1000.0
    };
    let rules: usize = policy.rules.iter().map(|(_, table)| table.rules().len()).sum();
    report.tell("rules in the three files", rules as f64, "");
    report.tell("bytes of an explanation", told as f64 / ROUNDS as f64, "bytes");
    report.must("decide and settle, with every reason, p50", p50(&mut decided), "us", Must::AtMost(10.0));
    report.tell("rendering that explanation as JSON text, p50", p50(&mut explained), "us");
    report
}

fn policy(tool: &Arc<ToolFacts>) -> Policy {
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
        file(rules("org"), "org.yaml", Source::Organisation),
        file(user, "user.yaml", Source::User),
        file(rules("project"), "project.yaml", Source::Project { trusted: true }),
    );
    let globs: Vec<String> = (0..RULES)
        .map(|n| format!("src/module{n}/**"))
        .chain(["docs/".to_owned(), "area*/".to_owned()])
        .collect();
    let manifest = json!({"permissions": {"tool_groups": ["fs"], "fs": {"read": globs}}}).to_string();
    let site = Site { file: "manifest.json".to_owned(), line: 0 };
    let skill = Skill::from_manifest("bench", site, &manifest, &Ground::plain()).expect("a valid manifest");
    Policy::compile(&settings, None, Some(skill), std::slice::from_ref(tool)).expect("a policy")
}
