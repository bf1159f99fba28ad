//! Which denial must be reported for each probe, or why none is. Everything is observed; Landlock's audit records,
//! which report more where they are readable, are not required.

use std::path::Path;

use DenialRule::{Filter, Masked, NotGranted, NotShown, ReadOnly};
use DeniedOperation::{Call, Look, Read, Write};
use vambrace_sandbox::{DenialRule, DeniedOperation, Tier};

/// The expected report.
#[derive(Debug, Clone, Copy)]
pub(crate) enum ExpectedDenial {
    Event(DeniedOperation, DenialRule),
    /// None, and why.
    Silent(&'static str),
}

const ABSENT: &str = "fails with ENOSYS, so that programs fall back";
const BOUND: &str = "a limit, not a denial: the program's own error, or the run's end, shows it";
const BY_HANDLE: &str = "by a handle, without a path: only the mount denies it";
const CONNECT: &str = "observed only with a gate; there is no such socket in the cell";
const KILLED: &str = "killed by the filter, which does not notify for another architecture";
const LANDLOCK: &str = "a writable path: left to Landlock, whose audit records report it";
const LINKED: &str = "the source of a link is left to the kernel: programs fall back to a copy";
const NEW_NAME: &str = "the directory is visible, so the kernel denies the missing name";
const NOTHING: &str = "nothing is attempted: the probe inspects what the program has";
const NO_GAIN: &str = "it starts like any program, and gains nothing";
const NO_TERMINAL: &str = "the run's session has none, so it fails as it would without a sandbox";
const OF_A_PROCESS: &str = "per-process files are not reported: pids are reused";
const OWN_DIR: &str = "its own home directory, which it may list";
const OWN_IPC: &str = "its own ipc namespace has no segment with that key";
const OWN_RULE: &str = "the kernel's rule for every unprivileged program";
const SIGNAL: &str =
    "no such pid in the namespace, or denied by Landlock's scope, whose audit records report it";
const SPACE: &str = "gets through";

/// Probe, the path that must exist on this machine for a report, and the expected reports in tiers full and
/// no-userns.
const EVENTS: &[(&str, &str, ExpectedDenial, ExpectedDenial)] = &[
    ("read_ssh_key", "", ExpectedDenial::Event(Read, NotShown), ExpectedDenial::Event(Read, NotGranted)),
    (
        "read_outside_by_parent",
        "",
        ExpectedDenial::Event(Read, NotShown),
        ExpectedDenial::Event(Read, NotGranted),
    ),
    (
        "read_outside_by_full_path",
        "",
        ExpectedDenial::Event(Read, NotShown),
        ExpectedDenial::Event(Read, NotGranted),
    ),
    (
        "read_etc_shadow",
        "/etc/shadow",
        ExpectedDenial::Event(Read, NotGranted),
        ExpectedDenial::Event(Read, NotGranted),
    ),
    (
        "read_machine_id",
        "/etc/machine-id",
        ExpectedDenial::Event(Read, NotGranted),
        ExpectedDenial::Event(Read, NotGranted),
    ),
    ("write_etc", "", ExpectedDenial::Event(Write, ReadOnly), ExpectedDenial::Event(Write, NotGranted)),
    ("write_usr", "", ExpectedDenial::Event(Write, ReadOnly), ExpectedDenial::Event(Write, NotGranted)),
    ("write_outside", "", ExpectedDenial::Event(Write, NotShown), ExpectedDenial::Event(Write, NotGranted)),
    ("read_state", "", ExpectedDenial::Event(Read, NotShown), ExpectedDenial::Event(Read, NotGranted)),
    ("write_state", "", ExpectedDenial::Event(Write, NotShown), ExpectedDenial::Event(Write, NotGranted)),
    ("list_home", "", ExpectedDenial::Silent(OWN_DIR), ExpectedDenial::Event(Read, NotGranted)),
    (
        "list_root_home",
        "/root",
        ExpectedDenial::Event(Read, NotShown),
        ExpectedDenial::Event(Read, NotGranted),
    ),
    (
        "read_secret_in_workspace",
        "",
        ExpectedDenial::Event(Read, Masked),
        ExpectedDenial::Event(Read, Masked),
    ),
    ("read_nested_secret", "", ExpectedDenial::Event(Read, Masked), ExpectedDenial::Event(Read, Masked)),
    ("read_secret_by_link", "", ExpectedDenial::Event(Read, Masked), ExpectedDenial::Event(Read, Masked)),
    ("chmod_existing", "", ExpectedDenial::Event(Write, ReadOnly), ExpectedDenial::Event(Call, Filter)),
    ("chown_existing", "", ExpectedDenial::Event(Write, ReadOnly), ExpectedDenial::Event(Call, Filter)),
    ("utimes_existing", "", ExpectedDenial::Event(Write, ReadOnly), ExpectedDenial::Event(Call, Filter)),
    ("setxattr_existing", "", ExpectedDenial::Event(Write, ReadOnly), ExpectedDenial::Event(Call, Filter)),
    ("fchmod_of_a_read_handle", "", ExpectedDenial::Silent(BY_HANDLE), ExpectedDenial::Event(Call, Filter)),
    ("set_id_bits", "", ExpectedDenial::Event(Call, Filter), ExpectedDenial::Event(Call, Filter)),
    ("file_capability", "", ExpectedDenial::Silent(OWN_RULE), ExpectedDenial::Event(Call, Filter)),
    (
        "set_flags_of_a_read_handle",
        "",
        ExpectedDenial::Silent(BY_HANDLE),
        ExpectedDenial::Event(Call, Filter),
    ),
    (
        "truncate_existing",
        "",
        ExpectedDenial::Event(Write, ReadOnly),
        ExpectedDenial::Event(Write, NotGranted),
    ),
    (
        "create_in_read_mode",
        "",
        ExpectedDenial::Event(Write, ReadOnly),
        ExpectedDenial::Event(Write, NotGranted),
    ),
    (
        "mkdir_in_read_mode",
        "",
        ExpectedDenial::Event(Write, ReadOnly),
        ExpectedDenial::Event(Write, NotGranted),
    ),
    (
        "symlink_in_read_mode",
        "",
        ExpectedDenial::Event(Write, ReadOnly),
        ExpectedDenial::Event(Write, NotGranted),
    ),
    (
        "mkfifo_in_read_mode",
        "",
        ExpectedDenial::Event(Write, ReadOnly),
        ExpectedDenial::Event(Write, NotGranted),
    ),
    (
        "mmap_write_existing",
        "",
        ExpectedDenial::Event(Write, ReadOnly),
        ExpectedDenial::Event(Write, NotGranted),
    ),
    (
        "tmpfile_then_link",
        "",
        ExpectedDenial::Event(Write, ReadOnly),
        ExpectedDenial::Event(Write, NotGranted),
    ),
    ("mknod_char_device", "", ExpectedDenial::Silent(LANDLOCK), ExpectedDenial::Event(Write, NotGranted)),
    ("mknod_block_device", "", ExpectedDenial::Silent(LANDLOCK), ExpectedDenial::Event(Write, NotGranted)),
    ("capability_on_a_new_file", "", ExpectedDenial::Silent(OWN_RULE), ExpectedDenial::Event(Call, Filter)),
    ("inotify_outside", "", ExpectedDenial::Event(Look, NotShown), ExpectedDenial::Event(Call, Filter)),
    ("fanotify", "", ExpectedDenial::Event(Call, Filter), ExpectedDenial::Event(Call, Filter)),
    ("sparse_terabyte", "", ExpectedDenial::Silent(BOUND), ExpectedDenial::Silent(BOUND)),
    (
        "link_to_outside_read",
        "",
        ExpectedDenial::Event(Read, NotShown),
        ExpectedDenial::Event(Read, NotGranted),
    ),
    (
        "link_to_outside_write",
        "",
        ExpectedDenial::Event(Write, NotShown),
        ExpectedDenial::Event(Write, NotGranted),
    ),
    ("hard_link_to_outside", "", ExpectedDenial::Silent(LINKED), ExpectedDenial::Silent(LINKED)),
    ("hard_link_to_system", "", ExpectedDenial::Silent(LINKED), ExpectedDenial::Silent(LINKED)),
    (
        "reopen_with_more_rights",
        "",
        ExpectedDenial::Silent(OF_A_PROCESS),
        ExpectedDenial::Silent(OF_A_PROCESS),
    ),
    ("path_handle_reopened", "", ExpectedDenial::Silent(OF_A_PROCESS), ExpectedDenial::Silent(OF_A_PROCESS)),
    ("inherited_handles", "", ExpectedDenial::Silent(NOTHING), ExpectedDenial::Silent(NOTHING)),
    (
        "root_of_the_first_process",
        "",
        ExpectedDenial::Silent(OF_A_PROCESS),
        ExpectedDenial::Silent(OF_A_PROCESS),
    ),
    (
        "directory_of_the_broker",
        "",
        ExpectedDenial::Event(Read, NotShown),
        ExpectedDenial::Silent(OF_A_PROCESS),
    ),
    (
        "environment_of_the_broker",
        "",
        ExpectedDenial::Event(Read, NotShown),
        ExpectedDenial::Silent(OF_A_PROCESS),
    ),
    (
        "memory_of_the_broker",
        "",
        ExpectedDenial::Event(Write, NotShown),
        ExpectedDenial::Event(Write, NotGranted),
    ),
    (
        "memory_of_the_first_process",
        "",
        ExpectedDenial::Silent(OF_A_PROCESS),
        ExpectedDenial::Silent(OF_A_PROCESS),
    ),
    (
        "environment_of_the_first_process",
        "",
        ExpectedDenial::Silent(OF_A_PROCESS),
        ExpectedDenial::Silent(OF_A_PROCESS),
    ),
    ("open_by_handle", "", ExpectedDenial::Event(Call, Filter), ExpectedDenial::Event(Call, Filter)),
    ("name_to_handle", "", ExpectedDenial::Event(Call, Filter), ExpectedDenial::Event(Call, Filter)),
    (
        "core_pattern",
        "/proc/sys/kernel/core_pattern",
        ExpectedDenial::Event(Write, NotShown),
        ExpectedDenial::Event(Write, NotGranted),
    ),
    (
        "modprobe_path",
        "/proc/sys/kernel/modprobe",
        ExpectedDenial::Event(Write, NotShown),
        ExpectedDenial::Event(Write, NotGranted),
    ),
    (
        "uevent_helper",
        "/sys/kernel/uevent_helper",
        ExpectedDenial::Event(Write, NotShown),
        ExpectedDenial::Event(Write, NotGranted),
    ),
    (
        "sysrq",
        "/proc/sysrq-trigger",
        ExpectedDenial::Silent(NEW_NAME),
        ExpectedDenial::Event(Write, NotGranted),
    ),
    (
        "proc_keys",
        "/proc/keys",
        ExpectedDenial::Event(Read, NotShown),
        ExpectedDenial::Event(Read, NotGranted),
    ),
    (
        "proc_kallsyms",
        "/proc/kallsyms",
        ExpectedDenial::Event(Read, NotShown),
        ExpectedDenial::Event(Read, NotGranted),
    ),
    (
        "proc_kcore",
        "/proc/kcore",
        ExpectedDenial::Event(Read, NotShown),
        ExpectedDenial::Event(Read, NotGranted),
    ),
    (
        "proc_kmsg",
        "/proc/kmsg",
        ExpectedDenial::Event(Read, NotShown),
        ExpectedDenial::Event(Read, NotGranted),
    ),
    ("kernel_messages", "", ExpectedDenial::Event(Call, Filter), ExpectedDenial::Event(Call, Filter)),
    (
        "oom_score_of_the_broker",
        "",
        ExpectedDenial::Event(Write, NotShown),
        ExpectedDenial::Event(Write, NotGranted),
    ),
    (
        "own_oom_score_minus_1000",
        "",
        ExpectedDenial::Silent(OF_A_PROCESS),
        ExpectedDenial::Silent(OF_A_PROCESS),
    ),
    (
        "cgroup_limits",
        "/sys/fs/cgroup",
        ExpectedDenial::Event(Read, NotShown),
        ExpectedDenial::Event(Read, NotGranted),
    ),
    (
        "debugfs",
        "/sys/kernel/debug",
        ExpectedDenial::Event(Read, NotShown),
        ExpectedDenial::Event(Read, NotGranted),
    ),
    (
        "binfmt",
        "/proc/sys/fs/binfmt_misc/register",
        ExpectedDenial::Event(Write, NotShown),
        ExpectedDenial::Event(Write, NotGranted),
    ),
    ("devices", "/dev/kmsg", ExpectedDenial::Event(Read, NotShown), ExpectedDenial::Event(Read, NotGranted)),
    ("ptrace_child", "", ExpectedDenial::Event(Call, Filter), ExpectedDenial::Event(Call, Filter)),
    ("ptrace_broker", "", ExpectedDenial::Event(Call, Filter), ExpectedDenial::Event(Call, Filter)),
    (
        "read_memory_of_the_broker",
        "",
        ExpectedDenial::Event(Call, Filter),
        ExpectedDenial::Event(Call, Filter),
    ),
    ("signal_the_broker", "", ExpectedDenial::Silent(SIGNAL), ExpectedDenial::Silent(SIGNAL)),
    ("signal_the_parent", "", ExpectedDenial::Silent(SIGNAL), ExpectedDenial::Silent(SIGNAL)),
    ("take_a_handle_of_the_broker", "", ExpectedDenial::Silent(SIGNAL), ExpectedDenial::Event(Call, Filter)),
    ("priority_of_the_broker", "", ExpectedDenial::Event(Call, Filter), ExpectedDenial::Event(Call, Filter)),
    ("limits_of_the_broker", "", ExpectedDenial::Event(Call, Filter), ExpectedDenial::Event(Call, Filter)),
    ("raise_own_limits", "", ExpectedDenial::Silent(OWN_RULE), ExpectedDenial::Silent(OWN_RULE)),
    ("core_dump", "", ExpectedDenial::Silent(BOUND), ExpectedDenial::Silent(BOUND)),
    ("user_is_root", "", ExpectedDenial::Silent(NOTHING), ExpectedDenial::Silent(NOTHING)),
    ("has_a_capability", "", ExpectedDenial::Silent(NOTHING), ExpectedDenial::Silent(NOTHING)),
    ("may_gain_privileges", "", ExpectedDenial::Silent(NOTHING), ExpectedDenial::Silent(NOTHING)),
    ("set_user_id_root", "", ExpectedDenial::Silent(OWN_RULE), ExpectedDenial::Silent(OWN_RULE)),
    ("unshare_user", "", ExpectedDenial::Event(Call, Filter), ExpectedDenial::Event(Call, Filter)),
    ("unshare_mounts", "", ExpectedDenial::Event(Call, Filter), ExpectedDenial::Event(Call, Filter)),
    ("clone_user", "", ExpectedDenial::Event(Call, Filter), ExpectedDenial::Event(Call, Filter)),
    ("clone3_user", "", ExpectedDenial::Silent(ABSENT), ExpectedDenial::Silent(ABSENT)),
    ("mount_tmpfs", "", ExpectedDenial::Event(Call, Filter), ExpectedDenial::Event(Call, Filter)),
    ("unmount", "", ExpectedDenial::Event(Call, Filter), ExpectedDenial::Event(Call, Filter)),
    ("new_mount_calls", "", ExpectedDenial::Event(Call, Filter), ExpectedDenial::Event(Call, Filter)),
    ("chroot", "", ExpectedDenial::Event(Call, Filter), ExpectedDenial::Event(Call, Filter)),
    ("pivot_root", "", ExpectedDenial::Event(Call, Filter), ExpectedDenial::Event(Call, Filter)),
    ("enter_namespaces", "", ExpectedDenial::Event(Call, Filter), ExpectedDenial::Event(Call, Filter)),
    ("add_key", "", ExpectedDenial::Event(Call, Filter), ExpectedDenial::Event(Call, Filter)),
    ("keyctl", "", ExpectedDenial::Event(Call, Filter), ExpectedDenial::Event(Call, Filter)),
    ("bpf", "", ExpectedDenial::Event(Call, Filter), ExpectedDenial::Event(Call, Filter)),
    ("perf", "", ExpectedDenial::Event(Call, Filter), ExpectedDenial::Event(Call, Filter)),
    ("userfaultfd", "", ExpectedDenial::Event(Call, Filter), ExpectedDenial::Event(Call, Filter)),
    ("memfd_secret", "", ExpectedDenial::Event(Call, Filter), ExpectedDenial::Event(Call, Filter)),
    ("io_uring", "", ExpectedDenial::Silent(ABSENT), ExpectedDenial::Silent(ABSENT)),
    ("personality", "", ExpectedDenial::Event(Call, Filter), ExpectedDenial::Event(Call, Filter)),
    ("another_architecture", "", ExpectedDenial::Silent(KILLED), ExpectedDenial::Silent(KILLED)),
    ("second_filter_widens", "", ExpectedDenial::Event(Call, Filter), ExpectedDenial::Event(Call, Filter)),
    ("push_terminal_input", "", ExpectedDenial::Event(Call, Filter), ExpectedDenial::Event(Call, Filter)),
    (
        "terminal_line_discipline",
        "",
        ExpectedDenial::Event(Call, Filter),
        ExpectedDenial::Event(Call, Filter),
    ),
    ("controlling_terminal", "", ExpectedDenial::Silent(NO_TERMINAL), ExpectedDenial::Silent(NO_TERMINAL)),
    ("host_socket_by_path", "", ExpectedDenial::Silent(CONNECT), ExpectedDenial::Event(Call, Filter)),
    ("host_socket_in_workspace", "", ExpectedDenial::Silent(CONNECT), ExpectedDenial::Event(Call, Filter)),
    ("host_socket_by_name", "", ExpectedDenial::Silent(CONNECT), ExpectedDenial::Event(Call, Filter)),
    ("host_shared_memory", "", ExpectedDenial::Silent(OWN_IPC), ExpectedDenial::Event(Call, Filter)),
    ("internet_socket", "", ExpectedDenial::Event(Call, Filter), ExpectedDenial::Event(Call, Filter)),
    (
        "internet_socket_over_ipv6",
        "",
        ExpectedDenial::Event(Call, Filter),
        ExpectedDenial::Event(Call, Filter),
    ),
    ("datagram_socket", "", ExpectedDenial::Event(Call, Filter), ExpectedDenial::Event(Call, Filter)),
    ("ping_socket", "", ExpectedDenial::Event(Call, Filter), ExpectedDenial::Event(Call, Filter)),
    ("multipath_socket", "", ExpectedDenial::Event(Call, Filter), ExpectedDenial::Event(Call, Filter)),
    ("sctp_socket", "", ExpectedDenial::Event(Call, Filter), ExpectedDenial::Event(Call, Filter)),
    ("fast_open", "", ExpectedDenial::Event(Call, Filter), ExpectedDenial::Event(Call, Filter)),
    ("netlink_socket", "", ExpectedDenial::Event(Call, Filter), ExpectedDenial::Event(Call, Filter)),
    ("vsock_socket", "", ExpectedDenial::Event(Call, Filter), ExpectedDenial::Event(Call, Filter)),
    ("raw_packets", "", ExpectedDenial::Event(Call, Filter), ExpectedDenial::Event(Call, Filter)),
    ("descriptor_exhaustion", "", ExpectedDenial::Silent(BOUND), ExpectedDenial::Silent(BOUND)),
    ("six_hundred_processes", "", ExpectedDenial::Silent(BOUND), ExpectedDenial::Silent(BOUND)),
    ("a_gibibyte_of_memory", "", ExpectedDenial::Silent(BOUND), ExpectedDenial::Silent(BOUND)),
    ("secret_in_the_environment", "", ExpectedDenial::Silent(NOTHING), ExpectedDenial::Silent(NOTHING)),
    ("set_user_id_program", "", ExpectedDenial::Silent(NO_GAIN), ExpectedDenial::Silent(NO_GAIN)),
    ("space_outside", "", ExpectedDenial::Event(Look, NotShown), ExpectedDenial::Silent(SPACE)),
    (
        "program_in_memory_reads_outside",
        "",
        ExpectedDenial::Event(Read, NotShown),
        ExpectedDenial::Event(Read, NotGranted),
    ),
    (
        "loader_starts_a_program",
        "",
        ExpectedDenial::Event(Read, NotShown),
        ExpectedDenial::Event(Read, NotGranted),
    ),
    (
        "library_before_all_others",
        "",
        ExpectedDenial::Event(Read, NotShown),
        ExpectedDenial::Event(Read, NotGranted),
    ),
    ("loader_variable_of_the_broker", "", ExpectedDenial::Silent(NOTHING), ExpectedDenial::Silent(NOTHING)),
    (
        "environment_of_a_sibling",
        "",
        ExpectedDenial::Event(Read, NotShown),
        ExpectedDenial::Silent(OF_A_PROCESS),
    ),
    (
        "arguments_of_a_sibling",
        "",
        ExpectedDenial::Event(Read, NotShown),
        ExpectedDenial::Silent(OF_A_PROCESS),
    ),
    ("memory_of_a_sibling", "", ExpectedDenial::Event(Read, NotShown), ExpectedDenial::Silent(OF_A_PROCESS)),
    ("signal_a_sibling", "", ExpectedDenial::Silent(SIGNAL), ExpectedDenial::Silent(SIGNAL)),
    ("ptrace_a_sibling", "", ExpectedDenial::Event(Call, Filter), ExpectedDenial::Event(Call, Filter)),
    (
        "scheduling_of_the_broker",
        "",
        ExpectedDenial::Event(Call, Filter),
        ExpectedDenial::Event(Call, Filter),
    ),
    ("real_time", "", ExpectedDenial::Silent(OWN_RULE), ExpectedDenial::Silent(OWN_RULE)),
    ("place_of_memory", "", ExpectedDenial::Event(Call, Filter), ExpectedDenial::Event(Call, Filter)),
    ("descriptors_in_flight", "", ExpectedDenial::Silent(BOUND), ExpectedDenial::Silent(BOUND)),
    ("memory_in_pipes", "", ExpectedDenial::Silent(BOUND), ExpectedDenial::Silent(BOUND)),
    ("memory_in_sockets", "", ExpectedDenial::Silent(BOUND), ExpectedDenial::Silent(BOUND)),
    ("watchers", "", ExpectedDenial::Silent(BOUND), ExpectedDenial::Silent(BOUND)),
    ("spin_on_every_processor", "", ExpectedDenial::Silent(BOUND), ExpectedDenial::Silent(BOUND)),
];

/// The expected report on this machine.
pub(crate) fn expected_denial(name: &str, tier: Tier) -> ExpectedDenial {
    let row = EVENTS.iter().find(|(one, ..)| *one == name);
    let (_, path, full, no_userns) =
        row.unwrap_or_else(|| panic!("neither an event nor a reason for `{name}`"));
    if !path.is_empty() && Path::new(path).symlink_metadata().is_err() {
        return ExpectedDenial::Silent("this machine has none");
    }
    if tier == Tier::NoUserns { *no_userns } else { *full }
}
