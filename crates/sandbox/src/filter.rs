//! The seccomp filter: system calls that a confined program may not make, compiled to classic BPF.
//!
//! A deny list: everything else is allowed, for compatibility, because namespaces and Landlock are the boundary.
//! Denied are calls that lead around that boundary, into little-tested kernel code, or to other processes. The rules
//! form a search tree over system call numbers, so an ordinary call takes about seven comparisons.
//!
//! `clone3`, `openat2` and `io_uring` cannot be judged (their arguments are in memory); they fail with ENOSYS, and
//! libraries fall back.

mod assemble;
mod syscalls;

use crate::spec::{NetworkMode, Observe};
use crate::sys::seccomp::Instruction;

pub(crate) use syscalls::{
    FILE_SETATTR, REMOVEXATTRAT, SETXATTRAT, WRITE_FLAGS, is_always_denied, wants_set_id,
};

/// Input of the filter compiler.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Profile {
    pub(crate) network: NetworkMode,
    pub(crate) observe: Observe,
    /// Whether there is a mount namespace. Without one every socket could reach the host, and only this filter
    /// protects the attributes of files that the user owns.
    pub(crate) confinement: Confinement,
    /// Processes that must not be signalled, where Landlock does not scope signals.
    pub(crate) guarded: Vec<u32>,
    /// Which part of the rules to compile.
    pub(crate) part: FilterPart,
}

/// The kernel checks and compiles a filter on each installation, but inheriting it is free. So the zygote installs
/// the part that is the same for every run once, and only the rest is installed with the program. Where several
/// filters judge a call, the strictest action wins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FilterPart {
    /// Everything; when denials are reported, none may be decided by an earlier filter.
    Whole,
    /// Calls that neither the zygote nor its children need after setup.
    Early,
    /// The rest.
    Late,
}

/// What confines the program besides the filter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Confinement {
    Namespaces,
    LandlockOnly,
}

/// Compiles the filter.
pub(crate) fn compile(profile: &Profile) -> Vec<Instruction> {
    assemble::assemble(syscalls::rules(profile))
}

#[cfg(test)]
mod tests {
    use super::assemble::run;
    use super::*;

    fn profile(confinement: Confinement, observe: Observe) -> Profile {
        Profile {
            network: NetworkMode::None,
            observe,
            confinement,
            guarded: vec![77],
            part: FilterPart::Whole,
        }
    }

    fn check(filter: &[Instruction], number: libc::c_long, arguments: [u64; 6], expected: u32) {
        let number = u32::try_from(number).unwrap();
        assert_eq!(run(filter, assemble::ARCHITECTURE, number, arguments), expected, "call {number}");
    }

    const ALLOW: u32 = 0x7fff_0000;
    const NOTIFY: u32 = 0x7fc0_0000;
    const fn errno(number: i32) -> u32 {
        0x0005_0000 | number as u32
    }

    #[test]
    fn dangerous_calls_are_denied_and_ordinary_calls_allowed() {
        let filter = compile(&profile(Confinement::Namespaces, Observe::Off));
        let none = [0; 6];
        for number in [
            libc::SYS_ptrace,
            libc::SYS_mount,
            libc::SYS_bpf,
            libc::SYS_keyctl,
            libc::SYS_setns,
            libc::SYS_unshare,
            libc::SYS_userfaultfd,
            libc::SYS_open_by_handle_at,
            libc::SYS_pidfd_getfd,
            libc::SYS_process_vm_readv,
        ] {
            check(&filter, number, none, errno(libc::EPERM));
        }
        check(&filter, libc::SYS_clone3, none, errno(libc::ENOSYS));
        check(&filter, libc::SYS_openat2, none, errno(libc::ENOSYS));
        check(&filter, libc::SYS_io_uring_setup, none, errno(libc::ENOSYS));
        for number in
            [libc::SYS_read, libc::SYS_openat, libc::SYS_execve, libc::SYS_exit_group, libc::SYS_mmap]
        {
            check(&filter, number, none, ALLOW);
        }
    }

    #[test]
    fn arguments_are_judged() {
        let filter = compile(&profile(Confinement::Namespaces, Observe::Off));
        let user = libc::CLONE_NEWUSER as u64;
        check(&filter, libc::SYS_clone, [user, 0, 0, 0, 0, 0], errno(libc::EPERM));
        check(&filter, libc::SYS_clone, [libc::CLONE_VM as u64, 0, 0, 0, 0, 0], ALLOW);
        check(&filter, libc::SYS_ioctl, [0, libc::TIOCSTI, 0, 0, 0, 0], errno(libc::EPERM));
        check(&filter, libc::SYS_ioctl, [0, 0x5401, 0, 0, 0, 0], ALLOW);
        // The kernel ignores the high half of this argument, and so does the filter.
        check(&filter, libc::SYS_ioctl, [0, libc::TIOCSTI | 1 << 40, 0, 0, 0, 0], errno(libc::EPERM));
        check(&filter, libc::SYS_socket, [libc::AF_UNIX as u64, 1, 0, 0, 0, 0], ALLOW);
        check(&filter, libc::SYS_socket, [libc::AF_INET as u64, 1, 0, 0, 0, 0], errno(libc::EPERM));
        check(&filter, libc::SYS_prlimit64, [0, 7, 0, 0, 0, 0], ALLOW);
        check(&filter, libc::SYS_prlimit64, [9, 7, 0, 0, 0, 0], errno(libc::EPERM));
    }

    #[test]
    fn no_call_gives_a_file_a_set_id_bit() {
        for observe in [Observe::Off, Observe::Writes] {
            let filter = compile(&profile(Confinement::Namespaces, observe));
            let otherwise = if observe == Observe::Off { ALLOW } else { NOTIFY };
            let makes = (libc::O_WRONLY | libc::O_CREAT) as u64;
            for mode in [0o4755, 0o2755, 0o6000, 0o104755 | 1 << 40] {
                let refused = errno(libc::EPERM);
                check(&filter, libc::SYS_fchmod, [3, mode, 0, 0, 0, 0], refused);
                check(&filter, libc::SYS_fchmodat, [0, 0, mode, 0, 0, 0], refused);
                check(&filter, libc::SYS_fchmodat2, [0, 0, mode, 0, 0, 0], refused);
                check(&filter, libc::SYS_mknodat, [0, 0, mode, 0, 0, 0], refused);
                check(&filter, libc::SYS_openat, [0, 0, makes, mode, 0, 0], refused);
                let unnamed = (libc::O_TMPFILE | libc::O_RDWR) as u64;
                check(&filter, libc::SYS_openat, [0, 0, unnamed, mode, 0, 0], refused);
                // No file is created: the argument is not a mode.
                check(&filter, libc::SYS_openat, [0, 0, 0, mode, 0, 0], ALLOW);
            }
            check(&filter, libc::SYS_fchmod, [3, 0o1777, 0, 0, 0, 0], ALLOW);
            check(&filter, libc::SYS_fchmodat, [0, 0, 0o755, 0, 0, 0], otherwise);
            check(&filter, libc::SYS_openat, [0, 0, makes, 0o644, 0, 0], otherwise);
        }
    }

    #[test]
    fn loopback_allows_only_tcp_and_udp() {
        let filter = compile(&Profile {
            network: NetworkMode::Loopback,
            ..profile(Confinement::Namespaces, Observe::Off)
        });
        let inet = libc::AF_INET as u64;
        check(&filter, libc::SYS_socket, [inet, 1 | 0o2000000, 0, 0, 0, 0], ALLOW);
        check(&filter, libc::SYS_socket, [inet, 2, 17, 0, 0, 0], ALLOW);
        check(&filter, libc::SYS_socket, [inet, 1, 262, 0, 0, 0], errno(libc::EPERM));
        check(&filter, libc::SYS_socket, [inet, 3, 1, 0, 0, 0], errno(libc::EPERM));
        check(&filter, libc::SYS_socket, [libc::AF_NETLINK as u64, 3, 0, 0, 0, 0], errno(libc::EPERM));
    }

    #[test]
    fn exec_and_chdir_are_notified_except_the_runs_own() {
        let own = u64::from(crate::sys::process::OWN_START.cast_unsigned());
        for observe in [Observe::Writes, Observe::All] {
            let filter = compile(&profile(Confinement::Namespaces, observe));
            for number in [libc::SYS_execve, libc::SYS_execveat, libc::SYS_chdir, libc::SYS_fchdir] {
                check(&filter, number, [0; 6], NOTIFY);
            }
            check(&filter, libc::SYS_execveat, [own, 0, 0, 0, 0, 0], ALLOW);
            check(&filter, libc::SYS_chdir, [0, own, 0, 0, 0, 0], ALLOW);
        }
        let silent = compile(&profile(Confinement::Namespaces, Observe::Off));
        check(&silent, libc::SYS_chdir, [0; 6], ALLOW);
    }

    #[test]
    fn gated_network_notifies_connect_and_other_socket_kinds() {
        let gated =
            |observe| Profile { network: NetworkMode::Gated, ..profile(Confinement::Namespaces, observe) };
        let inet = libc::AF_INET as u64;
        for observe in [Observe::Off, Observe::Writes] {
            let filter = compile(&gated(observe));
            check(&filter, libc::SYS_socket, [inet, 1, 0, 0, 0, 0], ALLOW);
            check(&filter, libc::SYS_socket, [inet, 3, 1, 0, 0, 0], NOTIFY);
            check(&filter, libc::SYS_socket, [inet, 1, 262, 0, 0, 0], NOTIFY);
            check(&filter, libc::SYS_socket, [libc::AF_NETLINK as u64, 3, 0, 0, 0, 0], errno(libc::EPERM));
            check(&filter, libc::SYS_connect, [0; 6], NOTIFY);
            let at_once = libc::MSG_FASTOPEN as u64;
            check(&filter, libc::SYS_sendto, [0, 0, 0, at_once, 0, 0], errno(libc::EOPNOTSUPP));
            check(&filter, libc::SYS_sendto, [0; 6], ALLOW);
            check(&filter, libc::SYS_sendmsg, [0, 0, at_once, 0, 0, 0], errno(libc::EOPNOTSUPP));
            check(&filter, libc::SYS_sendmmsg, [0, 0, 0, at_once, 0, 0], errno(libc::EOPNOTSUPP));
        }
        // Without a gate there is no notification.
        let reported = compile(&profile(Confinement::Namespaces, Observe::Writes));
        check(&reported, libc::SYS_connect, [0; 6], ALLOW);
        check(&reported, libc::SYS_socket, [inet, 1, 0, 0, 0, 0], NOTIFY);
    }

    #[test]
    fn without_namespaces_sockets_attributes_and_foreign_signals_are_denied() {
        let filter = compile(&profile(Confinement::LandlockOnly, Observe::Off));
        check(&filter, libc::SYS_socket, [libc::AF_UNIX as u64, 1, 0, 0, 0, 0], errno(libc::EPERM));
        check(&filter, libc::SYS_socketpair, [libc::AF_UNIX as u64, 1, 0, 0, 0, 0], ALLOW);
        check(&filter, libc::SYS_fchmodat, [0; 6], errno(libc::EPERM));
        check(&filter, libc::SYS_setxattr, [0; 6], errno(libc::EPERM));
        // Flags, project, verity, a subvolume; but not requests that only read.
        for request in [0x4008_6602, 0x401c_5820, 0x4080_6685, 0x5000_940e, 0x4004_6602 | 1 << 40] {
            check(&filter, libc::SYS_ioctl, [0, request, 0, 0, 0, 0], errno(libc::EPERM));
        }
        for request in [0x8008_6601, 0x4004_9409, 0x5401, 0x541b] {
            check(&filter, libc::SYS_ioctl, [0, request, 0, 0, 0, 0], ALLOW);
        }
        check(&filter, libc::SYS_kill, [77, 9, 0, 0, 0, 0], errno(libc::EPERM));
        check(&filter, libc::SYS_kill, [u64::MAX, 9, 0, 0, 0, 0], errno(libc::EPERM));
        check(&filter, libc::SYS_kill, [78, 9, 0, 0, 0, 0], ALLOW);
        check(&filter, libc::SYS_kill, [(-77_i64).cast_unsigned(), 9, 0, 0, 0, 0], errno(libc::EPERM));
        check(&filter, libc::SYS_kill, [(-78_i64).cast_unsigned(), 9, 0, 0, 0, 0], ALLOW);
        for command in [libc::F_SETOWN, 10, 15] {
            let command = u64::from(command.unsigned_abs());
            check(&filter, libc::SYS_fcntl, [3, command, 77, 0, 0, 0], errno(libc::EPERM));
        }
        check(&filter, libc::SYS_fcntl, [3, libc::F_SETFL as u64, 0, 0, 0, 0], ALLOW);
        check(&filter, libc::SYS_fcntl, [3, libc::F_SETLEASE as u64, 1, 0, 0, 0], errno(libc::EPERM));
        for request in [0x8901, 0x8902] {
            check(&filter, libc::SYS_ioctl, [3, request, 77, 0, 0, 0], errno(libc::EPERM));
        }
        // Where Landlock scopes signals, none of this is needed.
        let scoped =
            compile(&Profile { guarded: Vec::new(), ..profile(Confinement::LandlockOnly, Observe::Off) });
        check(&scoped, libc::SYS_fcntl, [3, libc::F_SETOWN as u64, 77, 0, 0, 0], ALLOW);
    }

    #[test]
    fn observer_is_notified_of_writes_or_of_everything() {
        let here = libc::AT_FDCWD as u64;
        let read = [here, 0, libc::O_RDONLY as u64, 0, 0, 0];
        let write = [here, 0, (libc::O_WRONLY | libc::O_CREAT) as u64, 0, 0, 0];
        let writes = compile(&profile(Confinement::Namespaces, Observe::Writes));
        check(&writes, libc::SYS_openat, read, ALLOW);
        check(&writes, libc::SYS_openat, write, NOTIFY);
        let all = compile(&profile(Confinement::Namespaces, Observe::All));
        check(&all, libc::SYS_openat, read, NOTIFY);
        check(&all, libc::SYS_ptrace, [0; 6], NOTIFY);
        check(&all, libc::SYS_newfstatat, [0; 6], NOTIFY);
        check(&writes, libc::SYS_newfstatat, [0; 6], ALLOW);
        let off = compile(&profile(Confinement::Namespaces, Observe::Off));
        check(&off, libc::SYS_openat, write, ALLOW);
    }

    #[test]
    fn early_and_late_filter_together_equal_the_whole() {
        let strictness = |said: u32| match said {
            ALLOW => 0,
            NOTIFY => 1,
            _ => 2,
        };
        for confinement in [Confinement::Namespaces, Confinement::LandlockOnly] {
            let networks = [NetworkMode::None, NetworkMode::Loopback, NetworkMode::Gated];
            let observed = [Observe::Off, Observe::Writes];
            for (network, observe) in networks.into_iter().flat_map(|one| observed.map(|other| (one, other)))
            {
                let of = |network, part| compile(&Profile { network, part, ..profile(confinement, observe) });
                // A zygote does not know which network its runs will have.
                let early = of(NetworkMode::None, FilterPart::Early);
                let (whole, late) = (of(network, FilterPart::Whole), of(network, FilterPart::Late));
                assert!(late.len() * 3 < whole.len() * 2, "{} of {}", late.len(), whole.len());
                let arguments = [
                    [0; 6],
                    [77, 9, 0, 0, 0, 0],
                    [1; 6],
                    [u64::MAX; 6],
                    [0, libc::TIOCSTI, 1, 0, 0, 0],
                    [0o6101; 6],
                ];
                for number in 0..480 {
                    for arguments in arguments {
                        let ask = |filter| run(filter, assemble::ARCHITECTURE, number, arguments);
                        let both = [ask(&early), ask(&late)].into_iter().max_by_key(|said| strictness(*said));
                        assert_eq!(
                            both,
                            Some(ask(&whole)),
                            "{confinement:?} {network:?} {observe:?} call {number} {arguments:?}"
                        );
                    }
                }
            }
        }
    }

    #[test]
    fn other_architectures_are_killed_and_x32_fails_with_enosys() {
        let filter = compile(&profile(Confinement::Namespaces, Observe::Off));
        assert_eq!(run(&filter, 0x4000_0003, 1, [0; 6]), 0x8000_0000);
        if cfg!(target_arch = "x86_64") {
            let x32 = 0x4000_0000 | 1;
            assert_eq!(run(&filter, assemble::ARCHITECTURE, x32, [0; 6]), errno(libc::ENOSYS));
        }
    }
}
