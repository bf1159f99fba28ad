//! What somebody decided, in one fixed text, signed by whoever decided. The record of a decision carries it as a note, so
//! that anybody with the key's public half can check it without this program.

use crate::digest::Digest;
use crate::id::Id;
use crate::key::SigningKey;
use crate::note::{BadNote, Note};
use crate::timestamp::Timestamp;
use crate::words;

const FORM: &str = "vambrace/decision/v1";

words! {
    /// What was decided.
    pub enum Verb {
        /// Yes, to this plan.
        Approve = "approve",
        /// No.
        Reject = "reject",
        /// An applied change is undone.
        Rollback = "rollback",
        /// A grant or a token counts no more.
        Revoke = "revoke",
        /// A token is made.
        Token = "token",
        /// A project's configuration is trusted.
        Trust = "trust",
    }
}

words! {
    /// How far a yes reaches.
    pub enum Reach {
        /// This one plan, once.
        Once = "once",
        /// Calls of the same class in this session.
        Class = "class",
        /// Everything of this agent in this session.
        Session = "session",
    }
}

/// A decision.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Decision {
    /// What it is about: a question, a grant, a token, a project.
    pub about: Id,
    /// What exactly was agreed to.
    pub plan: Digest,
    /// What was decided.
    pub verb: Verb,
    /// How far it reaches.
    pub reach: Reach,
    /// When.
    pub at: Timestamp,
    /// Until when it counts.
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
    pub fn sign(&self, key: &SigningKey) -> Result<Note, BadNote> {
        Ok(Note::new(self.text())?.sign(key))
    }

    /// Reads the fixed text and nothing else.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let mut lines = text.lines();
        (lines.next()? == FORM).then_some(())?;
        let mut field = |name: &str| lines.next()?.strip_prefix(name)?.strip_prefix(' ').map(str::to_owned);
        let decision = Self {
            about: Id::new(&field("about")?).ok()?,
            plan: field("plan")?.parse().ok()?,
            verb: Verb::parse(&field("decision")?)?,
            reach: Reach::parse(&field("reach")?)?,
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
    use crate::note::Signed;

    #[test]
    fn a_decision_reads_back_and_a_changed_one_is_not_signed() {
        let decision = Decision {
            about: Id::new("hitl-1").unwrap(),
            plan: Digest::of(b"plan"),
            verb: Verb::Approve,
            reach: Reach::Once,
            at: Timestamp::from_millis(1_785_000_000_000),
            expires: Timestamp::from_millis(1_785_000_300_000),
        };
        assert_eq!(Decision::parse(&decision.text()), Some(decision.clone()));
        assert_eq!(Decision::parse(&format!("{}x", decision.text())), None);
        let key = SigningKey::new("approver/ada", KeyKind::Log, &[7; 32]).unwrap();
        let note = decision.sign(&key).unwrap();
        assert_eq!(note.signed_by(&key.verify_key()), Signed::Yes(None));
        let other = note.to_string().replace("approve", "reject");
        let other = Note::parse(other.as_bytes()).unwrap();
        assert_eq!(other.signed_by(&key.verify_key()), Signed::Missing);
        let forged = note.to_string().replace("decision approve", "decision reject");
        assert_eq!(Note::parse(forged.as_bytes()).unwrap().signed_by(&key.verify_key()), Signed::Wrong);
    }
}
