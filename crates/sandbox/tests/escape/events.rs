//! Which event must appear for each probe, or why none does. Everything is observed; Landlock's own records, which tell more
//! where they can be read, are not counted on.

use std::path::Path;

use Operation::{Call, Look, Read, Write};
use Rule::{Filter, Masked, NotGranted, NotShown, ReadOnly};
use vambrace_sandbox::{Operation, Rule, Tier};

/// What is to be told.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Due {
    Event(Operation, Rule),
    /// Nothing, and why.
    Silent(&'static str),
}

const ABSENT: &str = "answered as if the kernel had no such call, so that programs fall back";
const BOUND: &str = "a bound, not a refusal: the program's own error, or the run's end, tells it";
const BY_HANDLE: &str = "by a handle, without a path: only the mount refuses it";
const CONNECT: &str = "asked about only where there is a gate; no such socket in here";
const KILLED: &str = "killed by the filter, which asks nobody about another architecture";
const LANDLOCK: &str = "a place to write: left to Landlock, whose records tell it";
const LINKED: &str = "what is linked is left to the kernel: programs fall back to a copy";
const NEW_NAME: &str = "where the folder is there, a name that is missing is the kernel's to refuse";
const NOTHING: &str = "nothing is attempted: it is looked for in what the program has";
const NO_GAIN: &str = "it starts like any program, and gains nothing";
const NO_TERMINAL: &str = "no session of ours has one, so it fails as it would without walls";
const OF_A_PROCESS: &str = "what belongs to a process is told by nobody: whose it is changes";
const OWN_FOLDER: &str = "its own home folder, which it may list";
const OWN_IPC: &str = "a namespace of its own: there is none of that key";
const OWN_RULE: &str = "the kernel's rule for every unprivileged program";
const SIGNAL: &str = "nobody of that number is there, or Landlock's scope, whose records tell it";
const SPACE: &str = "gets through";

/// Probe, the path that must be on the machine for anything to be told, and what is due in tier full and no-userns.
const EVENTS: &[(&str, &str, Due, Due)] = &[
    ("read_ssh_key", "", Due::Event(Read, NotShown), Due::Event(Read, NotGranted)),
    ("read_outside_by_parent", "", Due::Event(Read, NotShown), Due::Event(Read, NotGranted)),
    ("read_outside_by_full_path", "", Due::Event(Read, NotShown), Due::Event(Read, NotGranted)),
    ("read_etc_shadow", "/etc/shadow", Due::Event(Read, NotGranted), Due::Event(Read, NotGranted)),
    ("read_machine_id", "/etc/machine-id", Due::Event(Read, NotGranted), Due::Event(Read, NotGranted)),
    ("write_etc", "", Due::Event(Write, ReadOnly), Due::Event(Write, NotGranted)),
    ("write_usr", "", Due::Event(Write, ReadOnly), Due::Event(Write, NotGranted)),
    ("write_outside", "", Due::Event(Write, NotShown), Due::Event(Write, NotGranted)),
    ("read_state", "", Due::Event(Read, NotShown), Due::Event(Read, NotGranted)),
    ("write_state", "", Due::Event(Write, NotShown), Due::Event(Write, NotGranted)),
    ("list_home", "", Due::Silent(OWN_FOLDER), Due::Event(Read, NotGranted)),
    ("list_root_home", "/root", Due::Event(Read, NotShown), Due::Event(Read, NotGranted)),
    ("read_secret_in_workspace", "", Due::Event(Read, Masked), Due::Event(Read, Masked)),
    ("read_nested_secret", "", Due::Event(Read, Masked), Due::Event(Read, Masked)),
    ("read_secret_by_link", "", Due::Event(Read, Masked), Due::Event(Read, Masked)),
    ("chmod_existing", "", Due::Event(Write, ReadOnly), Due::Event(Call, Filter)),
    ("chown_existing", "", Due::Event(Write, ReadOnly), Due::Event(Call, Filter)),
    ("utimes_existing", "", Due::Event(Write, ReadOnly), Due::Event(Call, Filter)),
    ("setxattr_existing", "", Due::Event(Write, ReadOnly), Due::Event(Call, Filter)),
    ("fchmod_of_a_read_handle", "", Due::Silent(BY_HANDLE), Due::Event(Call, Filter)),
    ("set_id_bits", "", Due::Event(Call, Filter), Due::Event(Call, Filter)),
    ("file_capability", "", Due::Silent(OWN_RULE), Due::Event(Call, Filter)),
    ("set_flags_of_a_read_handle", "", Due::Silent(BY_HANDLE), Due::Event(Call, Filter)),
    ("truncate_existing", "", Due::Event(Write, ReadOnly), Due::Event(Write, NotGranted)),
    ("create_in_read_mode", "", Due::Event(Write, ReadOnly), Due::Event(Write, NotGranted)),
    ("mkdir_in_read_mode", "", Due::Event(Write, ReadOnly), Due::Event(Write, NotGranted)),
    ("symlink_in_read_mode", "", Due::Event(Write, ReadOnly), Due::Event(Write, NotGranted)),
    ("mkfifo_in_read_mode", "", Due::Event(Write, ReadOnly), Due::Event(Write, NotGranted)),
    ("mmap_write_existing", "", Due::Event(Write, ReadOnly), Due::Event(Write, NotGranted)),
    ("tmpfile_then_link", "", Due::Event(Write, ReadOnly), Due::Event(Write, NotGranted)),
    ("mknod_char_device", "", Due::Silent(LANDLOCK), Due::Event(Write, NotGranted)),
    ("mknod_block_device", "", Due::Silent(LANDLOCK), Due::Event(Write, NotGranted)),
    ("capability_on_a_new_file", "", Due::Silent(OWN_RULE), Due::Event(Call, Filter)),
    ("inotify_outside", "", Due::Event(Look, NotShown), Due::Event(Call, Filter)),
    ("fanotify", "", Due::Event(Call, Filter), Due::Event(Call, Filter)),
    ("sparse_terabyte", "", Due::Silent(BOUND), Due::Silent(BOUND)),
    ("link_to_outside_read", "", Due::Event(Read, NotShown), Due::Event(Read, NotGranted)),
    ("link_to_outside_write", "", Due::Event(Write, NotShown), Due::Event(Write, NotGranted)),
    ("hard_link_to_outside", "", Due::Silent(LINKED), Due::Silent(LINKED)),
    ("hard_link_to_system", "", Due::Silent(LINKED), Due::Silent(LINKED)),
    ("reopen_with_more_rights", "", Due::Silent(OF_A_PROCESS), Due::Silent(OF_A_PROCESS)),
    ("path_handle_reopened", "", Due::Silent(OF_A_PROCESS), Due::Silent(OF_A_PROCESS)),
    ("inherited_handles", "", Due::Silent(NOTHING), Due::Silent(NOTHING)),
    ("root_of_the_first_process", "", Due::Silent(OF_A_PROCESS), Due::Silent(OF_A_PROCESS)),
    ("folder_of_the_broker", "", Due::Event(Read, NotShown), Due::Silent(OF_A_PROCESS)),
    ("environment_of_the_broker", "", Due::Event(Read, NotShown), Due::Silent(OF_A_PROCESS)),
    ("memory_of_the_broker", "", Due::Event(Write, NotShown), Due::Event(Write, NotGranted)),
    ("memory_of_the_first_process", "", Due::Silent(OF_A_PROCESS), Due::Silent(OF_A_PROCESS)),
    ("environment_of_the_first_process", "", Due::Silent(OF_A_PROCESS), Due::Silent(OF_A_PROCESS)),
    ("open_by_handle", "", Due::Event(Call, Filter), Due::Event(Call, Filter)),
    ("name_to_handle", "", Due::Event(Call, Filter), Due::Event(Call, Filter)),
    (
        "core_pattern",
        "/proc/sys/kernel/core_pattern",
        Due::Event(Write, NotShown),
        Due::Event(Write, NotGranted),
    ),
    (
        "modprobe_path",
        "/proc/sys/kernel/modprobe",
        Due::Event(Write, NotShown),
        Due::Event(Write, NotGranted),
    ),
    (
        "uevent_helper",
        "/sys/kernel/uevent_helper",
        Due::Event(Write, NotShown),
        Due::Event(Write, NotGranted),
    ),
    ("sysrq", "/proc/sysrq-trigger", Due::Silent(NEW_NAME), Due::Event(Write, NotGranted)),
    ("proc_keys", "/proc/keys", Due::Event(Read, NotShown), Due::Event(Read, NotGranted)),
    ("proc_kallsyms", "/proc/kallsyms", Due::Event(Read, NotShown), Due::Event(Read, NotGranted)),
    ("proc_kcore", "/proc/kcore", Due::Event(Read, NotShown), Due::Event(Read, NotGranted)),
    ("proc_kmsg", "/proc/kmsg", Due::Event(Read, NotShown), Due::Event(Read, NotGranted)),
    ("kernel_messages", "", Due::Event(Call, Filter), Due::Event(Call, Filter)),
    ("oom_score_of_the_broker", "", Due::Event(Write, NotShown), Due::Event(Write, NotGranted)),
    ("own_oom_score_minus_1000", "", Due::Silent(OF_A_PROCESS), Due::Silent(OF_A_PROCESS)),
    ("cgroup_limits", "/sys/fs/cgroup", Due::Event(Read, NotShown), Due::Event(Read, NotGranted)),
    ("debugfs", "/sys/kernel/debug", Due::Event(Read, NotShown), Due::Event(Read, NotGranted)),
    (
        "binfmt",
        "/proc/sys/fs/binfmt_misc/register",
        Due::Event(Write, NotShown),
        Due::Event(Write, NotGranted),
    ),
    ("devices", "/dev/kmsg", Due::Event(Read, NotShown), Due::Event(Read, NotGranted)),
    ("ptrace_child", "", Due::Event(Call, Filter), Due::Event(Call, Filter)),
    ("ptrace_broker", "", Due::Event(Call, Filter), Due::Event(Call, Filter)),
    ("read_memory_of_the_broker", "", Due::Event(Call, Filter), Due::Event(Call, Filter)),
    ("signal_the_broker", "", Due::Silent(SIGNAL), Due::Silent(SIGNAL)),
    ("signal_the_parent", "", Due::Silent(SIGNAL), Due::Silent(SIGNAL)),
    ("take_a_handle_of_the_broker", "", Due::Silent(SIGNAL), Due::Event(Call, Filter)),
    ("priority_of_the_broker", "", Due::Event(Call, Filter), Due::Event(Call, Filter)),
    ("limits_of_the_broker", "", Due::Event(Call, Filter), Due::Event(Call, Filter)),
    ("raise_own_limits", "", Due::Silent(OWN_RULE), Due::Silent(OWN_RULE)),
    ("core_dump", "", Due::Silent(BOUND), Due::Silent(BOUND)),
    ("user_is_root", "", Due::Silent(NOTHING), Due::Silent(NOTHING)),
    ("has_a_capability", "", Due::Silent(NOTHING), Due::Silent(NOTHING)),
    ("may_gain_privileges", "", Due::Silent(NOTHING), Due::Silent(NOTHING)),
    ("set_user_id_root", "", Due::Silent(OWN_RULE), Due::Silent(OWN_RULE)),
    ("unshare_user", "", Due::Event(Call, Filter), Due::Event(Call, Filter)),
    ("unshare_mounts", "", Due::Event(Call, Filter), Due::Event(Call, Filter)),
    ("clone_user", "", Due::Event(Call, Filter), Due::Event(Call, Filter)),
    ("clone3_user", "", Due::Silent(ABSENT), Due::Silent(ABSENT)),
    ("mount_tmpfs", "", Due::Event(Call, Filter), Due::Event(Call, Filter)),
    ("unmount", "", Due::Event(Call, Filter), Due::Event(Call, Filter)),
    ("new_mount_calls", "", Due::Event(Call, Filter), Due::Event(Call, Filter)),
    ("chroot", "", Due::Event(Call, Filter), Due::Event(Call, Filter)),
    ("pivot_root", "", Due::Event(Call, Filter), Due::Event(Call, Filter)),
    ("enter_namespaces", "", Due::Event(Call, Filter), Due::Event(Call, Filter)),
    ("add_key", "", Due::Event(Call, Filter), Due::Event(Call, Filter)),
    ("keyctl", "", Due::Event(Call, Filter), Due::Event(Call, Filter)),
    ("bpf", "", Due::Event(Call, Filter), Due::Event(Call, Filter)),
    ("perf", "", Due::Event(Call, Filter), Due::Event(Call, Filter)),
    ("userfaultfd", "", Due::Event(Call, Filter), Due::Event(Call, Filter)),
    ("memfd_secret", "", Due::Event(Call, Filter), Due::Event(Call, Filter)),
    ("io_uring", "", Due::Silent(ABSENT), Due::Silent(ABSENT)),
    ("personality", "", Due::Event(Call, Filter), Due::Event(Call, Filter)),
    ("another_architecture", "", Due::Silent(KILLED), Due::Silent(KILLED)),
    ("second_filter_widens", "", Due::Event(Call, Filter), Due::Event(Call, Filter)),
    ("push_terminal_input", "", Due::Event(Call, Filter), Due::Event(Call, Filter)),
    ("terminal_line_discipline", "", Due::Event(Call, Filter), Due::Event(Call, Filter)),
    ("controlling_terminal", "", Due::Silent(NO_TERMINAL), Due::Silent(NO_TERMINAL)),
    ("host_socket_by_path", "", Due::Silent(CONNECT), Due::Event(Call, Filter)),
    ("host_socket_in_workspace", "", Due::Silent(CONNECT), Due::Event(Call, Filter)),
    ("host_socket_by_name", "", Due::Silent(CONNECT), Due::Event(Call, Filter)),
    ("host_shared_memory", "", Due::Silent(OWN_IPC), Due::Event(Call, Filter)),
    ("internet_socket", "", Due::Event(Call, Filter), Due::Event(Call, Filter)),
    ("internet_socket_over_ipv6", "", Due::Event(Call, Filter), Due::Event(Call, Filter)),
    ("datagram_socket", "", Due::Event(Call, Filter), Due::Event(Call, Filter)),
    ("ping_socket", "", Due::Event(Call, Filter), Due::Event(Call, Filter)),
    ("multipath_socket", "", Due::Event(Call, Filter), Due::Event(Call, Filter)),
    ("sctp_socket", "", Due::Event(Call, Filter), Due::Event(Call, Filter)),
    ("fast_open", "", Due::Event(Call, Filter), Due::Event(Call, Filter)),
    ("netlink_socket", "", Due::Event(Call, Filter), Due::Event(Call, Filter)),
    ("vsock_socket", "", Due::Event(Call, Filter), Due::Event(Call, Filter)),
    ("raw_packets", "", Due::Event(Call, Filter), Due::Event(Call, Filter)),
    ("descriptor_exhaustion", "", Due::Silent(BOUND), Due::Silent(BOUND)),
    ("six_hundred_processes", "", Due::Silent(BOUND), Due::Silent(BOUND)),
    ("a_gibibyte_of_memory", "", Due::Silent(BOUND), Due::Silent(BOUND)),
    ("secret_in_the_environment", "", Due::Silent(NOTHING), Due::Silent(NOTHING)),
    ("set_user_id_program", "", Due::Silent(NO_GAIN), Due::Silent(NO_GAIN)),
    ("space_outside", "", Due::Event(Look, NotShown), Due::Silent(SPACE)),
    ("program_in_memory_reads_outside", "", Due::Event(Read, NotShown), Due::Event(Read, NotGranted)),
    ("loader_starts_a_program", "", Due::Event(Read, NotShown), Due::Event(Read, NotGranted)),
    ("library_before_all_others", "", Due::Event(Read, NotShown), Due::Event(Read, NotGranted)),
    ("loader_variable_of_the_broker", "", Due::Silent(NOTHING), Due::Silent(NOTHING)),
    ("environment_of_a_sibling", "", Due::Event(Read, NotShown), Due::Silent(OF_A_PROCESS)),
    ("arguments_of_a_sibling", "", Due::Event(Read, NotShown), Due::Silent(OF_A_PROCESS)),
    ("memory_of_a_sibling", "", Due::Event(Read, NotShown), Due::Silent(OF_A_PROCESS)),
    ("signal_a_sibling", "", Due::Silent(SIGNAL), Due::Silent(SIGNAL)),
    ("ptrace_a_sibling", "", Due::Event(Call, Filter), Due::Event(Call, Filter)),
    ("scheduling_of_the_broker", "", Due::Event(Call, Filter), Due::Event(Call, Filter)),
    ("real_time", "", Due::Silent(OWN_RULE), Due::Silent(OWN_RULE)),
    ("place_of_memory", "", Due::Event(Call, Filter), Due::Event(Call, Filter)),
    ("descriptors_in_flight", "", Due::Silent(BOUND), Due::Silent(BOUND)),
    ("memory_in_pipes", "", Due::Silent(BOUND), Due::Silent(BOUND)),
    ("memory_in_sockets", "", Due::Silent(BOUND), Due::Silent(BOUND)),
    ("watchers", "", Due::Silent(BOUND), Due::Silent(BOUND)),
    ("spin_on_every_processor", "", Due::Silent(BOUND), Due::Silent(BOUND)),
];

/// What is due here.
pub(crate) fn due(name: &str, tier: Tier) -> Due {
    let row = EVENTS.iter().find(|(one, ..)| *one == name);
    let (_, path, full, no_userns) = row.unwrap_or_else(|| panic!("no event, nor a reason, for `{name}`"));
    if !path.is_empty() && Path::new(path).symlink_metadata().is_err() {
        return Due::Silent("this machine has none");
    }
    if tier == Tier::NoUserns { *no_userns } else { *full }
}
