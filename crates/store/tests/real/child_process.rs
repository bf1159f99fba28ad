//! This binary as a child process: writes, and reports on stdout what was acknowledged.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;

use vambrace_store::{Batch, Durability, Entry, Store};

use crate::fixtures::{at, id, open, runtime, session, start};

const HOME: &str = "VAMBRACE_STORE_CHILD_HOME";
const NAME: &str = "VAMBRACE_STORE_CHILD_NAME";
const BATCHES: &str = "VAMBRACE_STORE_CHILD_BATCHES";
const TASKS: usize = 4;

/// A record that was acknowledged to a child.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Ack {
    pub(crate) seq: u64,
    pub(crate) hash: String,
}

/// A child that writes to a state directory.
pub(crate) fn command(program: &Path, home: &Path, name: &str, batches: usize) -> Command {
    let mut command = Command::new(program);
    command
        .args(["--exact", "child_process::child", "--nocapture", "--test-threads=1"])
        .env(HOME, home)
        .env(NAME, name)
        .env(BATCHES, batches.to_string())
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::inherit());
    command
}

pub(crate) fn spawn(home: &Path, name: &str, batches: usize) -> Child {
    command(&std::env::current_exe().unwrap(), home, name, batches).spawn().unwrap()
}

/// The lines of a child as they come: acknowledgements and failures.
pub(crate) fn lines(child: &mut Child) -> impl Iterator<Item = String> + use<> {
    BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok)
}

pub(crate) fn ack(line: &str) -> Option<Ack> {
    let mut words = line.strip_prefix("ACK ")?.split(' ');
    // A line that the kill truncated acknowledges nothing.
    let (seq, hash) = (words.next()?.parse().ok()?, words.next()?.to_owned());
    (words.next() == Some("END")).then_some(Ack { seq, hash })
}

/// Not a test by itself: does nothing unless it is started as a child.
#[test]
fn child() {
    let Some(home) = std::env::var_os(HOME) else { return };
    let name = std::env::var(NAME).unwrap();
    let batches: usize = std::env::var(BATCHES).unwrap().parse().unwrap();
    print_line("OPENING");
    let store = Arc::new(open(Path::new(&home)));
    runtime().block_on(async {
        let opened = Entry::session(vambrace_ledger::SessionChange::Open, id(&name), at(0));
        let opening = Batch::durable(vec![opened], vec![session(&name)]);
        report(store.commit(opening).await);
        let tasks: Vec<_> = (0..TASKS)
            .map(|task| {
                let (store, name) = (Arc::clone(&store), name.clone());
                tokio::spawn(async move {
                    for n in 0..batches.div_ceil(TASKS) {
                        let mut batch = start(&name, &format!("{name}-{task}-{n}"), 1);
                        if n % 3 == 1 {
                            batch.durability = Durability::Lazy;
                        }
                        report(store.commit(batch).await);
                    }
                })
            })
            .collect();
        for task in tasks {
            task.await.unwrap();
        }
    });
    print_line("DONE");
}

fn report(result: Result<vambrace_store::Committed, vambrace_store::StoreError>) {
    match result {
        Ok(committed) => {
            for sealed in committed.positions() {
                print_line(&format!("ACK {} {} END", sealed.record.seq, sealed.event_hash));
            }
        }
        Err(error) => print_line(&format!("FAILED {error}")),
    }
}

/// Writes the whole line at once and flushes it, so that a kill loses nothing that was printed.
fn print_line(line: &str) {
    let mut out = std::io::stdout().lock();
    out.write_all(format!("{line}\n").as_bytes()).unwrap();
    out.flush().unwrap();
}
