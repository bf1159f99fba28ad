//! Verifies the recorded decisions: each is signed by a key that could decide then, and matches its record; a
//! call that started on an approval had that approval before, for exactly this plan, and was the only one to
//! use it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::LazyLock;

use memchr::arch::all::packedpair::HeuristicFrequencyRank;
use memchr::memmem::{Finder, FinderBuilder};
use serde_json::Value;
use vambrace_ledger::{
    Decision, DecisionReach, DecisionVerb, Digest, FindingKind, FindingLocation, Findings, SignatureStatus,
    SignedNote, VerifyKey,
};

/// State of the check: the keys that can decide, and the valid decisions so far.
#[derive(Debug, Default)]
struct DecisionChecker {
    keys: Vec<VerifyKey>,
    approvers: usize,
    approvals: BTreeMap<String, SignedApproval>,
    /// Signed notes so far: a decision, which contains its time, is signed once.
    signed: BTreeSet<String>,
    checked: u64,
}

/// An approval whose signature is valid.
#[derive(Debug)]
struct SignedApproval {
    plan: Digest,
    reach: DecisionReach,
    /// Whether a call has started on it; no second one may.
    used: bool,
}

/// Only a record that depends on an approval names an approval request.
static HITL_ID: LazyLock<Finder<'static>> =
    LazyLock::new(|| FinderBuilder::new().build_forward_with_ranker(LineByteRank, b"\"hitl_id\":"));

/// Byte frequencies in ledger lines, which are full of quotes, colons and underscores.
struct LineByteRank;

impl HeuristicFrequencyRank for LineByteRank {
    fn rank(&self, byte: u8) -> u8 {
        if matches!(byte, b'h' | b'l') { 0 } else { u8::MAX }
    }
}

/// Whether a line is needed for this check.
pub(super) fn is_relevant(op: &[u8], line: &[u8]) -> bool {
    match op {
        b"policy.change" | b"tool.approval" | b"grant" => true,
        b"tool.start" => HITL_ID.find(line).is_some(),
        _ => false,
    }
}

/// Checks the records; returns how many decisions were checked.
pub(super) fn check(special: &[(u64, String)], findings: &mut Findings) -> u64 {
    let mut checker = DecisionChecker::default();
    for (seq, line) in special {
        let Ok(fields) = serde_json::from_str::<Value>(line) else { continue };
        let text = |key: &str| fields.get(key).and_then(Value::as_str);
        let fault = match (text("op"), text("event_type")) {
            (Some("policy.change"), Some("approver.created" | "approver.client")) => {
                checker.approver(*seq, &fields, findings);
                None
            }
            (Some("policy.change"), Some("token.created")) => checker.token(&fields),
            (Some("policy.change"), Some("token.revoked")) => {
                let fault = checker.decided(&fields, &[DecisionVerb::Revoke]);
                if let (None, Some(id)) = (fault, text("hitl_id")) {
                    checker.keys.retain(|key| key.name() != format!("token/{id}"));
                }
                fault
            }
            // Before there was an approver key, trust was not signed.
            (Some("policy.change"), Some("policy.trust")) if text("note").is_some() => {
                checker.decided(&fields, &[DecisionVerb::Trust])
            }
            (Some("tool.approval"), Some("approval.approved")) => {
                checker.decided(&fields, &[DecisionVerb::Approve])
            }
            (Some("tool.approval"), Some("approval.rejected")) => {
                checker.decided(&fields, &[DecisionVerb::Reject])
            }
            (Some("tool.approval"), Some("approval.rollback")) => {
                checker.decided(&fields, &[DecisionVerb::Rollback])
            }
            (Some("grant"), Some("grant.revoked")) => checker.decided(&fields, &[DecisionVerb::Revoke]),
            (Some("grant"), Some("grant.given")) => checker.granted(&fields),
            (Some("tool.start"), _) => checker.started(&fields),
            _ => None,
        };
        if let Some(detail) = fault {
            findings.fault(FindingLocation::Record(*seq), FindingKind::BadDecision, detail);
        }
    }
    checker.checked
}

impl DecisionChecker {
    /// A key can decide from now on. No key could have signed the first one; another one is reported as a note.
    fn approver(&mut self, seq: u64, fields: &Value, findings: &mut Findings) {
        let key = fields.get("key").and_then(Value::as_str).and_then(|key| key.parse::<VerifyKey>().ok());
        let Some(key) = key else {
            findings.fault(
                FindingLocation::Record(seq),
                FindingKind::BadDecision,
                "a new approver key is not named",
            );
            return;
        };
        if key.name().starts_with("approver/") {
            self.approvers += 1;
            if self.approvers > 1 {
                let detail =
                    "another approver key was created: the previous one was lost, or somebody replaced it";
                findings.note(FindingLocation::Record(seq), FindingKind::NewApprover, detail);
            }
        }
        self.keys.push(key);
    }

    fn token(&mut self, fields: &Value) -> Option<&'static str> {
        let fault = self.decided(fields, &[DecisionVerb::Token]);
        let key = fields.get("key").and_then(Value::as_str).and_then(|key| key.parse().ok());
        if fault.is_none() {
            self.keys.extend(key);
        }
        fault
    }

    /// Why the decision of a record is not valid, if it is not.
    fn decided(&mut self, fields: &Value, verbs: &[DecisionVerb]) -> Option<&'static str> {
        self.checked += 1;
        let text = |key: &str| fields.get(key).and_then(Value::as_str);
        let Some(note) = text("note").and_then(|note| SignedNote::parse(note.as_bytes()).ok()) else {
            return Some("a decision without a signature");
        };
        let Some(decision) = Decision::parse(note.text()) else {
            return Some("the signed text is not a decision");
        };
        let same = text("hitl_id") == Some(decision.about.as_str())
            && text("plan_digest") == Some(decision.plan.to_string().as_str())
            && verbs.contains(&decision.verb);
        if !same {
            return Some("the record does not match the signed decision");
        }
        if !self.keys.iter().any(|key| matches!(note.signed_by(key), SignatureStatus::Valid(_))) {
            return Some("a decision that is not signed by a key that could decide then");
        }
        if !self.signed.insert(note.text().to_owned()) {
            return Some("a decision that an earlier record already contains");
        }
        if matches!(decision.verb, DecisionVerb::Approve | DecisionVerb::Rollback) {
            let approvals = SignedApproval { plan: decision.plan, reach: decision.reach, used: false };
            self.approvals.insert(decision.about.to_string(), approvals);
        }
        None
    }

    fn granted(&self, fields: &Value) -> Option<&'static str> {
        let about = fields.get("hitl_id").and_then(Value::as_str).unwrap_or_default();
        match self.approvals.get(about) {
            Some(SignedApproval { reach: DecisionReach::Class | DecisionReach::Session, .. }) => None,
            _ => Some("a grant without a signed decision"),
        }
    }

    fn started(&mut self, fields: &Value) -> Option<&'static str> {
        let text = |key: &str| fields.get(key).and_then(Value::as_str);
        let about = text("hitl_id").unwrap_or_default();
        // Started by a rule or a grant: then `rule` names that instead.
        if about.is_empty() || !text("rule").is_some_and(|rule| rule.contains(about)) {
            return None;
        }
        match self.approvals.get_mut(about) {
            Some(yes) if text("plan_digest") != Some(yes.plan.to_string().as_str()) => {
                Some("a call started on an approval of another plan")
            }
            Some(yes) => std::mem::replace(&mut yes.used, true)
                .then_some("a call started on an approval that another call had used"),
            None => Some("a call started on an approval that is not signed"),
        }
    }
}
