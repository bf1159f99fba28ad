//! Probes against other runs, and against what all processes of a machine share.

use std::fs::File;

use super::probes::{Probe, broker, call, number, read};

/// Probes by name.
pub(crate) const OTHER_RUN_PROBES: &[Probe] = &[
    // The program of another run.
    ("environment_of_a_sibling", || read(format!("/proc/{}/environ", sibling()).into())),
    ("arguments_of_a_sibling", || read(format!("/proc/{}/cmdline", sibling()).into())),
    ("memory_of_a_sibling", || File::open(format!("/proc/{}/mem", sibling())).map(drop)),
    ("signal_a_sibling", || call(unsafe { libc::kill(sibling(), 0) })),
    ("ptrace_a_sibling", || number(unsafe { libc::ptrace(libc::PTRACE_ATTACH, sibling(), 0, 0) }).map(drop)),
    // Scheduling of the broker, and of this process above all others.
    ("scheduling_of_the_broker", || {
        let idle = libc::sched_param { sched_priority: 0 };
        call(unsafe { libc::sched_setscheduler(broker(), libc::SCHED_IDLE, &raw const idle) })
    }),
    ("real_time", || {
        let first = libc::sched_param { sched_priority: 1 };
        call(unsafe { libc::sched_setscheduler(0, libc::SCHED_FIFO, &raw const first) })
    }),
    ("place_of_memory", || {
        // 0: the default policy, for no memory at all; harmless, but the filter still judges it.
        number(unsafe { libc::syscall(libc::SYS_mbind, 0, 0, 0, 0, 0, 0) }).map(drop)
    }),
];

/// Signals every process that may be signalled. Harmless to processes that do not handle it.
pub(crate) fn signal_all_processes() {
    unsafe { libc::kill(-1, libc::SIGWINCH) };
}

fn sibling() -> libc::pid_t {
    std::env::var("ESCAPE_SIBLING").ok().and_then(|pid| pid.parse().ok()).unwrap_or_else(broker)
}
