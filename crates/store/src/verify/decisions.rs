//! The decisions on record: each is signed by a key that could decide then, and says what its record says; what started on
//! somebody's yes had that yes, to this very plan, before, and had it alone.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::LazyLock;

use memchr::arch::all::packedpair::HeuristicFrequencyRank;
use memchr::memmem::{Finder, FinderBuilder};
use serde_json::Value;
use vambrace_ledger::{Decision, Digest, Findings, Kind, Note, Place, Reach, Signed, Verb, VerifyKey};

/// What a decision is about, once it was found good: the plan that was agreed to, and how far.
#[derive(Debug, Default)]
struct Walk {
    keys: Vec<VerifyKey>,
    approvers: usize,
    agreed: BTreeMap<String, Agreed>,
    /// What was signed: the same words, with their time, are signed once.
    signed: BTreeSet<String>,
    checked: u64,
}

/// A yes.
#[derive(Debug)]
struct Agreed {
    plan: Digest,
    reach: Reach,
    /// Whether a call has started on it: none does a second time.
    used: bool,
}

/// Only what stands on somebody's yes names its question.
static QUESTION: LazyLock<Finder<'static>> =
    LazyLock::new(|| FinderBuilder::new().build_forward_with_ranker(InLines, b"\"hitl_id\":"));

/// How frequent a byte of that name is in the lines of a ledger, which are full of quotes, colons and underscores.
struct InLines;

impl HeuristicFrequencyRank for InLines {
    fn rank(&self, byte: u8) -> u8 {
        if matches!(byte, b'h' | b'l') { 0 } else { u8::MAX }
    }
}

/// Whether a line is needed for this check.
pub(super) fn concerns(op: &[u8], line: &[u8]) -> bool {
    match op {
        b"policy.change" | b"tool.approval" | b"grant" => true,
        b"tool.start" => QUESTION.find(line).is_some(),
        _ => false,
    }
}

/// Walks the records; says how many decisions were checked.
pub(super) fn check(special: &[(u64, String)], findings: &mut Findings) -> u64 {
    let mut walk = Walk::default();
    for (seq, line) in special {
        let Ok(fields) = serde_json::from_str::<Value>(line) else { continue };
        let text = |key: &str| fields.get(key).and_then(Value::as_str);
        let fault = match (text("op"), text("event_type")) {
            (Some("policy.change"), Some("approver.created" | "approver.client")) => {
                walk.approver(*seq, &fields, findings);
                None
            }
            (Some("policy.change"), Some("token.created")) => walk.token(&fields),
            (Some("policy.change"), Some("token.revoked")) => {
                let fault = walk.decided(&fields, &[Verb::Revoke]);
                if let (None, Some(id)) = (fault, text("hitl_id")) {
                    walk.keys.retain(|key| key.name() != format!("token/{id}"));
                }
                fault
            }
            // Where there was no approver key yet, trust was not signed.
            (Some("policy.change"), Some("policy.trust")) if text("note").is_some() => {
                walk.decided(&fields, &[Verb::Trust])
            }
            (Some("tool.approval"), Some("approval.approved")) => walk.decided(&fields, &[Verb::Approve]),
            (Some("tool.approval"), Some("approval.rejected")) => walk.decided(&fields, &[Verb::Reject]),
            (Some("tool.approval"), Some("approval.rollback")) => walk.decided(&fields, &[Verb::Rollback]),
            (Some("grant"), Some("grant.revoked")) => walk.decided(&fields, &[Verb::Revoke]),
            (Some("grant"), Some("grant.given")) => walk.granted(&fields),
            (Some("tool.start"), _) => walk.started(&fields),
            _ => None,
        };
        if let Some(detail) = fault {
            findings.fault(Place::Record(*seq), Kind::BadDecision, detail);
        }
    }
    walk.checked
}

impl Walk {
    /// A key begins to decide. The first one nobody could have signed; another one is told.
    fn approver(&mut self, seq: u64, fields: &Value, findings: &mut Findings) {
        let key = fields.get("key").and_then(Value::as_str).and_then(|key| key.parse::<VerifyKey>().ok());
        let Some(key) = key else {
            findings.fault(Place::Record(seq), Kind::BadDecision, "a key begins to decide and is not named");
            return;
        };
        if key.name().starts_with("approver/") {
            self.approvers += 1;
            if self.approvers > 1 {
                let detail =
                    "another approver key was made: the one before was lost, or somebody replaced it";
                findings.note(Place::Record(seq), Kind::NewApprover, detail);
            }
        }
        self.keys.push(key);
    }

    fn token(&mut self, fields: &Value) -> Option<&'static str> {
        let fault = self.decided(fields, &[Verb::Token]);
        let key = fields.get("key").and_then(Value::as_str).and_then(|key| key.parse().ok());
        if fault.is_none() {
            self.keys.extend(key);
        }
        fault
    }

    /// Why the decision of a record is not good.
    fn decided(&mut self, fields: &Value, verbs: &[Verb]) -> Option<&'static str> {
        self.checked += 1;
        let text = |key: &str| fields.get(key).and_then(Value::as_str);
        let Some(note) = text("note").and_then(|note| Note::parse(note.as_bytes()).ok()) else {
            return Some("a decision that nobody signed");
        };
        let Some(decision) = Decision::parse(note.text()) else {
            return Some("what was signed is not a decision");
        };
        let same = text("hitl_id") == Some(decision.about.as_str())
            && text("plan_digest") == Some(decision.plan.to_string().as_str())
            && verbs.contains(&decision.verb);
        if !same {
            return Some("the record says something else than what was signed");
        }
        if !self.keys.iter().any(|key| matches!(note.signed_by(key), Signed::Yes(_))) {
            return Some("a decision that no key signed which could decide then");
        }
        if !self.signed.insert(note.text().to_owned()) {
            return Some("a decision that stands in a record before");
        }
        if matches!(decision.verb, Verb::Approve | Verb::Rollback) {
            let agreed = Agreed { plan: decision.plan, reach: decision.reach, used: false };
            self.agreed.insert(decision.about.to_string(), agreed);
        }
        None
    }

    fn granted(&self, fields: &Value) -> Option<&'static str> {
        let about = fields.get("hitl_id").and_then(Value::as_str).unwrap_or_default();
        match self.agreed.get(about) {
            Some(Agreed { reach: Reach::Class | Reach::Session, .. }) => None,
            _ => Some("a grant that nobody signed"),
        }
    }

    fn started(&mut self, fields: &Value) -> Option<&'static str> {
        let text = |key: &str| fields.get(key).and_then(Value::as_str);
        let about = text("hitl_id").unwrap_or_default();
        // On a rule or a grant: its name is the rule then.
        if about.is_empty() || !text("rule").is_some_and(|rule| rule.contains(about)) {
            return None;
        }
        match self.agreed.get_mut(about) {
            Some(yes) if text("plan_digest") != Some(yes.plan.to_string().as_str()) => {
                Some("a call started on a yes that was given to another plan")
            }
            Some(yes) => std::mem::replace(&mut yes.used, true)
                .then_some("a call started on a yes that another had used already"),
            None => Some("a call started on a yes that nobody signed"),
        }
    }
}
