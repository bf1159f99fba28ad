//! Property tests of the decision model, over random layers, plans and vouchers.

use proptest::prelude::*;

use super::fixtures::*;
use super::{Policy, PolicyDecision};
use crate::digest::Digest;
use crate::effect::{Effect, PathAccess};
use crate::explain::explain;
use crate::glob::GlobRoots;
use crate::path::AskedPath;
use crate::plan::Plan;
use crate::rule;
use crate::session::{CallRate, SessionState, SessionView};
use crate::settle::{Settlement, settle};
use crate::timestamp::Timestamp;
use crate::verdict::{LayerKind, Verdict, VerdictKind};
use crate::voucher::Voucher;

const NOW: Timestamp = Timestamp::from_millis(1_000_000);

fn decide(policy: &Policy, plan: &Plan) -> PolicyDecision {
    policy.decide(plan, &SessionView::OPEN)
}

fn approval(digest: Digest) -> Voucher {
    Voucher::Approval { id: "a-1".to_owned(), digest, expires: NOW.later(1), used: false }
}

/// Vouchers for every obligation.
fn every_voucher(decision: &PolicyDecision) -> Vec<Voucher> {
    let grants = decision.verdict.obligations().map(|ask| Voucher::Grant {
        id: "g".to_owned(),
        about: ask.reason.about.clone(),
        by: LayerKind::Organisation,
        expires: None,
        revoked: false,
    });
    grants.chain([approval(decision.digest)]).collect()
}

fn answer_of(settlement: &Settlement) -> VerdictKind {
    match settlement {
        Settlement::Permitted(_) => VerdictKind::Allow,
        Settlement::Waiting(_) => VerdictKind::Ask,
        Settlement::Denied { .. } => VerdictKind::Deny,
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    // Rules only narrow: one more rule leaves the verdict as it is or makes it stricter.
    #[test]
    fn adding_a_rule_never_lowers_the_verdict_or_widens_the_fence(
        rules in any_rules(), extra in any_rule(), layer in 0usize..3, role in any_role(), plan in any_plan(), probe in any_path(),
    ) {
        let before = decide(&policy(rules.clone(), role, None), &plan);
        let mut more = rules;
        let narrowing = extra.decision != rule::RuleDecision::Allow;
        more[layer].push(extra);
        let after = decide(&policy(more, role, None), &plan);
        prop_assert!(after.verdict.kind() >= before.verdict.kind());
        let settled = (settle(&before, &[], NOW), settle(&after, &[], NOW));
        if narrowing {
            prop_assert!(answer_of(&settled.1) >= answer_of(&settled.0));
        }
        let probe = AskedPath::new(probe).parse().unwrap();
        prop_assert!(before.fence.read.admits(&probe) || !after.fence.read.admits(&probe));
        prop_assert!(before.fence.write.admits(&probe) || !after.fence.write.admits(&probe));
    }

    // S2: a skill only narrows what its role permits.
    #[test]
    fn activating_a_skill_never_widens_permissions(
        rules in any_rules(), role in any_role(), manifest in any_manifest(), plan in any_plan(), probe in any_path(),
    ) {
        let without = decide(&policy(rules.clone(), role, None), &plan);
        let with = decide(&policy(rules, role, Some(&manifest)), &plan);
        prop_assert!(with.verdict.kind() >= without.verdict.kind());
        let probe = AskedPath::new(probe).parse().unwrap();
        prop_assert!(without.fence.read.admits(&probe) || !with.fence.read.admits(&probe));
        if manifest == "{}" {
            prop_assert_eq!(with.verdict.kind(), VerdictKind::Deny);
        }
    }

    // Joining verdicts is commutative, associative and idempotent.
    #[test]
    fn layer_order_does_not_matter(
        rules in any_rules(), role in any_role(), plan in any_plan(), shuffle in Just([0usize, 1, 2]).prop_shuffle(),
    ) {
        let straight = policy(rules, role, None);
        let mut shuffled = straight.clone();
        shuffled.rules = shuffle.iter().map(|&at| straight.rules[at].clone()).collect();
        let (one, other) = (decide(&straight, &plan), decide(&shuffled, &plan));
        prop_assert_eq!(&one.verdict, &other.verdict);
        let mut backwards = Verdict::allow();
        for judgement in one.layers.iter().rev() {
            backwards.join(&judgement.verdict);
            backwards.join(&judgement.verdict);
        }
        prop_assert_eq!(backwards, one.verdict);
    }

    // A denial is final; an approval request is settled by vouchers for all its obligations.
    #[test]
    fn no_voucher_overrides_a_denial(rules in any_rules(), role in any_role(), plan in any_plan()) {
        let decision = decide(&policy(rules, role, None), &plan);
        let settlement = settle(&decision, &every_voucher(&decision), NOW);
        match decision.verdict.kind() {
            VerdictKind::Deny => prop_assert_eq!(answer_of(&settlement), VerdictKind::Deny),
            VerdictKind::Ask | VerdictKind::Allow => prop_assert_eq!(answer_of(&settlement), VerdictKind::Allow),
        }
    }

    // Only a valid voucher for this plan and this obligation counts.
    #[test]
    fn expired_revoked_or_unrelated_vouchers_discharge_nothing(rules in any_rules(), plan in any_plan()) {
        let mut policy = policy(rules, Some("dev"), None);
        for (_, table) in &mut policy.rules {
            let asks = table.rules().iter().filter(|rule| rule.decision == rule::RuleDecision::Ask).cloned().collect();
            *table = rule::RuleTable::new(asks, &GlobRoots::plain()).unwrap();
        }
        let decision = decide(&policy, &plan);
        let about = |ask: &crate::verdict::Obligation| ask.reason.about.clone();
        let mut invalid = vec![
            Voucher::Approval { id: "old".into(), digest: decision.digest, expires: NOW, used: false },
            Voucher::Approval { id: "used".into(), digest: decision.digest, expires: NOW.later(9), used: true },
            approval(Digest::of(b"another plan")),
        ];
        for ask in decision.verdict.obligations() {
            invalid.push(Voucher::Grant { id: "old".into(), about: about(ask), by: LayerKind::Floor, expires: Some(NOW), revoked: false });
            invalid.push(Voucher::Grant { id: "revoked".into(), about: about(ask), by: LayerKind::Floor, expires: None, revoked: true });
            invalid.push(Voucher::Grant { id: "other".into(), about: format!("{}x", about(ask)), by: LayerKind::Floor, expires: None, revoked: false });
        }
        prop_assert_eq!(settle(&decision, &invalid, NOW), settle(&decision, &[], NOW));
    }

    // Equal digests mean equal plans; every changed argument or effect changes the digest.
    #[test]
    fn approval_is_bound_to_every_byte_of_the_plan(plan in any_plan(), other in any_plan(), key in "[a-z]{1,4}") {
        let digest = plan.digest();
        prop_assert_eq!(plan == other, digest == other.digest());
        let mut changed = plan.clone();
        changed.args[key.as_str()] = 1.into();
        prop_assert_ne!(digest, changed.digest());
        let mut longer = plan;
        longer.effects.push(Effect::Secret { scope: key });
        prop_assert_ne!(digest, longer.digest());
    }

    // Decisions and explanations are deterministic.
    #[test]
    fn same_input_gives_the_same_explanation(rules in any_rules(), role in any_role(), plan in any_plan()) {
        let explanation = || {
            let policy = policy(rules.clone(), role, None);
            let decision = decide(&policy, &plan);
            explain(&plan, &decision, &settle(&decision, &[], NOW), &policy.revision.to_string()).to_string()
        };
        prop_assert_eq!(explanation(), explanation());
    }

    // What is hidden from the tool list cannot be called either, with any voucher.
    #[test]
    fn tool_that_is_not_offered_is_never_allowed(
        rules in any_rules(), role in any_role(), manifest in prop::option::of(any_manifest()), plan in any_plan(),
    ) {
        let policy = policy(rules, role, manifest.as_deref());
        if !policy.offers(&plan.tool) {
            let decision = decide(&policy, &plan);
            prop_assert_eq!(answer_of(&settle(&decision, &every_voucher(&decision), NOW)), VerdictKind::Deny);
        }
    }

    // The fence is the meet of all layers.
    #[test]
    fn fence_is_within_the_fence_of_every_layer(
        rules in any_rules(), role in any_role(), manifest in prop::option::of(any_manifest()), plan in any_plan(), probe in any_path(),
    ) {
        let decision = decide(&policy(rules, role, manifest.as_deref()), &plan);
        let probe = AskedPath::new(probe).parse().unwrap();
        for judgement in &decision.layers {
            prop_assert!(!decision.fence.read.admits(&probe) || judgement.fence.read.admits(&probe));
            prop_assert!(!decision.fence.write.admits(&probe) || judgement.fence.write.admits(&probe));
            prop_assert!(!decision.fence.secrets.admits("API_TOKEN") || judgement.fence.secrets.admits("API_TOKEN"));
            prop_assert!(!decision.fence.hosts.admits("example.com") || judgement.fence.hosts.admits("example.com"));
        }
    }

    // Removing every cited rule of the rule layers lowers the verdict.
    #[test]
    fn explanations_cite_the_rules_that_decided(rules in any_rules(), plan in any_plan()) {
        let policy = policy(rules, Some("sre"), None);
        let decision = decide(&policy, &plan);
        let answer = decision.verdict.kind();
        prop_assert_eq!(decision.verdict.causes().count() == 0, answer == VerdictKind::Allow);
        let from_rules = |layer| matches!(layer, LayerKind::Organisation | LayerKind::User | LayerKind::Project);
        if answer != VerdictKind::Allow && decision.verdict.causes().all(|cause| from_rules(cause.layer)) {
            let mut without = policy.clone();
            for (layer, table) in &mut without.rules {
                let kept = table
                    .rules()
                    .iter()
                    .filter(|rule| {
                        !decision.verdict.causes().any(|cause| cause.layer == *layer && cause.rule == rule.id && cause.at == rule.at)
                    })
                    .cloned()
                    .collect();
                *table = rule::RuleTable::new(kept, &GlobRoots::plain()).unwrap();
            }
            prop_assert!(decide(&without, &plan).verdict.kind() < answer);
        }
    }

    // A path that a rule denies or asks about by name is not found by a directory walk either.
    #[test]
    fn walk_never_reads_a_path_that_reading_by_name_would_not(rules in any_rules(), role in any_role(), path in any_path()) {
        let policy = policy(rules, role, None);
        let tool = &tools()[0];
        let path = AskedPath::new(path).parse().unwrap();
        let walk = decide(&policy, &plan(tool, vec![Effect::read_tree(crate::path::ScopedPath::root(path.zone()))]));
        let by_name = decide(&policy, &plan(tool, vec![Effect::read(path.clone())]));
        if walk.fence.read.admits(&path) && walk.verdict.kind() == VerdictKind::Allow {
            prop_assert!(by_name.verdict.kind() == VerdictKind::Allow || policy.block.blocks(path.relative()).is_some());
        }
    }
}

fn check(role: Option<&str>, tool: &str, effects: Vec<Effect>, expected: VerdictKind) {
    let tool = tools().into_iter().find(|known| known.name.as_str() == tool).unwrap();
    let decision = decide(&policy([vec![], vec![], vec![]], role, None), &plan(&tool, effects));
    assert_eq!(decision.verdict.kind(), expected, "{role:?} {} {:?}", tool.name, decision.verdict);
}

fn path(access: PathAccess, path: &str) -> Effect {
    Effect::Path {
        access,
        extent: crate::effect::Extent::Single,
        path: AskedPath::new(path).parse().unwrap(),
    }
}

// T5: the role matrix
#[test]
fn built_in_roles_follow_the_matrix() {
    let read = |at| vec![path(PathAccess::Read, at)];
    for role in ["dev", "sre", "release_manager"] {
        check(Some(role), "read_file", read("src/x"), VerdictKind::Allow);
        check(Some(role), "write_file", vec![path(PathAccess::Modify, "src/x")], VerdictKind::Allow);
    }
    check(Some("dev"), "git_push", vec![], VerdictKind::Deny);
    check(Some("sre"), "git_push", vec![], VerdictKind::Deny);
    check(Some("release_manager"), "git_push", vec![], VerdictKind::Allow);
    check(Some("dev"), "system_ctl", vec![], VerdictKind::Deny);
    check(Some("release_manager"), "system_ctl", vec![], VerdictKind::Deny);
    check(Some("sre"), "system_ctl", vec![], VerdictKind::Allow);
    check(Some("product_owner"), "read_file", read("docs/a.txt"), VerdictKind::Allow);
    check(Some("product_owner"), "read_file", read("src/notes.md"), VerdictKind::Allow);
    check(Some("product_owner"), "read_file", read("src/main.rs"), VerdictKind::Deny);
    check(
        Some("product_owner"),
        "write_file",
        vec![path(PathAccess::Modify, "docs/a.md")],
        VerdictKind::Deny,
    );
    check(Some("unknown"), "read_file", read("docs/a.md"), VerdictKind::Deny);
    check(None, "read_file", read("docs/a.md"), VerdictKind::Deny);
}

// T12: shared directories are read-only; P4: a tool's declared policy is enforced
#[test]
fn floor_and_declared_policy_deny() {
    check(Some("dev"), "write_file", vec![path(PathAccess::Modify, "project:shared/x")], VerdictKind::Deny);
    check(Some("dev"), "read_file", vec![path(PathAccess::Read, "project:shared/x")], VerdictKind::Allow);
    check(Some("dev"), "read_file", vec![path(PathAccess::Modify, "src/x")], VerdictKind::Deny);
    check(Some("dev"), "read_file", vec![path(PathAccess::Read, ".env")], VerdictKind::Deny);
    check(Some("dev"), "read_file", vec![Effect::Connect { host: "a".into(), port: 1 }], VerdictKind::Deny);
    check(Some("dev"), "read_file", vec![Effect::Secret { scope: "a".into() }], VerdictKind::Deny);
}

// T23, T25
#[test]
fn suspended_or_rate_limited_session_is_denied() {
    let policy = policy([vec![], vec![], vec![]], Some("dev"), None);
    let plan = plan(&tools()[0], vec![]);
    for (state, expected) in [
        (SessionState::Active, VerdictKind::Allow),
        (SessionState::Alert, VerdictKind::Allow),
        (SessionState::Suspended, VerdictKind::Deny),
        (SessionState::Ended, VerdictKind::Deny),
    ] {
        let view = SessionView { state, call_rate: None };
        assert_eq!(policy.decide(&plan, &view).verdict.kind(), expected);
    }
    let view = SessionView {
        state: SessionState::Active,
        call_rate: Some(CallRate { calls: 5, limit: 5, wait_ms: 1500 }),
    };
    let decision = policy.decide(&plan, &view);
    assert_eq!(decision.verdict.denials().next().unwrap().code, crate::ErrorCode::RateLimited);
    assert!(decision.verdict.causes().next().unwrap().why.contains("wait 2 s"));
}
