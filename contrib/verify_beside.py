"""Checks of a Vambrace ledger that go beyond its chain: payloads, and the decisions of people. `verify_ledger.py` imports this
module if both are in the same directory; `tools` is that script, `check` its `Check` of a state directory."""
import json, re

STAMP = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z"
DECISION = re.compile(r"vambrace/decision/v1\nabout (.+)\nplan (sha256:[0-9a-f]{64})\ndecision (\w+)\nreach (once|class|session)\n"
                      rf"at ({STAMP})\nexpires ({STAMP})\n")
# The op and event type of a record, and the decision that must have been signed for it.
DECIDED = {("policy.change", "token.created"): "token", ("policy.change", "token.revoked"): "revoke",
           ("policy.change", "policy.trust"): "trust", ("tool.approval", "approval.approved"): "approve",
           ("tool.approval", "approval.rejected"): "reject", ("tool.approval", "approval.rollback"): "rollback",
           ("grant", "grant.revoked"): "revoke"}

def payloads(check, db, tools):
    """Every payload that a record names exists and matches its commitment, or a record says that it was forgotten."""
    named, gone = {}, set()
    for seq, line in check.rows:
        body = line.rpartition(b',"prev_hash":')[0]
        if body.endswith((b"]", b"}")) and (b',"payloads":[' in body or b',"forgotten":{' in body):
            fields = json.loads(line)  # only top-level fields count: the arguments of a call can look like anything
            named.update(((seq, said["field"]), said["commitment"]) for said in fields.get("payloads", []))
            said = fields.get("forgotten", {"seq": 0, "commitment": ""})
            gone.add((said["seq"], said["commitment"]))
    older = not db.execute("SELECT 1 FROM sqlite_schema WHERE type = 'table' AND name = 'payloads'").fetchone()
    for seq, field, salt, content in () if older else db.execute("SELECT seq, field, salt, content FROM payloads"):
        said = named.pop((seq, field.decode()), None)
        known = said and (seq, said) not in gone
        check.must(known, f"record {seq}", "payload_unknown", "no record names it")
        fits = len(salt) == 32 and f"sha256:{tools.sha256(salt + content).hex()}" == said
        check.must(fits or not known, f"record {seq}", "payload_differs", "it does not match its commitment")
    for (seq, field), said in named.items():
        check.must((seq, said) in gone, f"record {seq}", "payload_missing", f"`{field}`, and no record says that it was forgotten")

class Decisions:
    """Every decision is signed by a key that was valid then and matches its record; a call that started on an approval had it."""
    def __init__(self, tools):
        self.tools, self.keys, self.agreed, self.notes = tools, [], {}, set()
    def signed(self, said, verb):
        note = self.tools.read_note(said.get("note", "").encode())
        match = DECISION.fullmatch(note[0])
        for stamp in (match[5], match[6]):
            self.tools.millis(stamp)
        same = (match[1], match[2], match[3]) == (said.get("hitl_id"), said.get("plan_digest"), verb)
        good = same and any(self.tools.signed(note, key) for key in self.keys) and note[0] not in self.notes
        self.notes.update([note[0]] if good else [])  # the same text, with its time, counts once
        if good and verb in ("approve", "rollback"):
            self.agreed[match[1]] = match[2], match[4]
        return good
    def fits(self, said, event):
        """Whether a record that needs a decision has a valid one; also tracks which approver keys are valid."""
        about = said.get("hitl_id") or ""
        if event in DECIDED:
            # Before there was an approver key, trust was not signed.
            good = (event[1] == "policy.trust" and "note" not in said) or self.signed(said, DECIDED[event])
            if good and event[1] == "token.created" and "key" in said:
                self.keys.append(self.tools.read_key(said["key"]))
            if good and event[1] == "token.revoked":
                self.keys = [key for key in self.keys if key[0] != f"token/{about}"]
            return good
        if event == ("grant", "grant.given"):
            return self.agreed.get(about, ("", ""))[1] in ("class", "session")
        if event[0] == "tool.start" and about and about in (said.get("rule") or ""):
            plan, reach = self.agreed.get(about, ("", ""))
            self.agreed[about] = "used", reach  # no other call starts on it
            return plan == said.get("plan_digest")
        if event in (("policy.change", "approver.created"), ("policy.change", "approver.client")):
            self.keys.append(self.tools.read_key(said["key"]))
        return True

def decisions(check, tools):
    walk = Decisions(tools)
    for seq, line in check.rows:
        op = tools.LINE.fullmatch(line)
        if not op or op[4] not in (b"policy.change", b"tool.approval", b"grant", b"tool.start") \
                or (op[4] == b"tool.start" and b'"hitl_id":' not in line):
            continue
        said = json.loads(line)
        try:
            good = walk.fits(said, (said.get("op"), said.get("event_type")))
        except (ValueError, TypeError, KeyError, AttributeError):
            good = False
        check.must(good, f"record {seq}", "bad_decision", "no valid approver key has signed this")
        if said.get("event_type") == "approver.created" and sum(key[0].startswith("approver/") for key in walk.keys) > 1:
            check.notes.append({"place": f"record {seq}", "kind": "new_approver", "detail": "a new approver key is valid from here on"})

def check(folder, db, tools):
    payloads(folder, db, tools)
    decisions(folder, tools)
