#!/usr/bin/env python3
"""A second verifier of Vambrace ledgers: needs only Python 3.9 or newer, and shares no code with `vambrace audit verify`.

    verify_ledger.py STATE_DIRECTORY [--checkpoint FILE]... [--key VKEY]... [--now 2026-01-31T12:00:00.000Z] [--json]
    verify_ledger.py --proof FILE --key VKEY...   the output of `audit prove` or `audit consistency --json`; - is stdin
    verify_ledger.py --batch                      one JSON object per line: folder (the state directory), and checkpoints, keys, now as above
Reads only; works on a copy of the directory, without the secret key. An anchor is one more `--checkpoint`.
Exit 0: nothing found, 6: findings, 2: wrong usage. The kinds of findings are those of `vambrace audit verify`.
"""
import argparse, base64, datetime, functools, hashlib, json, pathlib, re, sqlite3, sys, urllib.parse
sys.dont_write_bytecode = True
try: import verify_beside
except ImportError: verify_beside = None
GRACE_MS, ZERO = 10_000, b"0" * 64  # younger records may not have a checkpoint yet
KEPT_FROM = 8  # the table keeps the roots of subtrees of 2^8 records and more
def sha256(data): return hashlib.sha256(data).digest()
# ---- ed25519 (RFC 8032, 5.1). Points are (X, Y, Z, T) with x = X/Z, y = Y/Z, xy = T/Z.
P, ORDER = 2**255 - 19, 2**252 + 27742317777372353535851937790883648493
D = -121665 * pow(121666, -1, P) % P
def add(p, q):
    a, b = (p[1] - p[0]) * (q[1] - q[0]) % P, (p[1] + p[0]) * (q[1] + q[0]) % P
    c, d = 2 * p[3] * q[3] * D % P, 2 * p[2] * q[2] % P
    e, f, g, h = b - a, d - c, d + c, b + a
    return e * f % P, g * h % P, f * g % P, e * h % P
def times(number, point):
    result = (0, 1, 1, 0)
    while number:
        result = add(result, point) if number & 1 else result
        point, number = add(point, point), number >> 1
    return result
def unpack(data):
    """The point encoded in 32 bytes, which must be its canonical encoding."""
    y, odd = int.from_bytes(data, "little") & (2**255 - 1), data[31] >> 7
    square = (y * y - 1) * pow(D * y * y + 1, -1, P) % P
    x = pow(square, (P + 3) // 8, P)
    x = x if x * x % P == square else x * pow(2, (P - 1) // 4, P) % P
    if y >= P or x * x % P != square or (x == 0 and odd):
        raise ValueError("not a point on the curve")
    x = x if x & 1 == odd else P - x
    return x, y, 1, x * y % P
BASE = unpack((4 * pow(5, -1, P) % P).to_bytes(32, "little"))
@functools.lru_cache(maxsize=65536)
def verifies(key, text, signature):
    """Strict: key and first half are not of small order, and the second half is below the order of the group."""
    first, second = signature[:32], int.from_bytes(signature[32:], "little")
    try:
        a, r = unpack(key), unpack(first)
    except (ValueError, IndexError):
        return False
    if len(signature) != 64 or second >= ORDER or any(times(8, p)[0] == 0 for p in (a, r)):
        return False
    k = int.from_bytes(hashlib.sha512(first + key + text).digest(), "little") % ORDER
    x, y, z, _ = add(times(second, BASE), times(k, (P - a[0], a[1], 1, P - a[3])))
    return (x - r[0] * z) % P == 0 and (y - r[1] * z) % P == 0
# ---- keys, signed notes and checkpoints (C2SP). A key is a name and bytes, a note is a text and signatures.
def unbase64(text):
    data = base64.b64decode(text)
    if not data or base64.b64encode(data).decode() != text:
        raise ValueError("not canonical base64")
    return data
def key_id(name, key):
    return sha256(name.encode() + b"\n\x01" + key)[:4]
def key_text(key):
    return f"{key[0]}+{key_id(*key).hex()}+{base64.b64encode(bytes([1]) + key[1]).decode()}"
def read_key(text):
    name, _, code = (text.split("+", 2) + ["", ""])[:3]
    key = name, unbase64(code)[1:]
    if len(key[1]) != 32 or key_text(key) != text:
        raise ValueError(f"`{text}` is not a log key")
    unpack(key[1])
    return key
def read_note(data):
    text, cut, lines = data.decode().rpartition("\n\n")
    if not cut or not lines.endswith("\n") or len(data) > 65536 or re.search("[\x00-\x09\x0b-\x1f\x7f-\x9f]", text):
        raise ValueError("not a signed note")
    signatures = []
    for line in lines[:-1].split("\n"):
        match = re.fullmatch("\u2014 ([^+\\s\x00-\x1f\x7f-\x9f]+) (\\S+)", line)
        code = unbase64(match[2]) if match else b""
        if len(code) < 4 or len(signatures) == 16:
            raise ValueError("malformed signature line")
        signatures.append((match[1], code[:4], code[4:]))
    return text + "\n", signatures
def signed(note, key):
    """True for a valid signature of this key, False for an invalid one, None if there is none."""
    ours = [bytes for name, number, bytes in note[1] if (name, number) == (key[0], key_id(*key))]
    return all(verifies(key[1], note[0].encode(), bytes) for bytes in ours) if ours else None
def read_checkpoint(note):
    lines = note[0][:-1].split("\n")
    if len(lines) < 3 or "" in lines or not re.fullmatch("0|[1-9][0-9]{0,18}", lines[1]) or int(lines[1]) >= 2**63 \
            or len(unbase64(lines[2])) != 32:
        raise ValueError("not a checkpoint")
    return lines[0], int(lines[1]), unbase64(lines[2])
# ---- the tree of RFC 6962, and its proofs by their recursive definitions
def node(left, right): return sha256(b"\1" + left + right)
def half(size): return 1 << (size - 1).bit_length() - 1
def root_of(peaks): return functools.reduce(lambda right, left: node(left, right), peaks[::-1]) if peaks else sha256(b"")
def included(index, size, leaf, proof):
    """The root that an inclusion proof leads to."""
    if index >= size or (size == 1) != (not proof):
        raise ValueError("the proof has the wrong length")
    if size == 1: return leaf
    if index < half(size):
        return node(included(index, half(size), leaf, proof[:-1]), proof[-1])
    return node(proof[-1], included(index - half(size), size - half(size), leaf, proof[:-1]))
def grown(old, new, proof, known):
    """Both roots that a consistency proof leads to; `known` is the old root while the old tree is on the left."""
    if (len(proof) != (known is None)) if old == new else not proof:
        raise ValueError("the proof has the wrong length")
    if old == new:
        return (known or proof[0],) * 2
    if old <= half(new):
        before, after = grown(old, half(new), proof[:-1], known)
        return before, node(after, proof[-1])
    return tuple(node(proof[-1], hash) for hash in grown(old - half(new), new - half(new), proof[:-1], None))
def check_proof(text, keys):
    """Returns what is proved; raises unless the proof is valid and known keys signed its checkpoints."""
    def moment(note):
        note = read_note((note or "").encode())
        if not any(signed(note, key) for key in keys):
            raise ValueError("no key given by --key signed a checkpoint")
        return read_checkpoint(note)
    if not text.startswith("c2sp.org/tlog-proof@v1\nextra "):
        said = json.loads(text)
        (origin, old, before), (other, new, after) = moment(said["old"]["note"]), moment(said["new"]["note"])
        proof = [bytes.fromhex(hash[7:]) for hash in said["proof"]]
        if origin != other or not 0 < old <= new or grown(old, new, proof, before) != (before, after):
            raise ValueError("the older ledger is not the beginning of the newer one")
        return f"the first {old} records are a prefix of the first {new}"
    head, _, note = text.partition("\n\n")
    extra, index, *proof = head.split("\n")[1:]
    record, index, (_, size, root) = unbase64(extra[6:]), int(index[6:]), moment(note)
    if included(index, size, sha256(b"\0" + record), [unbase64(hash) for hash in proof]) != root:
        raise ValueError("the record is not in the ledger of this checkpoint")
    return f"record {index + 1} is among the first {size}: {record.decode()}"
# ---- a state directory
LINE = re.compile(rb'\{"v":1,"writer":"([^"]*)","seq":(\d+),"ts":"(.{24})","op":"([^"]*)".*'
                  rb',"prev_hash":"sha256:([0-9a-f]{64})"(,"event_hash":"sha256:([0-9a-f]{64})"\})', re.S)
LAST_TIME = "9999-12-30T22:00:00.000Z"
def millis(ts):
    if not re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", ts, re.A) or not "1970" <= ts <= LAST_TIME:
        raise ValueError("not a time")
    return round(datetime.datetime.fromisoformat(ts[:-1] + "+00:00").timestamp() * 1000)
class Check:
    def __init__(self, folder, checkpoints=(), keys=(), now=None):
        self.folder, self.known = pathlib.Path(folder), [read_key(key) for key in keys]
        self.kept = [self.folder / "ledger/checkpoint"] + [pathlib.Path(path) for path in checkpoints]
        self.now = millis(now) if now else int(datetime.datetime.now().timestamp() * 1000)
        self.findings, self.notes, self.rows, self.special = [], [], [], []
        self.head, self.anchored, self.roots, self.keys = 0, 0, [root_of([])], []
    def must(self, holds, place, kind, detail=""):
        self.findings += [] if holds else [{"place": place, "kind": kind, "detail": detail}]
    def run(self):
        try:
            path, log = self.folder.absolute() / "vambrace.db", self.folder / "vambrace.db-wal"
            mode = "mode=ro" if log.exists() and log.stat().st_size else "immutable=1"
            db = sqlite3.connect(f"file:{urllib.parse.quote(str(path))}?{mode}", uri=True, isolation_level=None)
            db.text_factory = bytes
            # A running store writes the table first, then segments and checkpoints; so they are read in the opposite order.
            cursor = db.execute("SELECT seq, segment, offset FROM projection WHERE name = 'segments'").fetchone()
            files = [path for path in (self.folder / "ledger").glob("*.jsonl") if re.fullmatch(r"\d{20}", path.stem)]
            segments = [(int(path.stem), path.read_bytes()) for path in sorted(files)]
            self.kept = [(path, path.read_bytes() if path.exists() else None) for path in self.kept]
            db.execute("BEGIN")
            self.table(db)
            self.segments(segments, *(cursor or (0, 0, 0)))
            self.keyring(db.execute("SELECT seq, key FROM ledger_keys ORDER BY seq").fetchall())
            self.checkpoints(db.execute("SELECT size, sealed, note, at FROM checkpoints ORDER BY size").fetchall())
            self.tail()
            if verify_beside: verify_beside.check(self, db, sys.modules[__name__])
            else: self.notes.append({"place": "payloads, decisions", "kind": "unchecked", "detail": "no verify_beside.py"})
        except (sqlite3.Error, TypeError, ValueError, OSError, LookupError, AttributeError, RecursionError) as error:
            self.must(False, "database", "database_damaged", repr(error))
        return {"ok": not self.findings, "records": len(self.rows), "anchored": self.anchored,
                "findings": self.findings, "notes": self.notes}
    def table(self, db):
        """The chain, and the stored tree."""
        tables = {name for name, in db.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")}
        older = b"head" in tables and b"writer" not in tables  # no newer program has opened the directory
        writer, = db.execute(f"SELECT {'writer FROM head' if older else 'name FROM writer'} WHERE id = 1").fetchone() or (b"",)
        self.must(writer, "writer row", "writer_missing")
        kept = db.execute("SELECT size, edge, hash FROM tree WHERE id = 1").fetchone() or (0, b"", b"sha256:" + ZERO)
        self.origin, last, peaks, nodes, edge = f"vambrace/{writer.decode()}", ZERO, [], {}, (0, b"", b"sha256:" + ZERO)
        for size, (row, line) in enumerate(db.execute("SELECT seq, line FROM ledger ORDER BY seq")):
            place, match = f"record {row}", LINE.fullmatch(line)
            try:
                millis(match[3].decode())
                self.must(match[1] == writer and int(match[2]) == row and len(line) <= 65536, place, "reordered")
                self.must(sha256(line[:match.start(6)]).hex().encode() == match[7], place, "wrong_hash")
                self.must((row, match[5]) == (self.head + 1, last), place, "broken_link")
                if match[4] in (b"checkpoint", b"ledger.key", b"recovery"):
                    self.special.append((row, json.loads(line)))
            except (TypeError, ValueError):
                self.must(False, place, "malformed")
            self.rows.append((row, line))
            self.head, last = row, match[7] if match else ZERO
            root, height = sha256(b"\0" + line), 0
            while size >> height & 1:
                root, height = node(peaks.pop(), root), height + 1
                nodes[height, size >> height] = root
            peaks.append(root)
            self.roots.append(root_of(peaks))
            edge = (size + 1, b"".join(peaks), b"sha256:" + last) if size + 1 == kept[0] else edge
        there = {(height, place): root for height, place, root in db.execute("SELECT height, place, hash FROM tree_nodes")}
        nodes = {at: root for at, root in nodes.items() if at[0] >= KEPT_FROM and at[1] + 1 << at[0] <= kept[0]}
        self.must(kept == edge and there == nodes, "tree", "tree_differs")
    def segments(self, segments, upto, newest, offset):
        """Each segment holds exactly its lines of the table; only the last may be shorter, but not shorter than the cursor."""
        seals = [seq for seq, said in self.special if said.get("event_type") == "segment.seal"]
        bounds = [float("-inf")] + [first for first, _ in segments[1:]] + [float("inf")]
        for (first, data), begin, end in zip(segments, bounds, bounds[1:]):
            place, rows = f"segment {first:020}.jsonl", [(seq, line) for seq, line in self.rows if begin <= seq < end]
            least = sum(len(line) + 1 for seq, line in rows if seq <= upto or end < float("inf"))
            self.must(b"".join(line + b"\n" for _, line in rows).startswith(data), place, "segment_differs")
            self.must(len(data) >= least, place, "segment_short")
            self.must(end == float("inf") or (rows and rows[-1][0] in seals), place, "unsealed")
        at = sum(len(line) + 1 for seq, line in self.rows if newest <= seq <= upto) if newest else 0
        stands = upto <= self.head and newest <= upto + 1 and (newest or not upto) and (not offset or newest in dict(segments))
        self.must(stands and offset == at, "segments", "segment_missing", "the cursor is not at the end of a record")
    def keyring(self, table):
        """The keys as the records name them: the first alone, each later one with the signatures of both."""
        for seq, said in self.special:
            if str(said.get("event_type")).startswith("key."):
                try:
                    new, fits = read_key(str(said.get("key"))), said["event_type"] == "key.created"
                    if self.keys:
                        note, old = read_note(said.get("note", "").encode()), self.keys[-1][1]
                        text = f"{self.origin}\nthe key of this ledger changes\n{key_text(old)}\n{key_text(new)}\n"
                        fits = note[0] == text and signed(note, old) and signed(note, new)
                    self.keys.append((seq, new))
                except ValueError:
                    fits = False
                self.must(fits, f"record {seq}", "bad_handover")
        self.must(table == [(seq, key_text(key).encode()) for seq, key in self.keys], "key", "wrong_key")
        self.must(all(known in dict(map(reversed, self.keys)) for known in self.known), "key", "wrong_key", "the ledger never had that key")
    def holds(self, place, data):
        """Checks a checkpoint against the records; returns its size, its root and its text."""
        try:
            note = read_note(data)
            origin, size, root = read_checkpoint(note)
        except ValueError as error:
            return self.must(False, place, "bad_checkpoint", str(error)) or (-1, b"", "")
        # Signed by the key of that time or a successor: a rebuilt tree is signed again.
        ends = [seq for seq, _ in self.keys[1:]] + [float("inf")]
        found = [signed(note, key) for (_, key), end in zip(self.keys, ends) if size < end]
        kind = ("other_ledger" if origin != self.origin else "wrong_signature" if False in found else
                "unsigned" if True not in found else "shorter_than_checkpoint" if size > self.head else
                "wrong_root" if self.roots[size:size + 1] != [root] else None)
        self.must(not kind, place, kind, f"it covers {size} records of `{origin}`, there are {self.head}")
        self.anchored = self.anchored if kind else max(self.anchored, size)
        return size, root, note[0]
    def checkpoints(self, rows):
        texts, seals = set(), set()
        for size, _, note, _ in rows:
            said, _, text = self.holds(f"checkpoint at {size} (table)", note)
            self.must(said == size, f"checkpoint at {size} (table)", "bad_checkpoint", "the row has another size")
            texts.add(text)
        # The first checkpoint is in the table a moment before its file exists.
        needed = self.kept[0][1] is not None or any(abs(self.now - at) > GRACE_MS for *_, at in rows[-1:])
        for path, data in self.kept if needed else self.kept[1:]:
            texts.add(self.holds(f"checkpoint ({path.name})", data or b"")[2])
        for seq, said in self.special:
            if said.get("event_type") == "rollback.acknowledged":
                self.notes.append({"place": f"record {seq}", "kind": "rollback", "detail": "a user acknowledged it"})
            if said.get("event_type") == "segment.seal":
                size, root, text = self.holds(f"seal in record {seq}", str(said.get("note")).encode())
                fits = text in texts and size < seq and (size, "sha256:" + root.hex()) == (said.get("tree_size"), said.get("root_hash"))
                self.must(fits, f"seal in record {seq}", "bad_checkpoint", "it names a checkpoint that is stored nowhere")
                seals.add(size)
        self.must({size for size, sealed, *_ in rows if sealed} == seals, "checkpoint (table)", "bad_checkpoint", "the seals differ")
    def tail(self):
        """Records without a checkpoint are normal for a few seconds and a finding afterwards."""
        first = next((LINE.fullmatch(line) for seq, line in self.rows if seq == self.anchored + 1), None)
        young = first and abs(self.now - millis(first[3].decode())) <= GRACE_MS
        if self.anchored < self.head:
            finding = {"place": f"record {self.anchored + 1}", "kind": "unanchored_tail", "detail": f"up to {self.head}"}
            (self.notes if young else self.findings).append(finding)
def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", nargs="?")
    for name in ("--checkpoint", "--key"): parser.add_argument(name, action="append", default=[])
    for name in ("--proof", "--now"): parser.add_argument(name)
    for name in ("--batch", "--json"): parser.add_argument(name, action="store_true")
    args = parser.parse_args()
    for line in sys.stdin if args.batch else ():
        print(json.dumps(Check(**json.loads(line)).run()), flush=True)
    if args.proof:
        text = sys.stdin.read() if args.proof == "-" else pathlib.Path(args.proof).read_text()
        try:
            return print(check_proof(text, [read_key(key) for key in args.key]))
        except (ValueError, KeyError, TypeError) as error:
            return print(f"finding  {error}") or 6
    if not args.folder:
        return None if args.batch else parser.error("expected a state directory, --proof or --batch")
    report = Check(args.folder, args.checkpoint, args.key, args.now).run()
    lines = [f"{word} {f['place']}: {f['kind']} {f['detail']}" for word in ("notes", "findings") for f in report[word]]
    print(json.dumps(report) if args.json else "\n".join([f"{report['records']} records, {report['anchored']} signed"] + lines))
    return 0 if report["ok"] else 6
if __name__ == "__main__":
    sys.exit(main())
