//! A record before it is sealed. Free text enters only as [`Redacted`]; the other fields are compiled-in words,
//! numbers, digests and ids of our own making, none of which can hold a secret.

use serde_json::Value;
use vambrace_core::ErrorCode;
use vambrace_core::redacted::Redacted;

use crate::digest::Digest;
use crate::field_writer::FieldWriter;
use crate::id::Id;
use crate::key::VerifyKey;
use crate::note::SignedNote;
use crate::op::{Op, RecordLevel, RecordStatus, SessionChange};
use crate::payload::{ForgottenPayload, Payload, Salt};
use crate::seal::EncodedEntry;
use crate::timestamp::Timestamp;

/// Text that a redactor has processed.
pub type RedactedText = Redacted<String>;

/// A range of lines of a file, counted from one, both ends included.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FileRange {
    /// The first line.
    pub first: u64,
    /// The last line.
    pub last: u64,
}

/// A record before it is sealed. Build it with [`Entry::new`] and set what applies; a field that is `None` is not
/// written.
#[derive(Debug, Clone, PartialEq)]
#[expect(missing_docs, reason = "the names are those of the ledger line, described in the contract")]
pub struct Entry {
    pub ts: Timestamp,
    pub op: Op,
    /// More precise than `op`; defaults to the same word.
    pub event_type: Option<&'static str>,
    pub level: RecordLevel,
    pub status: Option<RecordStatus>,
    pub user: Option<RedactedText>,
    pub agent_id: Option<RedactedText>,
    pub session: Option<Id>,
    pub role: Option<RedactedText>,
    pub skill_name: Option<RedactedText>,
    /// The id of the call.
    pub execution_id: Option<Id>,
    /// The agent's own id for the call.
    pub tool_call_id: Option<RedactedText>,
    pub context_id: Option<RedactedText>,
    pub tool_name: Option<RedactedText>,
    pub tool_args: Option<Redacted<Value>>,
    pub path: Option<RedactedText>,
    pub range: Option<FileRange>,
    pub created: Option<bool>,
    pub base_hash: Option<Digest>,
    pub patch_hash: Option<Digest>,
    pub before_hash: Option<Digest>,
    pub after_hash: Option<Digest>,
    pub execution_environment: Option<&'static str>,
    /// The tier that confined a program.
    pub sandbox_tier: Option<&'static str>,
    pub risk: Option<&'static str>,
    pub verdict: Option<&'static str>,
    pub rule: Option<RedactedText>,
    pub reasons: Vec<RedactedText>,
    /// The approval request or proposal that the record belongs to.
    pub hitl_id: Option<Id>,
    pub plan_digest: Option<Digest>,
    pub policy_revision: Option<RedactedText>,
    pub redactions_applied: Option<u32>,
    pub error_code: Option<ErrorCode>,
    pub message: Option<RedactedText>,
    pub duration_ms: Option<u64>,
    pub violation_type: Option<&'static str>,
    pub target_path: Option<RedactedText>,
    pub command_args: Option<Redacted<Value>>,
    pub severity: Option<&'static str>,
    /// The tree size that the record names, and the root.
    pub tree: Option<(u64, Digest)>,
    /// The key of the ledger from this record on.
    pub key: Option<VerifyKey>,
    /// A signed note that we made or checked, so it holds no secret.
    pub note: Option<SignedNote>,
    /// The payload that was deleted.
    pub forgotten: Option<ForgottenPayload>,
}

/// Maximum sizes of fields, in escaped bytes. Their sum, with the fixed parts, stays below the line limit (tested
/// below).
mod cap {
    pub(super) const NAME: usize = 256;
    pub(super) const PATH: usize = 4096;
    pub(super) const MESSAGE: usize = 4096;
    pub(super) const RULE: usize = 1024;
    pub(super) const REASON: usize = 512;
    pub(super) const REASONS: usize = 16;
    pub(super) const ARGS: usize = 16 << 10;
    pub(super) const COMMAND_ARGS: usize = 8 << 10;
}

impl Entry {
    /// A record of `op` at `ts`, level INFO, with nothing else set.
    #[must_use]
    pub fn new(op: Op, ts: Timestamp) -> Self {
        Self {
            ts,
            op,
            event_type: None,
            level: RecordLevel::Info,
            status: None,
            user: None,
            agent_id: None,
            session: None,
            role: None,
            skill_name: None,
            execution_id: None,
            tool_call_id: None,
            context_id: None,
            tool_name: None,
            tool_args: None,
            path: None,
            range: None,
            created: None,
            base_hash: None,
            patch_hash: None,
            before_hash: None,
            after_hash: None,
            execution_environment: None,
            sandbox_tier: None,
            risk: None,
            verdict: None,
            rule: None,
            reasons: Vec::new(),
            hitl_id: None,
            plan_digest: None,
            policy_revision: None,
            redactions_applied: None,
            error_code: None,
            message: None,
            duration_ms: None,
            violation_type: None,
            target_path: None,
            command_args: None,
            severity: None,
            tree: None,
            key: None,
            note: None,
            forgotten: None,
        }
    }

    /// A record of a session change.
    #[must_use]
    pub fn session(change: SessionChange, id: Id, ts: Timestamp) -> Self {
        let level = match change {
            SessionChange::Alert | SessionChange::Suspended => RecordLevel::Warn,
            SessionChange::Open | SessionChange::Resumed | SessionChange::Ended => RecordLevel::Info,
        };
        Self { event_type: Some(change.as_str()), session: Some(id), level, ..Self::new(Op::Session, ts) }
    }

    /// Encodes the fields of the line, except those that only the writer knows. A text longer than its cap is
    /// truncated, and large arguments are reduced to their size: no call can make itself unrecordable.
    #[must_use]
    pub fn encode(&self) -> EncodedEntry {
        self.write(None)
    }

    /// Like [`Entry::encode`], for a writer that stores large arguments beside the chain: the line holds a commitment
    /// to them. `draw` supplies a random salt for each.
    #[must_use]
    pub fn encode_with_payloads(&self, draw: &mut dyn FnMut() -> Salt) -> EncodedEntry {
        self.write(Some(draw))
    }

    fn write(&self, draw: Option<&mut dyn FnMut() -> Salt>) -> EncodedEntry {
        let mut f = FieldWriter::new();
        let mut large = Vec::new();
        f.word("ts", &self.ts.text());
        f.word("op", self.op.as_str().as_bytes());
        f.text("event_type", self.event_type.unwrap_or(self.op.as_str()), cap::NAME);
        f.word("level", self.level.as_str().as_bytes());
        if let Some(status) = self.status {
            f.word("status", status.as_str().as_bytes());
        }
        text(&mut f, "user", self.user.as_ref(), cap::NAME);
        text(&mut f, "agent_id", self.agent_id.as_ref(), cap::NAME);
        if let Some(id) = &self.session {
            f.word("session", id.as_str().as_bytes());
        }
        text(&mut f, "role", self.role.as_ref(), cap::NAME);
        text(&mut f, "skill_name", self.skill_name.as_ref(), cap::NAME);
        if let Some(id) = &self.execution_id {
            f.word("execution_id", id.as_str().as_bytes());
        }
        text(&mut f, "tool_call_id", self.tool_call_id.as_ref(), cap::NAME);
        text(&mut f, "context_id", self.context_id.as_ref(), cap::NAME);
        text(&mut f, "tool_name", self.tool_name.as_ref(), cap::NAME);
        value(&mut f, "tool_args", self.tool_args.as_ref(), cap::ARGS, &mut large);
        text(&mut f, "path", self.path.as_ref(), cap::PATH);
        if let Some(range) = self.range {
            f.pair("range", range.first, range.last);
        }
        if let Some(created) = self.created {
            f.flag("created", created);
        }
        digest(&mut f, "base_hash", self.base_hash.as_ref());
        digest(&mut f, "patch_hash", self.patch_hash.as_ref());
        digest(&mut f, "before_hash", self.before_hash.as_ref());
        digest(&mut f, "after_hash", self.after_hash.as_ref());
        word(&mut f, "execution_environment", self.execution_environment);
        word(&mut f, "sandbox_tier", self.sandbox_tier);
        word(&mut f, "risk", self.risk);
        word(&mut f, "verdict", self.verdict);
        text(&mut f, "rule", self.rule.as_ref(), cap::RULE);
        if !self.reasons.is_empty() {
            let reasons = self.reasons.iter().map(|reason| reason.get().as_str());
            f.texts("reasons", reasons, cap::REASONS, cap::REASON);
        }
        if let Some(id) = &self.hitl_id {
            f.word("hitl_id", id.as_str().as_bytes());
        }
        digest(&mut f, "plan_digest", self.plan_digest.as_ref());
        text(&mut f, "policy_revision", self.policy_revision.as_ref(), cap::NAME);
        if let Some(count) = self.redactions_applied {
            f.number("redactions_applied", count.into());
        }
        if let Some(code) = self.error_code {
            f.word("error_code", code.as_str().as_bytes());
        }
        text(&mut f, "message", self.message.as_ref(), cap::MESSAGE);
        if let Some(duration) = self.duration_ms {
            f.number("duration_ms", duration);
        }
        word(&mut f, "violation_type", self.violation_type);
        text(&mut f, "target_path", self.target_path.as_ref(), cap::PATH);
        value(&mut f, "command_args", self.command_args.as_ref(), cap::COMMAND_ARGS, &mut large);
        word(&mut f, "severity", self.severity);
        if let Some((size, root)) = &self.tree {
            f.number("tree_size", *size);
            f.digest("root_hash", root);
        }
        if let Some(key) = &self.key {
            f.text("key", &key.to_string(), cap::RULE);
        }
        if let Some(note) = &self.note {
            f.text("note", &note.to_string(), cap::MESSAGE);
        }
        if let Some(forgotten) = &self.forgotten {
            f.forgotten(forgotten);
        }
        let payloads = draw.map(|draw| {
            large.into_iter().map(|(field, content)| Payload::new(field, draw(), content)).collect::<Vec<_>>()
        });
        let payloads = payloads.unwrap_or_default();
        // The last field, so that one byte shows that a line has no payloads.
        if !payloads.is_empty() {
            f.payloads(&payloads);
        }
        EncodedEntry::new(f.into_bytes(), payloads)
    }
}

fn text(f: &mut FieldWriter, key: &'static str, text: Option<&RedactedText>, cap: usize) {
    if let Some(text) = text {
        f.text(key, text.get(), cap);
    }
}

fn word(f: &mut FieldWriter, key: &'static str, word: Option<&'static str>) {
    if let Some(word) = word {
        f.text(key, word, cap::NAME);
    }
}

/// Fields whose values did not fit into the line.
type LargeFields = Vec<(&'static str, Vec<u8>)>;

fn value(
    f: &mut FieldWriter,
    key: &'static str,
    value: Option<&Redacted<Value>>,
    cap: usize,
    large: &mut LargeFields,
) {
    if let Some(value) = value {
        large.extend(f.value(key, value.get(), cap).map(|bytes| (key, bytes)));
    }
}

fn digest(f: &mut FieldWriter, key: &'static str, digest: Option<&Digest>) {
    if let Some(digest) = digest {
        f.digest(key, digest);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use vambrace_core::redacted::{Redact, RedactError, RedactOutput};

    use super::*;
    use crate::payload::NamedPayload;
    use crate::seal::{MAX_LINE_BYTES, seal};

    struct Clean;
    impl Redact for Clean {
        fn redact<'a>(&self, text: &'a str) -> Result<RedactOutput<'a>, RedactError> {
            Ok(RedactOutput { text: text.into(), count: 0 })
        }
    }

    fn text(text: &str) -> Option<RedactedText> {
        Some(Redacted::text(text, &Clean).unwrap())
    }

    fn line(entry: &Entry) -> Value {
        let sealed = seal(entry, &Id::new("w-1").unwrap(), 1, Digest::ZERO).unwrap();
        serde_json::from_str(sealed.as_str()).unwrap()
    }

    // B5, S11
    #[test]
    fn a_record_contains_only_the_fields_that_were_set() {
        let ts = Timestamp::from_millis(1_785_000_000_123);
        let mut entry = Entry::new(Op::ReadFile, ts);
        entry.status = Some(RecordStatus::Success);
        entry.path = text("src/ma\"in.py\n");
        entry.range = Some(FileRange { first: 1, last: 200 });
        entry.base_hash = Some(Digest::ZERO);
        entry.tool_args = Some(Redacted::json(json!({"path": "src"}), &Clean).unwrap());
        entry.error_code = Some(ErrorCode::Policy);
        let line = line(&entry);
        let keys: Vec<_> = line.as_object().unwrap().keys().map(String::as_str).collect();
        assert_eq!(
            keys,
            [
                "v",
                "writer",
                "seq",
                "ts",
                "op",
                "event_type",
                "level",
                "status",
                "tool_args",
                "path",
                "range",
                "base_hash",
                "error_code",
                "prev_hash",
                "event_hash"
            ]
        );
        assert_eq!(line["ts"], "2026-07-25T17:20:00.123Z");
        assert_eq!(line["path"], "src/ma\"in.py\n");
        assert_eq!(line["range"], json!([1, 200]));
        assert_eq!(line["tool_args"], json!({"path": "src"}));
        assert_eq!(line["event_type"], "read_file");
        assert_eq!(line["error_code"], "E_POLICY");
    }

    #[test]
    fn the_largest_record_still_fits_into_a_line() {
        let huge = text(&"\u{1}".repeat(1 << 20));
        let args = Some(Redacted::json(json!([["x".repeat(1 << 20)]]), &Clean).unwrap());
        let id = Some(Id::new(&"x".repeat(128)).unwrap());
        let digest = Some(Digest::ZERO);
        let entry = Entry {
            user: huge.clone(),
            agent_id: huge.clone(),
            session: id.clone(),
            role: huge.clone(),
            skill_name: huge.clone(),
            execution_id: id,
            tool_call_id: huge.clone(),
            context_id: huge.clone(),
            tool_name: huge.clone(),
            tool_args: args.clone(),
            path: huge.clone(),
            base_hash: digest,
            patch_hash: digest,
            before_hash: digest,
            after_hash: digest,
            rule: huge.clone(),
            reasons: vec![huge.clone().unwrap(); 40],
            plan_digest: digest,
            policy_revision: huge.clone(),
            message: huge.clone(),
            target_path: huge,
            command_args: args,
            ..Entry::new(Op::Violation, Timestamp::from_millis(0))
        };
        let line = line(&entry);
        assert_eq!(line["tool_args"]["truncated"], true);
        assert_eq!(line["tool_args"]["bytes"], (1 << 20) + 6);
        assert_eq!(line["reasons"].as_array().unwrap().len(), 16);
        // Above, the arguments were reduced to their sizes; even at full length they fit.
        let beside = entry.encode_with_payloads(&mut || [1; 32]);
        assert!(beside.len() + cap::ARGS + cap::COMMAND_ARGS + 512 < MAX_LINE_BYTES);
        assert_eq!(
            beside.payloads().iter().map(|p| p.field).collect::<Vec<_>>(),
            ["tool_args", "command_args"]
        );
    }

    // B5
    #[test]
    fn large_arguments_are_stored_beside_the_line_that_commits_to_them() {
        let mut entry = Entry::new(Op::ToolStart, Timestamp::from_millis(0));
        let args = json!({"text": "private ".repeat(4000)});
        entry.tool_args = Some(Redacted::json(args.clone(), &Clean).unwrap());
        let mut salts = 0;
        let encoded = entry.encode_with_payloads(&mut || {
            salts += 1;
            [salts; 32]
        });
        let sealed = encoded.seal(&Id::new("w-1").unwrap(), 1, Digest::ZERO).unwrap();
        assert!(!sealed.as_str().contains("private"));
        let [payload] = encoded.payloads() else { panic!("{encoded:?}") };
        assert_eq!(serde_json::from_slice::<Value>(&payload.content).unwrap(), args);
        let named = NamedPayload::of_line(sealed.as_str());
        assert_eq!(named.len(), 1);
        assert_eq!((named[0].field.as_str(), named[0].commitment), ("tool_args", payload.commitment));
        assert_eq!((named[0].bytes, named[0].kept), (payload.bytes, payload.bytes));
        assert_eq!(crate::payload::commitment(&[1; 32], &payload.content), payload.commitment);
        // Without storage beside the chain there is no digest to test a guess against.
        let alone = line(&entry);
        assert_eq!(alone["tool_args"], json!({"truncated": true, "bytes": payload.bytes}));
        assert!(alone.get("payloads").is_none());
    }

    // B5: an agent cannot name or forget payloads
    #[test]
    fn arguments_that_look_like_payloads_are_arguments() {
        let listed =
            json!([{"field": "tool_args", "commitment": Digest::ZERO.to_string(), "bytes": 1, "kept": 1}]);
        let fake =
            json!({"payloads": listed, "forgotten": {"seq": 1, "commitment": Digest::ZERO.to_string()}});
        for op in [Op::ToolStart, Op::Violation, Op::PayloadForgotten] {
            let mut entry = Entry::new(op, Timestamp::from_millis(0));
            entry.tool_args = Some(Redacted::json(fake.clone(), &Clean).unwrap());
            entry.command_args = Some(Redacted::json(json!([listed, fake]), &Clean).unwrap());
            let sealed = seal(&entry, &Id::new("w-1").unwrap(), 1, Digest::ZERO).unwrap();
            assert_eq!(NamedPayload::of_line(sealed.as_str()), []);
            assert_eq!(ForgottenPayload::of_line(sealed.as_str()), None);
        }
        let forgotten = ForgottenPayload { seq: 4, commitment: Digest::of(b"x") };
        let entry = Entry {
            forgotten: Some(forgotten.clone()),
            ..Entry::new(Op::PayloadForgotten, Timestamp::from_millis(0))
        };
        let sealed = seal(&entry, &Id::new("w-1").unwrap(), 1, Digest::ZERO).unwrap();
        assert_eq!(ForgottenPayload::of_line(sealed.as_str()), Some(forgotten));
    }
}
