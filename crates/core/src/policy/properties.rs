//! The properties that the decision model promises, each over random layers, plans and vouchers.

use proptest::prelude::*;

use super::samples::*;
use super::{Decision, Policy};
use crate::digest::Digest;
use crate::effect::{Access, Effect};
use crate::explain::explain;
use crate::glob::Ground;
use crate::path::AskedPath;
use crate::plan::Plan;
use crate::rule;
use crate::session::{Pace, SessionState, SessionView};
use crate::settle::{Settlement, settle};
use crate::timestamp::Timestamp;
use crate::verdict::{Answer, LayerKind, Verdict};
use crate::voucher::Voucher;

const NOW: Timestamp = Timestamp::from_millis(1_000_000);

fn decide(policy: &Policy, plan: &Plan) -> Decision {
    policy.decide(plan, &SessionView::OPEN)
}

fn approval(digest: Digest) -> Voucher {
    Voucher::Approval { id: "a-1".to_owned(), digest, expires: NOW.later(1), used: false }
}

/// Everything that could conceivably help.
fn every_voucher(decision: &Decision) -> Vec<Voucher> {
    let grants = decision.verdict.obligations().map(|ask| Voucher::Grant {
        id: "g".to_owned(),
        about: ask.reason.about.clone(),
        by: LayerKind::Organisation,
        expires: None,
        revoked: false,
    });
    grants.chain([approval(decision.digest)]).collect()
}

fn answer_of(settlement: &Settlement) -> Answer {
    match settlement {
        Settlement::Permitted(_) => Answer::Allow,
        Settlement::Waiting(_) => Answer::Ask,
        Settlement::Refused { .. } => Answer::Deny,
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    // Decision model, property 1, DESIGN 1.2
    #[test]
    fn adding_a_rule_never_lowers_a_verdict_nor_widens_the_fence(
        rules in any_rules(), extra in any_rule(), layer in 0usize..3, role in any_role(), plan in any_plan(), probe in any_path(),
    ) {
        let before = decide(&policy(rules.clone(), role, None), &plan);
        let mut more = rules;
        let narrowing = extra.decision != rule::Decision::Allow;
        more[layer].push(extra);
        let after = decide(&policy(more, role, None), &plan);
        prop_assert!(after.verdict.answer() >= before.verdict.answer());
        let settled = (settle(&before, &[], NOW), settle(&after, &[], NOW));
        if narrowing {
            prop_assert!(answer_of(&settled.1) >= answer_of(&settled.0));
        }
        let probe = AskedPath::new(probe).parse().unwrap();
        prop_assert!(before.fence.read.admits(&probe) || !after.fence.read.admits(&probe));
        prop_assert!(before.fence.write.admits(&probe) || !after.fence.write.admits(&probe));
    }

    // Decision model, property 2, S2
    #[test]
    fn activating_a_skill_never_widens(
        rules in any_rules(), role in any_role(), manifest in any_manifest(), plan in any_plan(), probe in any_path(),
    ) {
        let without = decide(&policy(rules.clone(), role, None), &plan);
        let with = decide(&policy(rules, role, Some(&manifest)), &plan);
        prop_assert!(with.verdict.answer() >= without.verdict.answer());
        let probe = AskedPath::new(probe).parse().unwrap();
        prop_assert!(without.fence.read.admits(&probe) || !with.fence.read.admits(&probe));
        if manifest == "{}" {
            prop_assert_eq!(with.verdict.answer(), Answer::Deny);
        }
    }

    // Decision model, property 3
    #[test]
    fn the_order_of_the_layers_does_not_matter(
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

    // Decision model, property 4
    #[test]
    fn no_voucher_beats_a_deny(rules in any_rules(), role in any_role(), plan in any_plan()) {
        let decision = decide(&policy(rules, role, None), &plan);
        let settlement = settle(&decision, &every_voucher(&decision), NOW);
        match decision.verdict.answer() {
            Answer::Deny => prop_assert_eq!(answer_of(&settlement), Answer::Deny),
            Answer::Ask | Answer::Allow => prop_assert_eq!(answer_of(&settlement), Answer::Allow),
        }
    }

    // Decision model, property 5
    #[test]
    fn an_expired_revoked_or_foreign_voucher_is_no_voucher(rules in any_rules(), plan in any_plan()) {
        let mut policy = policy(rules, Some("dev"), None);
        for (_, table) in &mut policy.rules {
            let asks = table.rules().iter().filter(|rule| rule.decision == rule::Decision::Ask).cloned().collect();
            *table = rule::RuleTable::new(asks, &Ground::plain()).unwrap();
        }
        let decision = decide(&policy, &plan);
        let about = |ask: &crate::verdict::Obligation| ask.reason.about.clone();
        let mut dead = vec![
            Voucher::Approval { id: "old".into(), digest: decision.digest, expires: NOW, used: false },
            Voucher::Approval { id: "used".into(), digest: decision.digest, expires: NOW.later(9), used: true },
            approval(Digest::of(b"another plan")),
        ];
        for ask in decision.verdict.obligations() {
            dead.push(Voucher::Grant { id: "old".into(), about: about(ask), by: LayerKind::Floor, expires: Some(NOW), revoked: false });
            dead.push(Voucher::Grant { id: "revoked".into(), about: about(ask), by: LayerKind::Floor, expires: None, revoked: true });
            dead.push(Voucher::Grant { id: "other".into(), about: format!("{}x", about(ask)), by: LayerKind::Floor, expires: None, revoked: false });
        }
        prop_assert_eq!(settle(&decision, &dead, NOW), settle(&decision, &[], NOW));
    }

    // Decision model, property 7
    #[test]
    fn an_approval_is_bound_to_every_byte_of_the_plan(plan in any_plan(), other in any_plan(), key in "[a-z]{1,4}") {
        let digest = plan.digest();
        prop_assert_eq!(plan == other, digest == other.digest());
        let mut changed = plan.clone();
        changed.args[key.as_str()] = 1.into();
        prop_assert_ne!(digest, changed.digest());
        let mut longer = plan;
        longer.effects.push(Effect::Secret { scope: key });
        prop_assert_ne!(digest, longer.digest());
    }

    // Decision model, property 10
    #[test]
    fn the_same_inputs_give_the_same_bytes(rules in any_rules(), role in any_role(), plan in any_plan()) {
        let tell = || {
            let policy = policy(rules.clone(), role, None);
            let decision = decide(&policy, &plan);
            explain(&plan, &decision, &settle(&decision, &[], NOW), &policy.revision.to_string()).to_string()
        };
        prop_assert_eq!(tell(), tell());
    }

    // Decision model, property 11
    #[test]
    fn a_tool_that_is_not_offered_is_never_allowed(
        rules in any_rules(), role in any_role(), manifest in prop::option::of(any_manifest()), plan in any_plan(),
    ) {
        let policy = policy(rules, role, manifest.as_deref());
        if !policy.offers(&plan.tool) {
            let decision = decide(&policy, &plan);
            prop_assert_eq!(answer_of(&settle(&decision, &every_voucher(&decision), NOW)), Answer::Deny);
        }
    }

    // Decision model, property 14
    #[test]
    fn the_fence_lies_within_every_layers_fence(
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

    // Decision model, property 16: taking away every cited rule of the rule layers changes their part of the verdict.
    #[test]
    fn explanations_cite_what_decided(rules in any_rules(), plan in any_plan()) {
        let policy = policy(rules, Some("sre"), None);
        let decision = decide(&policy, &plan);
        let answer = decision.verdict.answer();
        prop_assert_eq!(decision.verdict.causes().count() == 0, answer == Answer::Allow);
        let from_rules = |layer| matches!(layer, LayerKind::Organisation | LayerKind::User | LayerKind::Project);
        if answer != Answer::Allow && decision.verdict.causes().all(|cause| from_rules(cause.layer)) {
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
                *table = rule::RuleTable::new(kept, &Ground::plain()).unwrap();
            }
            prop_assert!(decide(&without, &plan).verdict.answer() < answer);
        }
    }

    // What a rule refuses or asks about by name is not met on a walk either.
    #[test]
    fn a_walk_never_meets_what_reading_by_name_would_not_get(rules in any_rules(), role in any_role(), path in any_path()) {
        let policy = policy(rules, role, None);
        let tool = &tools()[0];
        let path = AskedPath::new(path).parse().unwrap();
        let walk = decide(&policy, &plan(tool, vec![Effect::read_tree(crate::path::ScopedPath::root(path.zone()))]));
        let by_name = decide(&policy, &plan(tool, vec![Effect::read(path.clone())]));
        if walk.fence.read.admits(&path) && walk.verdict.answer() == Answer::Allow {
            prop_assert!(by_name.verdict.answer() == Answer::Allow || policy.block.blocks(path.relative()).is_some());
        }
    }
}

fn check(role: Option<&str>, tool: &str, effects: Vec<Effect>, expected: Answer) {
    let tool = tools().into_iter().find(|known| known.name.as_str() == tool).unwrap();
    let decision = decide(&policy([vec![], vec![], vec![]], role, None), &plan(&tool, effects));
    assert_eq!(decision.verdict.answer(), expected, "{role:?} {} {:?}", tool.name, decision.verdict);
}

fn path(access: Access, path: &str) -> Effect {
    Effect::Path {
        access,
        extent: crate::effect::Extent::Single,
        path: AskedPath::new(path).parse().unwrap(),
    }
}

// T5: the matrix
#[test]
fn the_roles_have_their_matrix() {
    let read = |at| vec![path(Access::Read, at)];
    for role in ["dev", "sre", "release_manager"] {
        check(Some(role), "read_file", read("src/x"), Answer::Allow);
        check(Some(role), "write_file", vec![path(Access::Modify, "src/x")], Answer::Allow);
    }
    check(Some("dev"), "git_push", vec![], Answer::Deny);
    check(Some("sre"), "git_push", vec![], Answer::Deny);
    check(Some("release_manager"), "git_push", vec![], Answer::Allow);
    check(Some("dev"), "system_ctl", vec![], Answer::Deny);
    check(Some("release_manager"), "system_ctl", vec![], Answer::Deny);
    check(Some("sre"), "system_ctl", vec![], Answer::Allow);
    check(Some("product_owner"), "read_file", read("docs/a.txt"), Answer::Allow);
    check(Some("product_owner"), "read_file", read("src/notes.md"), Answer::Allow);
    check(Some("product_owner"), "read_file", read("src/main.rs"), Answer::Deny);
    check(Some("product_owner"), "write_file", vec![path(Access::Modify, "docs/a.md")], Answer::Deny);
    check(Some("unknown"), "read_file", read("docs/a.md"), Answer::Deny);
    check(None, "read_file", read("docs/a.md"), Answer::Deny);
}

// T12: shared folders are read-only; P4: a tool's declared policy holds
#[test]
fn the_floor_and_the_declared_policy_refuse() {
    check(Some("dev"), "write_file", vec![path(Access::Modify, "project:shared/x")], Answer::Deny);
    check(Some("dev"), "read_file", vec![path(Access::Read, "project:shared/x")], Answer::Allow);
    check(Some("dev"), "read_file", vec![path(Access::Modify, "src/x")], Answer::Deny);
    check(Some("dev"), "read_file", vec![path(Access::Read, ".env")], Answer::Deny);
    check(Some("dev"), "read_file", vec![Effect::Connect { host: "a".into(), port: 1 }], Answer::Deny);
    check(Some("dev"), "read_file", vec![Effect::Secret { scope: "a".into() }], Answer::Deny);
}

// T23, T25
#[test]
fn a_suspended_or_hasty_session_is_refused() {
    let policy = policy([vec![], vec![], vec![]], Some("dev"), None);
    let plan = plan(&tools()[0], vec![]);
    for (state, expected) in [
        (SessionState::Active, Answer::Allow),
        (SessionState::Alert, Answer::Allow),
        (SessionState::Suspended, Answer::Deny),
        (SessionState::Ended, Answer::Deny),
    ] {
        let view = SessionView { state, pace: None };
        assert_eq!(policy.decide(&plan, &view).verdict.answer(), expected);
    }
    let view =
        SessionView { state: SessionState::Active, pace: Some(Pace { calls: 5, limit: 5, wait_ms: 1500 }) };
    let decision = policy.decide(&plan, &view);
    assert_eq!(decision.verdict.denials().next().unwrap().code, crate::ErrorCode::RateLimited);
    assert!(decision.verdict.causes().next().unwrap().why.contains("wait 2 s"));
}
