//! Operation and paths of a system call that waits at the filter, by its number and arguments; a call without an entry is
//! denied.
//!
//! **Invariant.** A call that the filter denies whatever its path never continues: it has no entry here, or
//! [`crate::filter::is_always_denied`] covers it.

use crate::denial::DeniedOperation;
use crate::filter::{FILE_SETATTR, REMOVEXATTRAT, SETXATTRAT, WRITE_FLAGS};
use crate::sys::seccomp_notify::NotifyRequest;

/// The operations of a call and their paths (directory descriptor, address of the text).
pub(super) struct SyscallPaths {
    pub(super) paths: [Option<(DeniedOperation, i32, u64)>; 2],
}

impl SyscallPaths {
    pub(super) fn of(number: libc::c_long, notice: &NotifyRequest) -> Option<Self> {
        use DeniedOperation::{Delete, Execute, Look, Move, MoveTo, Read, Write};
        let [a, b, c, d, ..] = notice.arguments;
        let dir = |value: u64| value as u32 as i32;
        const HERE: i32 = libc::AT_FDCWD;
        let one =
            |operation, place: (i32, u64)| Some(Self { paths: [Some((operation, place.0, place.1)), None] });
        let rename = |from: (i32, u64), to: (i32, u64)| {
            Some(Self { paths: [Some((Move, from.0, from.1)), Some((MoveTo, to.0, to.1))] })
        };
        let open = |flags: u64| match flags as u32 {
            flags if flags & libc::O_PATH.unsigned_abs() != 0 => Look,
            flags if flags & WRITE_FLAGS == 0 => Read,
            _ => Write,
        };
        match number {
            libc::SYS_openat => one(open(c), (dir(a), b)),
            libc::SYS_newfstatat
            | libc::SYS_statx
            | libc::SYS_faccessat
            | libc::SYS_faccessat2
            | libc::SYS_readlinkat => one(Look, (dir(a), b)),
            libc::SYS_chdir | libc::SYS_statfs => one(Look, (HERE, a)),
            libc::SYS_inotify_add_watch => one(Look, (HERE, b)),
            #[cfg(target_arch = "x86_64")]
            libc::SYS_stat | libc::SYS_lstat | libc::SYS_access | libc::SYS_readlink => one(Look, (HERE, a)),
            libc::SYS_mkdirat
            | libc::SYS_mknodat
            | libc::SYS_fchmodat
            | libc::SYS_fchmodat2
            | libc::SYS_fchownat
            | libc::SYS_utimensat
            | SETXATTRAT
            | REMOVEXATTRAT
            | FILE_SETATTR => one(Write, (dir(a), b)),
            // On a descriptor: its path was checked when it was opened.
            libc::SYS_fchmod | libc::SYS_fchown | libc::SYS_fsetxattr | libc::SYS_fremovexattr => {
                Some(Self { paths: [None, None] })
            }
            libc::SYS_unlinkat => one(Delete, (dir(a), b)),
            libc::SYS_renameat | libc::SYS_renameat2 => rename((dir(a), b), (dir(c), d)),
            libc::SYS_linkat => one(Write, (dir(c), d)),
            libc::SYS_symlinkat => one(Write, (dir(b), c)),
            libc::SYS_truncate
            | libc::SYS_setxattr
            | libc::SYS_lsetxattr
            | libc::SYS_removexattr
            | libc::SYS_lremovexattr => one(Write, (HERE, a)),
            libc::SYS_execve => one(Execute, (HERE, a)),
            libc::SYS_execveat => one(Execute, (dir(a), b)),
            #[cfg(target_arch = "x86_64")]
            libc::SYS_open => one(open(b), (HERE, a)),
            #[cfg(target_arch = "x86_64")]
            libc::SYS_creat
            | libc::SYS_mkdir
            | libc::SYS_mknod
            | libc::SYS_chmod
            | libc::SYS_chown
            | libc::SYS_lchown
            | libc::SYS_utime
            | libc::SYS_utimes => one(Write, (HERE, a)),
            #[cfg(target_arch = "x86_64")]
            libc::SYS_futimesat => one(Write, (dir(a), b)),
            #[cfg(target_arch = "x86_64")]
            libc::SYS_unlink | libc::SYS_rmdir => one(Delete, (HERE, a)),
            #[cfg(target_arch = "x86_64")]
            libc::SYS_rename => rename((HERE, a), (HERE, b)),
            #[cfg(target_arch = "x86_64")]
            libc::SYS_link | libc::SYS_symlink => one(Write, (HERE, b)),
            _ => None,
        }
    }
}

/// Whether the call opens its path.
pub(super) fn opens(number: libc::c_long) -> bool {
    #[cfg(target_arch = "x86_64")]
    if number == libc::SYS_open {
        return true;
    }
    number == libc::SYS_openat
}

/// The usual name of a call, with the address family of a socket.
pub(super) fn name(number: libc::c_long, arguments: &[u64; 6]) -> String {
    let [family, ..] = *arguments;
    match number {
        libc::SYS_socket | libc::SYS_socketpair => {
            format!("{} ({})", plain_name(number), family_name(family))
        }
        _ => plain_name(number),
    }
}

/// The kernel uses the low 32 bits only.
fn family_name(family: u64) -> String {
    match family as u32 as i32 {
        libc::AF_UNIX => "unix".to_owned(),
        libc::AF_INET => "IPv4".to_owned(),
        libc::AF_INET6 => "IPv6".to_owned(),
        libc::AF_NETLINK => "netlink".to_owned(),
        libc::AF_PACKET => "packet".to_owned(),
        libc::AF_VSOCK => "vsock".to_owned(),
        other => format!("family {other}"),
    }
}

fn plain_name(number: libc::c_long) -> String {
    let known: &[(libc::c_long, &str)] = &[
        (libc::SYS_ptrace, "ptrace"),
        (libc::SYS_process_vm_readv, "process_vm_readv"),
        (libc::SYS_process_vm_writev, "process_vm_writev"),
        (libc::SYS_pidfd_getfd, "pidfd_getfd"),
        (libc::SYS_bpf, "bpf"),
        (libc::SYS_perf_event_open, "perf_event_open"),
        (libc::SYS_userfaultfd, "userfaultfd"),
        (libc::SYS_memfd_secret, "memfd_secret"),
        (libc::SYS_fanotify_init, "fanotify_init"),
        (libc::SYS_keyctl, "keyctl"),
        (libc::SYS_add_key, "add_key"),
        (libc::SYS_mount, "mount"),
        (libc::SYS_umount2, "umount"),
        (libc::SYS_pivot_root, "pivot_root"),
        (libc::SYS_chroot, "chroot"),
        (libc::SYS_open_tree, "open_tree"),
        (libc::SYS_move_mount, "move_mount"),
        (libc::SYS_fsopen, "fsopen"),
        (libc::SYS_fsmount, "fsmount"),
        (libc::SYS_mount_setattr, "mount_setattr"),
        (libc::SYS_unshare, "unshare"),
        (libc::SYS_setns, "setns"),
        (libc::SYS_name_to_handle_at, "name_to_handle_at"),
        (libc::SYS_open_by_handle_at, "open_by_handle_at"),
        (libc::SYS_syslog, "syslog"),
        (libc::SYS_mbind, "mbind"),
        (libc::SYS_set_mempolicy, "set_mempolicy"),
        (libc::SYS_clone, "clone"),
        (libc::SYS_ioctl, "ioctl"),
        (libc::SYS_personality, "personality"),
        (libc::SYS_prlimit64, "prlimit"),
        (libc::SYS_setpriority, "setpriority"),
        (libc::SYS_ioprio_set, "ioprio_set"),
        (libc::SYS_sched_setaffinity, "sched_setaffinity"),
        (libc::SYS_sched_setscheduler, "sched_setscheduler"),
        (libc::SYS_sched_setparam, "sched_setparam"),
        (libc::SYS_sched_setattr, "sched_setattr"),
        (libc::SYS_socket, "socket"),
        (libc::SYS_socketpair, "socketpair"),
        (libc::SYS_kill, "kill"),
        (libc::SYS_tgkill, "tgkill"),
        (libc::SYS_pidfd_send_signal, "pidfd_send_signal"),
        (libc::SYS_openat, "openat"),
        (libc::SYS_fchmod, "fchmod"),
        (libc::SYS_fchmodat, "fchmodat"),
        (libc::SYS_fchown, "fchown"),
        (libc::SYS_fchownat, "fchownat"),
        (libc::SYS_utimensat, "utimensat"),
        (libc::SYS_setxattr, "setxattr"),
        (libc::SYS_fsetxattr, "fsetxattr"),
        (libc::SYS_shmget, "shmget"),
        (libc::SYS_msgget, "msgget"),
        (libc::SYS_semget, "semget"),
        (libc::SYS_mq_open, "mq_open"),
        (libc::SYS_inotify_add_watch, "inotify_add_watch"),
        #[cfg(target_arch = "x86_64")]
        (libc::SYS_chmod, "chmod"),
        #[cfg(target_arch = "x86_64")]
        (libc::SYS_chown, "chown"),
        #[cfg(target_arch = "x86_64")]
        (libc::SYS_utimes, "utimes"),
    ];
    known
        .iter()
        .find(|(one, _)| *one == number)
        .map_or_else(|| format!("system call {number}"), |(_, name)| (*name).to_owned())
}
