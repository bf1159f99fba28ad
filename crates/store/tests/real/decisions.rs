//! Decisions on record that nobody could have made are found; good ones are not.

use std::path::Path;

use vambrace_ledger::{Decision, Digest, Entry, KeyKind, Kind, Op, Reach, SigningKey, Status, Verb};
use vambrace_store::{Batch, Store};

use crate::agreement::agreed;
use crate::given::{at, home, id, open, runtime, text};

fn key(name: &str, seed: u8) -> SigningKey {
    SigningKey::new(name, KeyKind::Log, &[seed; 32]).unwrap()
}

fn created(key: &SigningKey) -> Entry {
    let mut entry = Entry::new(Op::PolicyChange, at(1));
    entry.event_type = Some("approver.created");
    entry.key = Some(key.verify_key());
    entry
}

fn decision(about: &str, plan: &[u8], verb: Verb) -> Decision {
    let (plan, reach) = (Digest::of(plan), Reach::Once);
    Decision { about: id(about), plan, verb, reach, at: at(2), expires: at(60_000) }
}

fn approved(decision: &Decision, by: Option<&SigningKey>) -> Entry {
    let mut entry = Entry::new(Op::ToolApproval, at(2));
    entry.event_type = Some("approval.approved");
    entry.status = Some(Status::Approved);
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

fn found(entries: Vec<Entry>) -> Vec<Kind> {
    let (_temp, home) = home();
    write(&home, entries);
    agreed(&home).findings.faults().iter().map(|finding| finding.kind).collect()
}

fn write(home: &Path, entries: Vec<Entry>) {
    let store = open(home);
    runtime().block_on(store.commit(Batch::durable(entries, Vec::new()))).unwrap();
}

// DESIGN 1.6: a decision is a signature
#[test]
fn only_a_decision_that_its_key_signed_is_good() {
    let (ada, eve) = (key("approver/ada", 1), key("approver/eve", 2));
    let yes = decision("hitl-1", b"plan", Verb::Approve);
    let no = decision("hitl-1", b"plan", Verb::Reject);
    let good = vec![created(&ada), approved(&yes, Some(&ada)), start("hitl-1", b"plan")];
    assert_eq!(found(good.clone()), []);
    // One yes, one call.
    let again = [good.clone(), vec![start("hitl-1", b"plan")]].concat();
    assert_eq!(found(again), [Kind::BadDecision]);
    let anew =
        |yes: &Decision| [good.clone(), vec![approved(yes, Some(&ada)), start("hitl-1", b"plan")]].concat();
    assert_eq!(found(anew(&yes)), [Kind::BadDecision; 2]);
    assert_eq!(found(anew(&Decision { at: at(3), ..yes.clone() })), []);
    // Nobody signed it; somebody signed it whose key never counted, or counted only later.
    assert_eq!(found(vec![created(&ada), approved(&yes, None)]), [Kind::BadDecision]);
    assert_eq!(found(vec![created(&ada), approved(&yes, Some(&eve))]), [Kind::BadDecision]);
    assert_eq!(found(vec![approved(&yes, Some(&ada)), created(&ada)]), [Kind::BadDecision]);
    // A no that is told as a yes; a yes to another plan or question.
    let mut turned = approved(&yes, Some(&ada));
    turned.note = Some(no.sign(&ada).unwrap());
    assert_eq!(found(vec![created(&ada), turned]), [Kind::BadDecision]);
    for other in [decision("hitl-1", b"other", Verb::Approve), decision("hitl-2", b"plan", Verb::Approve)] {
        let mut moved = approved(&yes, Some(&ada));
        moved.note = Some(other.sign(&ada).unwrap());
        assert_eq!(found(vec![created(&ada), moved]), [Kind::BadDecision]);
    }
    // What starts on a yes needs that yes, to this plan.
    assert_eq!(found(vec![created(&ada), start("hitl-1", b"plan")]), [Kind::BadDecision]);
    let mut other = good;
    other[2] = start("hitl-1", b"another plan");
    assert_eq!(found(other), [Kind::BadDecision]);
    // A grant without a yes that reaches so far.
    let mut grant = Entry::new(Op::Grant, at(4));
    grant.event_type = Some("grant.given");
    grant.hitl_id = Some(id("hitl-1"));
    assert_eq!(found(vec![created(&ada), approved(&yes, Some(&ada)), grant]), [Kind::BadDecision]);
}

#[test]
fn a_second_approver_key_is_told() {
    let (_temp, home) = home();
    write(&home, vec![created(&key("approver/ada", 1)), created(&key("approver/ada", 2))]);
    let report = agreed(&home);
    assert!(report.findings.faults().is_empty());
    assert!(report.findings.notes().iter().any(|note| note.kind == Kind::NewApprover));
}

// DESIGN 1.6: whose key counts, from when and until when
#[test]
fn a_token_decides_while_it_counts_and_reaches_no_further_than_was_signed() {
    let (ada, token) = (key("approver/ada", 1), key("token/tok-1", 3));
    let record = |op: Op, event: &'static str, decision: &Decision, by: &SigningKey| {
        let mut entry = approved(decision, Some(by));
        (entry.op, entry.event_type) = (op, Some(event));
        entry
    };
    let made = |by: &SigningKey| {
        let decision = decision("tok-1", b"token", Verb::Token);
        let mut entry = record(Op::PolicyChange, "token.created", &decision, by);
        entry.key = Some(token.verify_key());
        entry
    };
    let taken = decision("tok-1", b"token", Verb::Revoke);
    let taken = record(Op::PolicyChange, "token.revoked", &taken, &ada);
    let wide = Decision { reach: Reach::Class, ..decision("hitl-1", b"plan", Verb::Approve) };
    let mut granted = Entry::new(Op::Grant, at(4));
    (granted.event_type, granted.hitl_id) = (Some("grant.given"), Some(id("hitl-1")));
    let given = [approved(&wide, Some(&token)), granted, start("hitl-1", b"plan")];
    let begun = |token: Entry| vec![created(&ada), token];
    assert_eq!(found([begun(made(&ada)), given.to_vec(), vec![taken.clone()]].concat()), []);
    // A token that made itself, and one that was taken back: neither its yes nor what stands on it counts.
    let all = [Kind::BadDecision; 4];
    assert_eq!(found([begun(made(&token)), given.to_vec()].concat()), all);
    assert_eq!(found([begun(made(&ada)), vec![taken], given.to_vec()].concat()), all[..3]);
    // Trust and rollback: what was signed is what is said.
    for (op, event, verb) in [
        (Op::PolicyChange, "policy.trust", Verb::Trust),
        (Op::ToolApproval, "approval.rollback", Verb::Rollback),
        (Op::Grant, "grant.revoked", Verb::Revoke),
    ] {
        let good = record(op, event, &decision("about-1", b"x", verb), &ada);
        assert_eq!(found(vec![created(&ada), good]), [], "{event}");
        let other = record(op, event, &decision("about-1", b"x", Verb::Approve), &ada);
        assert_eq!(found(vec![created(&ada), other]), all[..1], "{event}");
    }
}
