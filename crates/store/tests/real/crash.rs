//! Several processes, and processes that are killed.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, Instant};

use rusqlite::Connection;
use vambrace_ledger::LedgerLine;
use vambrace_store::Store;

use crate::child_process::{Ack, ack, lines, spawn};
use crate::fixtures::{KEY_RECORDS, clean, home, open, runtime, segments};

const KILLS: u64 = 200;

/// Every acknowledged record is in the table, with its hash.
fn all_there(home: &Path, acks: &[Ack]) {
    let connection = Connection::open(home.join("vambrace.db")).unwrap();
    let mut statement = connection.prepare("SELECT seq, line FROM ledger").unwrap();
    let table: BTreeMap<u64, String> = statement
        .query_map((), |row| {
            let line: String = row.get(1)?;
            let hash = LedgerLine::read(line.as_bytes()).unwrap().event_hash.to_string();
            Ok((row.get::<_, i64>(0)?.unsigned_abs(), hash))
        })
        .unwrap()
        .map(Result::unwrap)
        .collect();
    for ack in acks {
        assert_eq!(table.get(&ack.seq), Some(&ack.hash), "record {}", ack.seq);
    }
}

fn lines_in_segments(home: &Path) -> usize {
    segments(home).iter().map(|(_, bytes)| bytes.iter().filter(|byte| **byte == b'\n').count()).sum()
}

// B5
#[test]
fn several_processes_write_one_chain() {
    let (_temp, home) = home();
    let mut children: Vec<_> = (0..5).map(|n| spawn(&home, &format!("s-{n}"), 60)).collect();
    let mut acks = Vec::new();
    for child in &mut children {
        let output: Vec<String> = lines(child).collect();
        assert!(output.iter().any(|line| line.ends_with("DONE")), "{output:?}");
        acks.extend(output.iter().filter_map(|line| ack(line)));
        assert!(child.wait().unwrap().success());
    }
    assert_eq!(acks.len(), 5 * 61);
    all_there(&home, &acks);
    let report = clean(&home);
    assert_eq!((report.records, report.head.seq), (305 + KEY_RECORDS, 305 + KEY_RECORDS));
    // The last process to close has brought the segments up to date.
    assert_eq!(lines_in_segments(&home) as u64, 305 + KEY_RECORDS);
}

// B5
#[test]
fn acknowledged_records_survive_every_kill() {
    let (_temp, home) = home();
    let mut acks: Vec<Ack> = Vec::new();
    for kill in 0..KILLS {
        let mut child = spawn(&home, &format!("s-{kill}"), 10_000);
        let mut output = lines(&mut child);
        // Between the first output of a process and its dozenth record, at any moment within one.
        let wanted = kill % 13;
        let mut received = 0;
        for line in output.by_ref() {
            assert!(!line.starts_with("FAILED"), "{line}");
            if let Some(ack) = ack(&line) {
                acks.push(ack);
                received += 1;
            }
            if received >= wanted && (line.ends_with("OPENING") || received > 0) {
                break;
            }
        }
        let moment = Instant::now();
        while moment.elapsed() < Duration::from_micros(kill * 7919 % 4000) {
            std::hint::spin_loop();
        }
        child.kill().unwrap();
        child.wait().unwrap();
        // What the pipe still holds was printed before the kill.
        acks.extend(output.filter_map(|line| ack(&line)));
        if kill % 40 == 39 {
            all_there(&home, &acks);
            clean(&home);
        }
    }
    assert!(acks.len() as u64 > KILLS, "only {} records", acks.len());
    all_there(&home, &acks);
    drop(open(&home));
    let report = clean(&home);
    assert!(report.records >= acks.len() as u64);
    assert_eq!(lines_in_segments(&home) as u64, report.records);
}

#[test]
fn a_restart_continues_the_chain() {
    let (_temp, home) = home();
    for round in 0..5 {
        let store = open(&home);
        let head = runtime().block_on(async {
            let name = format!("s-{round}");
            let batch = vambrace_store::Batch::durable(vec![], vec![crate::fixtures::session(&name)]);
            store.commit(batch).await.unwrap();
            for n in 0..3 {
                store.commit(crate::fixtures::start(&name, &format!("{name}-{n}"), n)).await.unwrap();
            }
            store.head().await.unwrap()
        });
        assert_eq!(head.seq, KEY_RECORDS + (round + 1) * 3);
        drop(store);
        assert_eq!(clean(&home).head, head);
    }
}
