"""Appends the records of a file to a witness-log journal from 64 threads, each durable before the next; then truncates
the journal to half and opens it again. Prints the results as one line of JSON.

The package syncs only on request. So that 64 writers cost fewer than 64 syncs, a thread that syncs also syncs for
those that appended meanwhile: a group commit, which the package does not have.
"""
import json, pathlib, sys, threading, time
import witness_log

records = pathlib.Path(sys.argv[1]).read_bytes().split(b"\n")[:-1]
path, writers = sys.argv[2], 64
log = witness_log.JournaledLog.create(path, bytes(range(32)))
append_lock, sync_lock, state = threading.Lock(), threading.Lock(), {"appended": 0, "synced": 0, "syncs": 0}

def write(mine):
    for record in mine:
        with append_lock:
            log.append_intent(record)
            state["appended"] += 1
            ticket = state["appended"]
        with sync_lock:
            if state["synced"] < ticket:
                with append_lock:
                    upto = state["appended"]
                    log.sync()
                state["synced"], state["syncs"] = upto, state["syncs"] + 1

threads = [threading.Thread(target=write, args=(records[n::writers],)) for n in range(writers)]
begun, cpu = time.perf_counter(), time.process_time()
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
wall, cpu = time.perf_counter() - begun, time.process_time() - cpu
size = log.tree_size()
log.close()
journal = pathlib.Path(path)
lines = journal.read_bytes().split(b"\n")[:-1]
journal.write_bytes(b"".join(line + b"\n" for line in lines[:1 + len(records) // 2]))
try:
    log, _ = witness_log.JournaledLog.resume(path)
    # Its own check of its own export: does it report the missing records?
    verdict = json.loads(witness_log.verify_dossier_json(log.to_dossier_json(), 0.0))
    found = not verdict["internally_consistent"]
except witness_log.WitnessLogError as error:
    verdict, found = repr(error), True
print(json.dumps({"records": len(records), "wall": wall, "cpu": cpu, "syncs": state["syncs"], "found": found,
                  "reopened_with": log.tree_size(), "of": size, "verdict": str(verdict)[:600]}))
