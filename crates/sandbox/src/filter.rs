//! The system calls that a confined program may not make, as a program for the kernel's filter machine.
//!
//! Denied by name, everything else allowed: compatible with what people run, and the namespaces and Landlock are the
//! walls. What is here are the doors that lead around walls, into little-tested kernel code, or to other processes.
//! The calls are laid out as a search tree, so an ordinary call passes about seven comparisons.
//!
//! `clone3`, `openat2` and `io_uring` cannot be judged (their arguments lie in memory); libraries fall back when they are
//! told that the kernel does not have them.

mod assemble;
mod calls;

use crate::spec::{Network, Observe};
use crate::sys::seccomp::Instruction;

pub(crate) use calls::{FILE_SETATTR, REMOVEXATTRAT, SETXATTRAT, WRITE_FLAGS, refuses, wants_set_id};

/// What a filter is made for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Profile {
    pub(crate) network: Network,
    pub(crate) observe: Observe,
    /// Whether the walls of a mount namespace are there. Without them no socket leads anywhere harmless, and the
    /// attributes of files that the user owns are only protected here.
    pub(crate) walls: Walls,
    /// Processes that may not be signalled, where Landlock does not keep signals inside.
    pub(crate) guarded: Vec<u32>,
    /// Of the calls that are judged, which.
    pub(crate) part: Part,
}

/// A filter is checked and compiled by the kernel each time it is installed, and inherited for nothing. So what is the
/// same for every run is installed once, in the stage, and only the rest with the program. Where several judge a call,
/// the strictest word counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Part {
    /// Everything; when refusals are to be told, none may be decided before.
    Whole,
    /// What nobody needs any more once a stage stands.
    Early,
    /// The rest.
    Late,
}

/// What stands around the program besides the filter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Walls {
    Namespaces,
    LandlockOnly,
}

/// The filter's instructions.
pub(crate) fn compile(profile: &Profile) -> Vec<Instruction> {
    assemble::assemble(calls::rules(profile))
}

#[cfg(test)]
mod tests {
    use super::assemble::run;
    use super::*;

    fn profile(walls: Walls, observe: Observe) -> Profile {
        Profile { network: Network::None, observe, walls, guarded: vec![77], part: Part::Whole }
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
    fn doors_around_the_walls_are_shut_and_ordinary_calls_pass() {
        let filter = compile(&profile(Walls::Namespaces, Observe::Off));
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
        let filter = compile(&profile(Walls::Namespaces, Observe::Off));
        let user = libc::CLONE_NEWUSER as u64;
        check(&filter, libc::SYS_clone, [user, 0, 0, 0, 0, 0], errno(libc::EPERM));
        check(&filter, libc::SYS_clone, [libc::CLONE_VM as u64, 0, 0, 0, 0, 0], ALLOW);
        check(&filter, libc::SYS_ioctl, [0, libc::TIOCSTI, 0, 0, 0, 0], errno(libc::EPERM));
        check(&filter, libc::SYS_ioctl, [0, 0x5401, 0, 0, 0, 0], ALLOW);
        // The high half of an argument that the kernel cuts off changes nothing.
        check(&filter, libc::SYS_ioctl, [0, libc::TIOCSTI | 1 << 40, 0, 0, 0, 0], errno(libc::EPERM));
        check(&filter, libc::SYS_socket, [libc::AF_UNIX as u64, 1, 0, 0, 0, 0], ALLOW);
        check(&filter, libc::SYS_socket, [libc::AF_INET as u64, 1, 0, 0, 0, 0], errno(libc::EPERM));
        check(&filter, libc::SYS_prlimit64, [0, 7, 0, 0, 0, 0], ALLOW);
        check(&filter, libc::SYS_prlimit64, [9, 7, 0, 0, 0, 0], errno(libc::EPERM));
    }

    #[test]
    fn no_call_gives_a_file_a_set_id_bit() {
        for observe in [Observe::Off, Observe::Writes] {
            let filter = compile(&profile(Walls::Namespaces, observe));
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
                // Nothing is made: what stands there is no mode.
                check(&filter, libc::SYS_openat, [0, 0, 0, mode, 0, 0], ALLOW);
            }
            check(&filter, libc::SYS_fchmod, [3, 0o1777, 0, 0, 0, 0], ALLOW);
            check(&filter, libc::SYS_fchmodat, [0, 0, 0o755, 0, 0, 0], otherwise);
            check(&filter, libc::SYS_openat, [0, 0, makes, 0o644, 0, 0], otherwise);
        }
    }

    #[test]
    fn loopback_means_plain_tcp_and_udp() {
        let filter =
            compile(&Profile { network: Network::Loopback, ..profile(Walls::Namespaces, Observe::Off) });
        let inet = libc::AF_INET as u64;
        check(&filter, libc::SYS_socket, [inet, 1 | 0o2000000, 0, 0, 0, 0], ALLOW);
        check(&filter, libc::SYS_socket, [inet, 2, 17, 0, 0, 0], ALLOW);
        check(&filter, libc::SYS_socket, [inet, 1, 262, 0, 0, 0], errno(libc::EPERM));
        check(&filter, libc::SYS_socket, [inet, 3, 1, 0, 0, 0], errno(libc::EPERM));
        check(&filter, libc::SYS_socket, [libc::AF_NETLINK as u64, 3, 0, 0, 0, 0], errno(libc::EPERM));
    }

    #[test]
    fn starts_and_moves_are_asked_about_but_for_the_runs_own() {
        let own = u64::from(crate::sys::process::OWN_START.cast_unsigned());
        for observe in [Observe::Writes, Observe::All] {
            let filter = compile(&profile(Walls::Namespaces, observe));
            for number in [libc::SYS_execve, libc::SYS_execveat, libc::SYS_chdir, libc::SYS_fchdir] {
                check(&filter, number, [0; 6], NOTIFY);
            }
            check(&filter, libc::SYS_execveat, [own, 0, 0, 0, 0, 0], ALLOW);
            check(&filter, libc::SYS_chdir, [0, own, 0, 0, 0, 0], ALLOW);
        }
        let silent = compile(&profile(Walls::Namespaces, Observe::Off));
        check(&silent, libc::SYS_chdir, [0; 6], ALLOW);
    }

    #[test]
    fn a_gated_network_asks_at_connect_and_tells_other_kinds_of_sockets() {
        let gated = |observe| Profile { network: Network::Gated, ..profile(Walls::Namespaces, observe) };
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
        // Without a gate nobody is asked.
        let told = compile(&profile(Walls::Namespaces, Observe::Writes));
        check(&told, libc::SYS_connect, [0; 6], ALLOW);
        check(&told, libc::SYS_socket, [inet, 1, 0, 0, 0, 0], NOTIFY);
    }

    #[test]
    fn without_namespaces_sockets_attributes_and_foreign_signals_are_shut() {
        let filter = compile(&profile(Walls::LandlockOnly, Observe::Off));
        check(&filter, libc::SYS_socket, [libc::AF_UNIX as u64, 1, 0, 0, 0, 0], errno(libc::EPERM));
        check(&filter, libc::SYS_socketpair, [libc::AF_UNIX as u64, 1, 0, 0, 0, 0], ALLOW);
        check(&filter, libc::SYS_fchmodat, [0; 6], errno(libc::EPERM));
        check(&filter, libc::SYS_setxattr, [0; 6], errno(libc::EPERM));
        // Flags, project, verity, a subvolume; but not what only asks.
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
        // Where Landlock keeps signals inside, nothing of that is needed.
        let scoped = compile(&Profile { guarded: Vec::new(), ..profile(Walls::LandlockOnly, Observe::Off) });
        check(&scoped, libc::SYS_fcntl, [3, libc::F_SETOWN as u64, 77, 0, 0, 0], ALLOW);
    }

    #[test]
    fn observing_asks_about_writes_only_unless_all_is_wanted() {
        let here = libc::AT_FDCWD as u64;
        let read = [here, 0, libc::O_RDONLY as u64, 0, 0, 0];
        let write = [here, 0, (libc::O_WRONLY | libc::O_CREAT) as u64, 0, 0, 0];
        let writes = compile(&profile(Walls::Namespaces, Observe::Writes));
        check(&writes, libc::SYS_openat, read, ALLOW);
        check(&writes, libc::SYS_openat, write, NOTIFY);
        let all = compile(&profile(Walls::Namespaces, Observe::All));
        check(&all, libc::SYS_openat, read, NOTIFY);
        check(&all, libc::SYS_ptrace, [0; 6], NOTIFY);
        check(&all, libc::SYS_newfstatat, [0; 6], NOTIFY);
        check(&writes, libc::SYS_newfstatat, [0; 6], ALLOW);
        let off = compile(&profile(Walls::Namespaces, Observe::Off));
        check(&off, libc::SYS_openat, write, ALLOW);
    }

    #[test]
    fn both_parts_together_say_what_the_whole_says() {
        let strictness = |said: u32| match said {
            ALLOW => 0,
            NOTIFY => 1,
            _ => 2,
        };
        for walls in [Walls::Namespaces, Walls::LandlockOnly] {
            let networks = [Network::None, Network::Loopback, Network::Gated];
            let observed = [Observe::Off, Observe::Writes];
            for (network, observe) in networks.into_iter().flat_map(|one| observed.map(|other| (one, other)))
            {
                let of = |network, part| compile(&Profile { network, part, ..profile(walls, observe) });
                // A stage does not know what network its runs will have.
                let early = of(Network::None, Part::Early);
                let (whole, late) = (of(network, Part::Whole), of(network, Part::Late));
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
                            "{walls:?} {network:?} {observe:?} call {number} {arguments:?}"
                        );
                    }
                }
            }
        }
    }

    #[test]
    fn other_architectures_are_killed_and_x32_does_not_exist() {
        let filter = compile(&profile(Walls::Namespaces, Observe::Off));
        assert_eq!(run(&filter, 0x4000_0003, 1, [0; 6]), 0x8000_0000);
        if cfg!(target_arch = "x86_64") {
            let x32 = 0x4000_0000 | 1;
            assert_eq!(run(&filter, assemble::ARCHITECTURE, x32, [0; 6]), errno(libc::ENOSYS));
        }
    }
}
