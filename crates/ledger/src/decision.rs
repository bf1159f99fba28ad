//! A person's decision as one fixed text, signed by the approver's key. The record of a decision carries the text as a
//! note, so that anybody with the public key can check it without this program.

use crate::digest::Digest;
use crate::id::Id;
use crate::key::SigningKey;
use crate::note::{BadNote, SignedNote};
use crate::timestamp::Timestamp;
use crate::word_enum;

const FORM: &str = "vambrace/decision/v1";

word_enum! {
    /// What was decided.
    pub enum DecisionVerb {
        /// Approve this plan.
        Approve = "approve",
        /// Reject this plan.
        Reject = "reject",
        /// Roll back an applied change.
        Rollback = "rollback",
        /// Revoke a grant or a token.
        Revoke = "revoke",
        /// Create a token.
        Token = "token",
        /// Trust a project's configuration.
        Trust = "trust",
    }
}

word_enum! {
    /// What an approval covers.
    pub enum DecisionReach {
        /// This plan, once.
        Once = "once",
        /// Calls of the same class in this session.
        Class = "class",
        /// Every call of this agent in this session.
        Session = "session",
    }
}

/// A person's decision.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Decision {
    /// What it is about: an approval request, a grant, a token, a project.
    pub about: Id,
    /// Digest of the exact plan.
    pub plan: Digest,
    /// What was decided.
    pub verb: DecisionVerb,
    /// What the approval covers.
    pub reach: DecisionReach,
    /// When it was made.
    pub at: Timestamp,
    /// When it expires.
    pub expires: Timestamp,
}

impl Decision {
    /// The fixed text.
    #[must_use]
    pub fn text(&self) -> String {
        format!(
            "{FORM}\nabout {}\nplan {}\ndecision {}\nreach {}\nat {}\nexpires {}\n",
            self.about,
            self.plan,
            self.verb.as_str(),
            self.reach.as_str(),
            self.at,
            self.expires
        )
    }

    /// The text, signed.
    pub fn sign(&self, key: &SigningKey) -> Result<SignedNote, BadNote> {
        Ok(SignedNote::new(self.text())?.sign(key))
    }

    /// Parses the fixed text; anything else is `None`.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let mut lines = text.lines();
        (lines.next()? == FORM).then_some(())?;
        let mut field = |name: &str| lines.next()?.strip_prefix(name)?.strip_prefix(' ').map(str::to_owned);
        let decision = Self {
            about: Id::new(&field("about")?).ok()?,
            plan: field("plan")?.parse().ok()?,
            verb: DecisionVerb::parse(&field("decision")?)?,
            reach: DecisionReach::parse(&field("reach")?)?,
            at: Timestamp::parse(&field("at")?).ok()?,
            expires: Timestamp::parse(&field("expires")?).ok()?,
        };
        (decision.text() == text).then_some(decision)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::key::KeyKind;
    use crate::note::SignatureStatus;

    #[test]
    fn a_decision_parses_back_and_a_changed_one_has_no_valid_signature() {
        let decision = Decision {
            about: Id::new("hitl-1").unwrap(),
            plan: Digest::of(b"plan"),
            verb: DecisionVerb::Approve,
            reach: DecisionReach::Once,
            at: Timestamp::from_millis(1_785_000_000_000),
            expires: Timestamp::from_millis(1_785_000_300_000),
        };
        assert_eq!(Decision::parse(&decision.text()), Some(decision.clone()));
        assert_eq!(Decision::parse(&format!("{}x", decision.text())), None);
        let key = SigningKey::new("approver/ada", KeyKind::Log, &[7; 32]).unwrap();
        let note = decision.sign(&key).unwrap();
        assert_eq!(note.signed_by(&key.verify_key()), SignatureStatus::Valid(None));
        let other = note.to_string().replace("approve", "reject");
        let other = SignedNote::parse(other.as_bytes()).unwrap();
        assert_eq!(other.signed_by(&key.verify_key()), SignatureStatus::Missing);
        let forged = note.to_string().replace("decision approve", "decision reject");
        assert_eq!(
            SignedNote::parse(forged.as_bytes()).unwrap().signed_by(&key.verify_key()),
            SignatureStatus::Invalid
        );
    }
}
