//! Recorded decisions that no key could have made are found; valid ones are not.

use std::path::Path;

use vambrace_ledger::{
    Decision, DecisionReach, DecisionVerb, Digest, Entry, FindingKind, KeyKind, Op, RecordStatus, SigningKey,
};
use vambrace_store::{Batch, Store};

use crate::fixtures::{at, home, id, open, runtime, text};
use crate::independent_verifier::verify_with_both;

fn key(name: &str, seed: u8) -> SigningKey {
    SigningKey::new(name, KeyKind::Log, &[seed; 32]).unwrap()
}

fn created(key: &SigningKey) -> Entry {
    let mut entry = Entry::new(Op::PolicyChange, at(1));
    entry.event_type = Some("approver.created");
    entry.key = Some(key.verify_key());
    entry
}

fn decision(about: &str, plan: &[u8], verb: DecisionVerb) -> Decision {
    let (plan, reach) = (Digest::of(plan), DecisionReach::Once);
    Decision { about: id(about), plan, verb, reach, at: at(2), expires: at(60_000) }
}

fn approved(decision: &Decision, by: Option<&SigningKey>) -> Entry {
    let mut entry = Entry::new(Op::ToolApproval, at(2));
    entry.event_type = Some("approval.approved");
    entry.status = Some(RecordStatus::Approved);
    entry.hitl_id = Some(decision.about.clone());
    entry.plan_digest = Some(decision.plan);
    entry.note = by.map(|key| decision.sign(key).unwrap());
    entry
}

fn start(about: &str, plan: &[u8]) -> Entry {
    let mut entry = Entry::new(Op::ToolStart, at(3));
    entry.hitl_id = Some(id(about));
    entry.rule = Some(text(about));
    entry.plan_digest = Some(Digest::of(plan));
    entry
}

fn found(entries: Vec<Entry>) -> Vec<FindingKind> {
    let (_temp, home) = home();
    write(&home, entries);
    verify_with_both(&home).findings.faults().iter().map(|finding| finding.kind).collect()
}

fn write(home: &Path, entries: Vec<Entry>) {
    let store = open(home);
    runtime().block_on(store.commit(Batch::durable(entries, Vec::new()))).unwrap();
}

// ARCHITECTURE.md: a decision is a signature
#[test]
fn a_decision_is_valid_only_with_the_signature_of_its_key() {
    let (ada, eve) = (key("approver/ada", 1), key("approver/eve", 2));
    let approval = decision("hitl-1", b"plan", DecisionVerb::Approve);
    let rejection = decision("hitl-1", b"plan", DecisionVerb::Reject);
    let good = vec![created(&ada), approved(&approval, Some(&ada)), start("hitl-1", b"plan")];
    assert_eq!(found(good.clone()), []);
    // One approval, one call.
    let again = [good.clone(), vec![start("hitl-1", b"plan")]].concat();
    assert_eq!(found(again), [FindingKind::BadDecision]);
    let repeated = |approval: &Decision| {
        [good.clone(), vec![approved(approval, Some(&ada)), start("hitl-1", b"plan")]].concat()
    };
    assert_eq!(found(repeated(&approval)), [FindingKind::BadDecision; 2]);
    assert_eq!(found(repeated(&Decision { at: at(3), ..approval.clone() })), []);
    // Not signed; signed by a key that was never valid, or only later.
    assert_eq!(found(vec![created(&ada), approved(&approval, None)]), [FindingKind::BadDecision]);
    assert_eq!(found(vec![created(&ada), approved(&approval, Some(&eve))]), [FindingKind::BadDecision]);
    assert_eq!(found(vec![approved(&approval, Some(&ada)), created(&ada)]), [FindingKind::BadDecision]);
    // A rejection recorded as an approval; an approval of another plan or request.
    let mut turned = approved(&approval, Some(&ada));
    turned.note = Some(rejection.sign(&ada).unwrap());
    assert_eq!(found(vec![created(&ada), turned]), [FindingKind::BadDecision]);
    for other in [
        decision("hitl-1", b"other", DecisionVerb::Approve),
        decision("hitl-2", b"plan", DecisionVerb::Approve),
    ] {
        let mut moved = approved(&approval, Some(&ada));
        moved.note = Some(other.sign(&ada).unwrap());
        assert_eq!(found(vec![created(&ada), moved]), [FindingKind::BadDecision]);
    }
    // A call that starts on an approval needs that approval, for this plan.
    assert_eq!(found(vec![created(&ada), start("hitl-1", b"plan")]), [FindingKind::BadDecision]);
    let mut other = good;
    other[2] = start("hitl-1", b"another plan");
    assert_eq!(found(other), [FindingKind::BadDecision]);
    // A grant without an approval of that scope.
    let mut grant = Entry::new(Op::Grant, at(4));
    grant.event_type = Some("grant.given");
    grant.hitl_id = Some(id("hitl-1"));
    assert_eq!(
        found(vec![created(&ada), approved(&approval, Some(&ada)), grant]),
        [FindingKind::BadDecision]
    );
}

#[test]
fn a_second_approver_key_is_reported_as_a_note() {
    let (_temp, home) = home();
    write(&home, vec![created(&key("approver/ada", 1)), created(&key("approver/ada", 2))]);
    let report = verify_with_both(&home);
    assert!(report.findings.faults().is_empty());
    assert!(report.findings.notes().iter().any(|note| note.kind == FindingKind::NewApprover));
}

// ARCHITECTURE.md: whose key is valid, from when and until when
#[test]
fn a_token_decides_while_it_is_valid_and_only_in_the_signed_scope() {
    let (ada, token) = (key("approver/ada", 1), key("token/tok-1", 3));
    let record = |op: Op, event: &'static str, decision: &Decision, by: &SigningKey| {
        let mut entry = approved(decision, Some(by));
        (entry.op, entry.event_type) = (op, Some(event));
        entry
    };
    let made = |by: &SigningKey| {
        let decision = decision("tok-1", b"token", DecisionVerb::Token);
        let mut entry = record(Op::PolicyChange, "token.created", &decision, by);
        entry.key = Some(token.verify_key());
        entry
    };
    let taken = decision("tok-1", b"token", DecisionVerb::Revoke);
    let taken = record(Op::PolicyChange, "token.revoked", &taken, &ada);
    let wide = Decision { reach: DecisionReach::Class, ..decision("hitl-1", b"plan", DecisionVerb::Approve) };
    let mut granted = Entry::new(Op::Grant, at(4));
    (granted.event_type, granted.hitl_id) = (Some("grant.given"), Some(id("hitl-1")));
    let given = [approved(&wide, Some(&token)), granted, start("hitl-1", b"plan")];
    let begun = |token: Entry| vec![created(&ada), token];
    assert_eq!(found([begun(made(&ada)), given.to_vec(), vec![taken.clone()]].concat()), []);
    // A token that created itself, and one that was revoked: neither its approval nor what depends on it is
    // valid.
    let all = [FindingKind::BadDecision; 4];
    assert_eq!(found([begun(made(&token)), given.to_vec()].concat()), all);
    assert_eq!(found([begun(made(&ada)), vec![taken], given.to_vec()].concat()), all[..3]);
    // Trust and rollback: the record must match the signed decision.
    for (op, event, verb) in [
        (Op::PolicyChange, "policy.trust", DecisionVerb::Trust),
        (Op::ToolApproval, "approval.rollback", DecisionVerb::Rollback),
        (Op::Grant, "grant.revoked", DecisionVerb::Revoke),
    ] {
        let good = record(op, event, &decision("about-1", b"x", verb), &ada);
        assert_eq!(found(vec![created(&ada), good]), [], "{event}");
        let other = record(op, event, &decision("about-1", b"x", DecisionVerb::Approve), &ada);
        assert_eq!(found(vec![created(&ada), other]), all[..1], "{event}");
    }
}
