//! Escape attempts of a hostile program, one small function each. They run inside a sandbox (`real probe NAME`), ours
//! or another one: `Ok` means that the attempt succeeded, an error is what stopped it.
//!
//! Paths come in the environment: `ESCAPE_ROOM` is a host directory with `outside/file`, `home/.ssh/id_ed25519` and
//! `state/ledger` in it, `ESCAPE_BROKER` the process that started the sandbox, `ESCAPE_SIBLING` the program of
//! another run.

use std::ffi::CString;
use std::fs::{self, File, OpenOptions};
use std::io::{Error, Read as _, Write as _};
use std::os::fd::AsRawFd as _;
use std::os::unix::ffi::OsStringExt as _;
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

/// `Ok` when the attempt succeeded.
pub(crate) type Attempt = Result<(), Error>;

/// A name and the attempt.
pub(crate) type Probe = (&'static str, fn() -> Attempt);

/// Probes by name.
const PROBES: &[Probe] = &[
    ("read_ssh_key", || read(room("home/.ssh/id_ed25519"))),
    ("read_outside_by_parent", || read("../outside/file".into())),
    ("read_outside_by_full_path", || read(room("outside/file"))),
    ("read_etc_shadow", || read("/etc/shadow".into())),
    ("read_machine_id", || read("/etc/machine-id".into())),
    ("write_etc", || write("/etc/vambrace-escape".into())),
    ("write_usr", || write("/usr/vambrace-escape".into())),
    ("write_outside", || write(room("outside/new"))),
    ("read_state", || read(room("state/ledger"))),
    ("write_state", || write(room("state/ledger"))),
    ("list_home", || list(room("home"))),
    ("list_root_home", || list("/root".into())),
    ("read_secret_in_workspace", || read(".env".into())),
    ("read_nested_secret", || read("deep/er/key.pem".into())),
    ("read_secret_by_link", || {
        let _ = std::os::unix::fs::symlink("../project/.env", "/tmp/l");
        read(room("project/.env")).or_else(|_| read("/tmp/l".into()))
    }),
    ("chmod_existing", || fs::set_permissions("plain.txt", fs::Permissions::from_mode(0o777))),
    ("chown_existing", || {
        call(unsafe { libc::chown(c"plain.txt".as_ptr(), libc::getuid(), libc::getgid()) })
    }),
    ("utimes_existing", || call(unsafe { libc::utimes(c"plain.txt".as_ptr(), std::ptr::null()) })),
    ("setxattr_existing", || {
        call(unsafe { libc::setxattr(c"plain.txt".as_ptr(), c"user.x".as_ptr(), c"y".as_ptr().cast(), 1, 0) })
    }),
    ("fchmod_of_a_read_handle", || {
        let file = File::open("plain.txt")?;
        call(unsafe { libc::fchmod(file.as_raw_fd(), 0o777) })
    }),
    ("set_id_bits", set_id_bits),
    ("file_capability", || {
        let name = CString::new(std::env::temp_dir().join("capable").into_os_string().into_vec())?;
        write(std::env::temp_dir().join("capable"))?;
        // Version 2, effective, every capability.
        let mut value = [0xff_u8; 20];
        value[..4].copy_from_slice(&0x0200_0001_u32.to_le_bytes());
        let key = c"security.capability".as_ptr();
        call(unsafe { libc::setxattr(name.as_ptr(), key, value.as_ptr().cast(), value.len(), 0) })
    }),
    ("set_flags_of_a_read_handle", || {
        let file = File::open("plain.txt")?;
        let mut flags: libc::c_int = 0;
        call(unsafe { libc::ioctl(file.as_raw_fd(), libc::FS_IOC_GETFLAGS, &raw mut flags) })?;
        // FS_NODUMP_FL: harmless, but a change.
        flags ^= 0x40;
        call(unsafe { libc::ioctl(file.as_raw_fd(), libc::FS_IOC_SETFLAGS, &raw const flags) })
    }),
    ("truncate_existing", || call(unsafe { libc::truncate(c"plain.txt".as_ptr(), 0) })),
    ("create_in_read_mode", || write("new".into())),
    ("mkdir_in_read_mode", || fs::create_dir("newdir")),
    ("symlink_in_read_mode", || std::os::unix::fs::symlink("a", "newlink")),
    ("mkfifo_in_read_mode", || call(unsafe { libc::mkfifo(c"newpipe".as_ptr(), 0o600) })),
    ("mmap_write_existing", || OpenOptions::new().read(true).write(true).open("plain.txt").map(drop)),
    ("tmpfile_then_link", || {
        let file = OpenOptions::new().write(true).custom_flags(libc::O_TMPFILE).open(".")?;
        let from = CString::new(format!("/proc/self/fd/{}", file.as_raw_fd()))?;
        let follow = libc::AT_SYMLINK_FOLLOW;
        call(unsafe {
            libc::linkat(libc::AT_FDCWD, from.as_ptr(), libc::AT_FDCWD, c"linked".as_ptr(), follow)
        })
    }),
    ("mknod_char_device", || {
        call(unsafe { libc::mknod(c"/tmp/dev".as_ptr(), libc::S_IFCHR | 0o600, libc::makedev(1, 3)) })
    }),
    ("mknod_block_device", || {
        call(unsafe { libc::mknod(c"/tmp/dev".as_ptr(), libc::S_IFBLK | 0o600, libc::makedev(8, 0)) })
    }),
    ("capability_on_a_new_file", || {
        fs::copy("/bin/true", scratch("true"))?;
        let path = CString::new(scratch("true").display().to_string())?;
        let value = [0_u8, 0, 0, 2, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
        let name = c"security.capability".as_ptr();
        call(unsafe { libc::setxattr(path.as_ptr(), name, value.as_ptr().cast(), value.len(), 0) })
    }),
    ("inotify_outside", || {
        let handle = number(unsafe { libc::inotify_init1(0) }.into())?;
        let path = CString::new(room("outside").display().to_string())?;
        call(unsafe { libc::inotify_add_watch(handle as i32, path.as_ptr(), libc::IN_ALL_EVENTS) })
    }),
    ("fanotify", || number(unsafe { libc::syscall(libc::SYS_fanotify_init, 0, 0) }).map(drop)),
    ("sparse_terabyte", || {
        let file = File::create(scratch("sparse"))?;
        // Ignore SIGXFSZ, so that the call returns an error.
        unsafe { libc::signal(libc::SIGXFSZ, libc::SIG_IGN) };
        file.set_len(1 << 40)
    }),
    ("link_to_outside_read", || {
        let link = scratch("out");
        std::os::unix::fs::symlink(room("outside/file"), &link)?;
        read(link)
    }),
    ("link_to_outside_write", || {
        let link = scratch("out");
        std::os::unix::fs::symlink(room("outside/file"), &link)?;
        OpenOptions::new().append(true).open(link).map(drop)
    }),
    ("hard_link_to_outside", || fs::hard_link(room("outside/file"), scratch("hard"))),
    ("hard_link_to_system", || fs::hard_link("/bin/true", scratch("hard"))),
    ("reopen_with_more_rights", || {
        let file = File::open("/etc/passwd")?;
        OpenOptions::new().write(true).open(format!("/proc/self/fd/{}", file.as_raw_fd())).map(drop)
    }),
    ("path_handle_reopened", || {
        let file = OpenOptions::new().read(true).custom_flags(libc::O_PATH).open("/usr/bin")?;
        write(format!("/proc/self/fd/{}/vambrace-escape", file.as_raw_fd()).into())
    }),
    ("inherited_handles", || {
        let open = (3..1024).filter(|fd| unsafe { libc::fcntl(*fd, libc::F_GETFD) } >= 0).count();
        if open > 0 { Ok(()) } else { Err(Error::other("none but the standard streams")) }
    }),
    ("root_of_the_first_process", || list("/proc/1/root/".into())),
    ("directory_of_the_broker", || list(format!("/proc/{}/cwd/", broker()).into())),
    ("environment_of_the_broker", || read(format!("/proc/{}/environ", broker()).into())),
    ("memory_of_the_broker", || {
        OpenOptions::new().write(true).open(format!("/proc/{}/mem", broker())).map(drop)
    }),
    ("memory_of_the_first_process", || File::open("/proc/1/mem").map(drop)),
    ("environment_of_the_first_process", || read("/proc/1/environ".into())),
    ("open_by_handle", || {
        let mut handle = [0_u8; 136];
        number(unsafe { libc::syscall(libc::SYS_open_by_handle_at, libc::AT_FDCWD, handle.as_mut_ptr(), 0) })
            .map(drop)
            .or_else(allowed_if_only_arguments_failed)
    }),
    ("name_to_handle", || {
        let mut handle = [0_u8; 136];
        handle[0] = 128;
        let mut mount = 0;
        let path = c"/".as_ptr();
        call(unsafe {
            libc::syscall(
                libc::SYS_name_to_handle_at,
                libc::AT_FDCWD,
                path,
                handle.as_mut_ptr(),
                &raw mut mount,
                0,
            )
        } as i32)
    }),
    ("core_pattern", || OpenOptions::new().write(true).open("/proc/sys/kernel/core_pattern").map(drop)),
    ("modprobe_path", || OpenOptions::new().write(true).open("/proc/sys/kernel/modprobe").map(drop)),
    ("uevent_helper", || OpenOptions::new().write(true).open("/sys/kernel/uevent_helper").map(drop)),
    ("sysrq", || OpenOptions::new().write(true).open("/proc/sysrq-trigger").map(drop)),
    ("proc_keys", || File::open("/proc/keys").map(drop)),
    ("proc_kallsyms", || File::open("/proc/kallsyms").map(drop)),
    ("proc_kcore", || File::open("/proc/kcore").map(drop)),
    ("proc_kmsg", || File::open("/proc/kmsg").map(drop)),
    ("kernel_messages", || {
        let mut text = [0_u8; 64];
        number(unsafe { libc::syscall(libc::SYS_syslog, 3, text.as_mut_ptr(), 64) }).map(drop)
    }),
    ("oom_score_of_the_broker", || {
        OpenOptions::new().write(true).open(format!("/proc/{}/oom_score_adj", broker())).map(drop)
    }),
    ("own_oom_score_minus_1000", || {
        OpenOptions::new().write(true).open("/proc/self/oom_score_adj")?.write_all(b"-1000")
    }),
    ("cgroup_limits", || list("/sys/fs/cgroup".into())),
    ("debugfs", || list("/sys/kernel/debug".into()).or_else(|_| list("/sys/kernel/tracing".into()))),
    ("binfmt", || OpenOptions::new().write(true).open("/proc/sys/fs/binfmt_misc/register").map(drop)),
    ("devices", || {
        let nodes = [
            "/dev/mem",
            "/dev/kmsg",
            "/dev/kvm",
            "/dev/vda",
            "/dev/sda",
            "/dev/fuse",
            "/dev/net/tun",
            "/dev/loop-control",
        ];
        first(nodes.iter().map(|node| File::open(node).map(drop)))
    }),
    ("ptrace_child", || {
        let child = unsafe { libc::fork() };
        if child == 0 {
            loop {
                unsafe { libc::pause() };
            }
        }
        let traced = number(unsafe { libc::ptrace(libc::PTRACE_ATTACH, child, 0, 0) });
        unsafe { libc::kill(child, libc::SIGKILL) };
        traced.map(drop)
    }),
    ("ptrace_broker", || number(unsafe { libc::ptrace(libc::PTRACE_ATTACH, broker(), 0, 0) }).map(drop)),
    ("read_memory_of_the_broker", || {
        let mut byte = 0_u8;
        let local = libc::iovec { iov_base: (&raw mut byte).cast(), iov_len: 1 };
        let remote = libc::iovec { iov_base: 0x10000 as *mut libc::c_void, iov_len: 1 };
        number(
            unsafe { libc::process_vm_readv(broker(), &raw const local, 1, &raw const remote, 1, 0) } as i64
        )
        .map(drop)
        .or_else(allowed_if_only_arguments_failed)
    }),
    ("signal_the_broker", || call(unsafe { libc::kill(broker(), 0) })),
    ("signal_the_parent", || {
        let parent = unsafe { libc::getppid() };
        call(unsafe { libc::kill(parent, libc::SIGKILL) })?;
        // The init of a pid namespace receives no SIGKILL from inside.
        std::thread::sleep(std::time::Duration::from_millis(50));
        if unsafe { libc::getppid() } == parent && unsafe { libc::kill(parent, 0) } == 0 {
            return Err(Error::other("it is still alive"));
        }
        Ok(())
    }),
    ("take_a_handle_of_the_broker", || {
        let handle = number(unsafe { libc::syscall(libc::SYS_pidfd_open, broker(), 0) })?;
        number(unsafe { libc::syscall(libc::SYS_pidfd_getfd, handle, 0, 0) }).map(drop)
    }),
    ("priority_of_the_broker", || {
        call(unsafe { libc::setpriority(libc::PRIO_PROCESS, broker() as u32, 19) })
    }),
    ("limits_of_the_broker", || {
        let limit = libc::rlimit { rlim_cur: 1, rlim_max: 1 };
        call(unsafe { libc::prlimit(broker(), libc::RLIMIT_CPU, &raw const limit, std::ptr::null_mut()) })
    }),
    ("raise_own_limits", || {
        let limit = libc::rlimit { rlim_cur: 1 << 20, rlim_max: 1 << 20 };
        call(unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit) })
    }),
    ("core_dump", || {
        let child = unsafe { libc::fork() };
        if child == 0 {
            let _ = std::env::set_current_dir(scratch("."));
            unsafe { libc::abort() };
        }
        let mut status = 0;
        unsafe { libc::waitpid(child, &raw mut status, 0) };
        if libc::WCOREDUMP(status) { Ok(()) } else { Err(Error::other("no core")) }
    }),
    ("user_is_root", || {
        if unsafe { libc::getuid() } == 0 || unsafe { libc::geteuid() } == 0 {
            Ok(())
        } else {
            Err(Error::other("not root"))
        }
    }),
    ("has_a_capability", || {
        let status = fs::read_to_string("/proc/self/status")?;
        let any = |name: &str| {
            status.lines().any(|line| line.starts_with(name) && !line.ends_with("0000000000000000"))
        };
        if any("CapEff") || any("CapPrm") || any("CapAmb") || any("CapInh") {
            Ok(())
        } else {
            Err(Error::other("none"))
        }
    }),
    ("may_gain_privileges", || {
        // 39: PR_GET_NO_NEW_PRIVS
        if unsafe { libc::prctl(39, 0, 0, 0, 0) } == 1 { Err(Error::other("no_new_privs")) } else { Ok(()) }
    }),
    ("set_user_id_root", || call(unsafe { libc::setuid(0) })),
    ("unshare_user", || in_child(|| call(unsafe { libc::unshare(libc::CLONE_NEWUSER) }))),
    ("unshare_mounts", || in_child(|| call(unsafe { libc::unshare(libc::CLONE_NEWNS) }))),
    ("clone_user", || {
        let flags = libc::CLONE_NEWUSER | libc::SIGCHLD;
        let child = number(unsafe { libc::syscall(libc::SYS_clone, flags, 0, 0, 0, 0) })?;
        if child == 0 {
            unsafe { libc::_exit(0) };
        }
        Ok(())
    }),
    ("clone3_user", || {
        let arguments: [u64; 11] =
            [libc::CLONE_NEWUSER as u64, 0, 0, 0, libc::SIGCHLD as u64, 0, 0, 0, 0, 0, 0];
        let child = number(unsafe { libc::syscall(libc::SYS_clone3, arguments.as_ptr(), 88) })?;
        if child == 0 {
            unsafe { libc::_exit(0) };
        }
        Ok(())
    }),
    ("mount_tmpfs", || {
        let (kind, place) = (c"tmpfs".as_ptr(), c"/tmp".as_ptr());
        call(unsafe { libc::mount(kind, place, kind, 0, std::ptr::null()) })
    }),
    ("unmount", || call(unsafe { libc::umount2(c"/tmp".as_ptr(), libc::MNT_DETACH) })),
    ("new_mount_calls", || {
        let open = number(unsafe { libc::syscall(libc::SYS_fsopen, c"tmpfs".as_ptr(), 0) }).map(drop);
        let tree =
            number(unsafe { libc::syscall(libc::SYS_open_tree, libc::AT_FDCWD, c"/".as_ptr(), 1) }).map(drop);
        let set = number(unsafe {
            libc::syscall(libc::SYS_mount_setattr, libc::AT_FDCWD, c"/".as_ptr(), 0, [0_u64; 4].as_ptr(), 32)
        })
        .map(drop);
        first([open, tree, set])
    }),
    ("chroot", || call(unsafe { libc::chroot(c"/tmp".as_ptr()) })),
    ("pivot_root", || {
        number(unsafe { libc::syscall(libc::SYS_pivot_root, c"/tmp".as_ptr(), c"/tmp".as_ptr()) }).map(drop)
    }),
    ("enter_namespaces", || {
        let handle = File::open("/proc/self/ns/mnt")?;
        call(unsafe { libc::setns(handle.as_raw_fd(), 0) })
    }),
    ("add_key", || {
        let (kind, name) = (c"user".as_ptr(), c"escape".as_ptr());
        number(unsafe { libc::syscall(libc::SYS_add_key, kind, name, c"x".as_ptr(), 1, -4) }).map(drop)
    }),
    ("keyctl", || number(unsafe { libc::syscall(libc::SYS_keyctl, 0, -4, 1) }).map(drop)),
    ("bpf", || {
        number(unsafe { libc::syscall(libc::SYS_bpf, 0, std::ptr::null::<u8>(), 0) })
            .map(drop)
            .or_else(allowed_if_only_arguments_failed)
    }),
    ("perf", || {
        let attributes = [0_u8; 120];
        number(unsafe { libc::syscall(libc::SYS_perf_event_open, attributes.as_ptr(), 0, -1, -1, 0) })
            .map(drop)
            .or_else(allowed_if_only_arguments_failed)
    }),
    ("userfaultfd", || number(unsafe { libc::syscall(libc::SYS_userfaultfd, 1) }).map(drop)),
    ("memfd_secret", || number(unsafe { libc::syscall(libc::SYS_memfd_secret, 0) }).map(drop)),
    ("io_uring", || {
        let mut parameters = [0_u8; 120];
        number(unsafe { libc::syscall(libc::SYS_io_uring_setup, 4, parameters.as_mut_ptr()) }).map(drop)
    }),
    ("personality", || number(unsafe { libc::syscall(libc::SYS_personality, 0x0040_0000) }).map(drop)),
    ("another_architecture", another_architecture),
    ("second_filter_widens", || {
        // A filter that allows everything: {return ALLOW}.
        let filter = [libc::sock_filter { code: 6, jt: 0, jf: 0, k: 0x7fff_0000 }];
        let program = libc::sock_fprog { len: 1, filter: filter.as_ptr().cast_mut() };
        number(unsafe { libc::syscall(libc::SYS_seccomp, 1, 0, &raw const program) })?;
        call(unsafe { libc::unshare(libc::CLONE_NEWNS) })
    }),
    ("push_terminal_input", || {
        call(unsafe { libc::ioctl(0, libc::TIOCSTI, c"x".as_ptr()) })
            .or_else(allowed_if_only_arguments_failed)
    }),
    ("terminal_line_discipline", || {
        call(unsafe { libc::ioctl(0, 0x5423, &raw const ZERO) }).or_else(allowed_if_only_arguments_failed)
    }),
    ("controlling_terminal", || File::open("/dev/tty").map(drop)),
    ("host_socket_by_path", || std::os::unix::net::UnixStream::connect(room("outside/socket")).map(drop)),
    ("host_socket_in_workspace", || std::os::unix::net::UnixStream::connect("socket").map(drop)),
    ("host_socket_by_name", || {
        use std::os::linux::net::SocketAddrExt as _;
        let name = format!("vambrace-escape-{}", broker());
        let address = std::os::unix::net::SocketAddr::from_abstract_name(name)?;
        std::os::unix::net::UnixStream::connect_addr(&address).map(drop)
    }),
    ("host_shared_memory", || {
        number(unsafe { libc::shmget(segment_key(broker().unsigned_abs()), 4096, 0) }.into()).map(drop)
    }),
    ("internet_socket", || socket(libc::AF_INET, libc::SOCK_STREAM, 0)),
    ("internet_socket_over_ipv6", || socket(libc::AF_INET6, libc::SOCK_STREAM, 0)),
    ("datagram_socket", || socket(libc::AF_INET, libc::SOCK_DGRAM, 0)),
    ("ping_socket", || socket(libc::AF_INET, libc::SOCK_DGRAM, libc::IPPROTO_ICMP)),
    ("multipath_socket", || socket(libc::AF_INET, libc::SOCK_STREAM, libc::IPPROTO_MPTCP)),
    ("sctp_socket", || socket(libc::AF_INET, libc::SOCK_STREAM, libc::IPPROTO_SCTP)),
    // A local address, with data in the first packet: `connect` is never called.
    ("fast_open", || {
        let handle = unsafe { libc::socket(libc::AF_INET, libc::SOCK_STREAM, 0) };
        number(handle.into())?;
        let there = libc::sockaddr_in {
            sin_family: libc::AF_INET as u16,
            sin_port: 80_u16.to_be(),
            sin_addr: libc::in_addr { s_addr: u32::from_ne_bytes([127, 0, 0, 1]) },
            sin_zero: [0; 8],
        };
        let length = size_of_val(&there) as u32;
        let to = (&raw const there).cast();
        let sent = unsafe { libc::sendto(handle, c"x".as_ptr().cast(), 1, libc::MSG_FASTOPEN, to, length) };
        // The packet was sent, whatever the reply.
        match Error::last_os_error().raw_os_error() {
            Some(error @ (libc::EPERM | libc::EACCES | libc::EOPNOTSUPP)) if sent < 0 => {
                Err(Error::from_raw_os_error(error))
            }
            _ => Ok(()),
        }
    }),
    ("netlink_socket", || socket(libc::AF_NETLINK, libc::SOCK_RAW, 0)),
    ("vsock_socket", || socket(libc::AF_VSOCK, libc::SOCK_STREAM, 0)),
    ("raw_packets", || socket(libc::AF_PACKET, libc::SOCK_RAW, 0)),
    ("descriptor_exhaustion", || {
        let open: Vec<File> = (0..5000).map_while(|_| File::open("/dev/null").ok()).collect();
        if open.len() == 5000 { Ok(()) } else { Err(Error::other("bounded")) }
    }),
    ("six_hundred_processes", || {
        let mut children = Vec::new();
        for _ in 0..600 {
            match unsafe { libc::fork() } {
                0 => loop {
                    unsafe { libc::pause() };
                },
                -1 => break,
                child => children.push(child),
            }
        }
        for child in &children {
            unsafe { libc::kill(*child, libc::SIGKILL) };
        }
        if children.len() == 600 {
            Ok(())
        } else {
            Err(Error::other(format!("{} processes", children.len())))
        }
    }),
    ("a_gibibyte_of_memory", || {
        in_child(|| {
            let mut hoard: Vec<u8> = Vec::new();
            hoard.try_reserve_exact(1 << 30).map_err(Error::other)?;
            hoard.resize(1 << 30, 1);
            if hoard.iter().step_by(4096).all(|byte| *byte == 1) { Ok(()) } else { Err(Error::other("lost")) }
        })
    }),
    ("secret_in_the_environment", || match std::env::var("FAKE_API_KEY") {
        Ok(_) => Ok(()),
        Err(_) => Err(Error::other("not there")),
    }),
];

static ZERO: libc::c_int = 0;

/// All probes, of this and the other modules.
pub(crate) fn all() -> impl Iterator<Item = &'static Probe> {
    let further = [
        super::indirect_execution::INDIRECT_PROBES,
        super::other_runs::OTHER_RUN_PROBES,
        super::resource_exhaustion::EXHAUSTION_PROBES,
    ];
    PROBES.iter().chain(further.into_iter().flatten())
}

/// Every way to set a set-id bit on an own file.
fn set_id_bits() -> Attempt {
    let dir = std::env::temp_dir();
    let name = |number: usize| CString::new(dir.join(format!("set-id-{number}")).into_os_string().into_vec());
    let here = libc::AT_FDCWD;
    let makes = libc::O_CREAT | libc::O_RDWR;
    let mut last = Error::from_raw_os_error(libc::EPERM);
    for mode in [0o4755_u32, 0o2755] {
        let plain = |number: usize| -> Result<CString, Error> {
            let path = name(number)?;
            write(dir.join(format!("set-id-{number}")))?;
            Ok(path)
        };
        let how = [makes as u64, u64::from(mode), 0];
        let old = [plain(0)?, plain(1)?, plain(2)?, plain(3)?];
        let new = [name(4)?, name(5)?, name(6)?, name(7)?, name(8)?];
        let open = File::open(dir.join("set-id-1"))?;
        for path in &new {
            unsafe { libc::unlink(path.as_ptr()) };
        }
        let unnamed = CString::new(dir.clone().into_os_string().into_vec())?;
        unsafe {
            libc::chmod(old[0].as_ptr(), mode);
            libc::fchmod(open.as_raw_fd(), mode);
            libc::syscall(libc::SYS_fchmodat, here, old[2].as_ptr(), mode);
            libc::syscall(libc::SYS_fchmodat2, here, old[3].as_ptr(), mode, 0);
            libc::syscall(libc::SYS_openat, here, new[0].as_ptr(), makes, mode);
            libc::syscall(libc::SYS_openat2, here, new[1].as_ptr(), how.as_ptr(), size_of_val(&how));
            libc::syscall(libc::SYS_mknodat, here, new[2].as_ptr(), libc::S_IFREG | mode, 0);
            #[cfg(target_arch = "x86_64")]
            libc::syscall(libc::SYS_creat, new[3].as_ptr(), mode);
            let file =
                libc::syscall(libc::SYS_openat, here, unnamed.as_ptr(), libc::O_TMPFILE | libc::O_RDWR, mode);
            if file >= 0 {
                let from = CString::new(format!("/proc/self/fd/{file}"))?;
                libc::linkat(here, from.as_ptr(), here, new[4].as_ptr(), libc::AT_SYMLINK_FOLLOW);
            }
        }
        last = Error::last_os_error();
        for number in 0..9 {
            let facts = fs::metadata(dir.join(format!("set-id-{number}")));
            if facts.is_ok_and(|facts| facts.permissions().mode() & 0o6000 != 0) {
                return Ok(());
            }
        }
    }
    Err(last)
}

/// Runs one probe, or all, and prints the results; returns the exit code.
pub(crate) fn main(name: &str) -> u8 {
    if name == "exchange" {
        let (one, other) = (c".git/config".as_ptr(), c"plain.txt".as_ptr());
        let (here, swap) = (libc::AT_FDCWD, libc::RENAME_EXCHANGE);
        let done = unsafe { libc::syscall(libc::SYS_renameat2, here, one, here, other, swap) };
        println!("{}", if done == 0 { "exchanged" } else { "denied" });
        return 0;
    }
    if name == "signal_all_processes" {
        super::other_runs::signal_all_processes();
        return 0;
    }
    if name.starts_with("hold_descriptors") {
        return u8::from(super::resource_exhaustion::hold_descriptors().is_ok());
    }
    if name == "swapped_link" {
        return u8::from(super::indirect_execution::swapped_link(100_000).is_ok());
    }
    if name == "names" {
        // For comparing sandboxes at their defaults: a probe that only a deadline ends shows nothing there.
        let compared = all().filter(|(probe, _)| *probe != "spin_on_every_processor");
        compared.for_each(|(probe, _)| println!("{probe}"));
        return 0;
    }
    // A denied write of too large a file must not end the whole list.
    let chosen = all().filter(|(probe, _)| name == "all" || *probe == name);
    let mut reached = 0;
    for (probe, attempt) in chosen {
        let said = match attempt() {
            Ok(()) => {
                reached += 1;
                "REACHED".to_owned()
            }
            Err(error) => format!("blocked: {error}"),
        };
        println!("{probe} {said}");
    }
    u8::from(reached > 0)
}

pub(crate) fn room(name: &str) -> PathBuf {
    Path::new(&std::env::var("ESCAPE_ROOM").unwrap_or_default()).join(name)
}

pub(crate) fn broker() -> libc::pid_t {
    std::env::var("ESCAPE_BROKER").ok().and_then(|pid| pid.parse().ok()).unwrap_or(1)
}

/// Key of a shared memory segment that belongs to this process.
pub(crate) fn segment_key(process: u32) -> libc::key_t {
    libc::key_t::try_from(0x5600_0000 | (process & 0x00ff_ffff)).unwrap_or(1)
}

/// A path that the program may write.
pub(crate) fn scratch(name: &str) -> PathBuf {
    Path::new(&std::env::var("TMPDIR").unwrap_or_else(|_| "/tmp".to_owned())).join(name)
}

pub(crate) fn read(path: PathBuf) -> Attempt {
    let mut byte = [0; 1];
    match File::open(path)?.read(&mut byte)? {
        0 => Err(Error::other("empty")),
        _ => Ok(()),
    }
}

pub(crate) fn write(path: PathBuf) -> Attempt {
    OpenOptions::new().create(true).append(true).open(path)?.write_all(b"escaped\n")
}

pub(crate) fn list(path: PathBuf) -> Attempt {
    let mut names = fs::read_dir(path)?;
    // Parent directories of the workspace are not a secret.
    if names.any(|name| name.is_ok_and(|name| name.file_name() != "project")) {
        Ok(())
    } else {
        Err(Error::other("empty"))
    }
}

fn socket(family: i32, kind: i32, protocol: i32) -> Attempt {
    call(unsafe { libc::socket(family, kind, protocol) })
}

pub(crate) fn call(returned: i32) -> Attempt {
    if returned < 0 { Err(Error::last_os_error()) } else { Ok(()) }
}

pub(crate) fn number(returned: i64) -> Result<i64, Error> {
    if returned < 0 { Err(Error::last_os_error()) } else { Ok(returned) }
}

/// An error about the arguments means that the call itself was allowed.
fn allowed_if_only_arguments_failed(error: Error) -> Attempt {
    match error.raw_os_error() {
        Some(libc::EINVAL | libc::EFAULT | libc::E2BIG | libc::EBADF | libc::ENOTTY | libc::ESRCH) => {
            if error.raw_os_error() == Some(libc::ENOTTY) { Err(error) } else { Ok(()) }
        }
        _ => Err(error),
    }
}

pub(crate) fn first(attempts: impl IntoIterator<Item = Attempt>) -> Attempt {
    let mut last = Err(Error::other("nothing tried"));
    for attempt in attempts {
        last = attempt;
        if last.is_ok() {
            break;
        }
    }
    last
}

/// Runs in a child process, because it would change this one.
pub(crate) fn in_child(attempt: impl FnOnce() -> Attempt) -> Attempt {
    let child = unsafe { libc::fork() };
    if child == 0 {
        let code = match attempt() {
            Ok(()) => 0,
            Err(error) => error.raw_os_error().unwrap_or(255).clamp(1, 255),
        };
        unsafe { libc::_exit(code) };
    }
    let mut status = 0;
    unsafe { libc::waitpid(child, &raw mut status, 0) };
    match (libc::WIFEXITED(status), libc::WEXITSTATUS(status)) {
        (true, 0) => Ok(()),
        (true, code) => Err(Error::from_raw_os_error(code)),
        (false, _) => Err(Error::other("killed by a signal")),
    }
}

/// A 32-bit call and an x32 call, which a filter that judges only numbers would confuse.
#[cfg(target_arch = "x86_64")]
fn another_architecture() -> Attempt {
    let x32 = number(unsafe { libc::syscall(0x4000_0000 | 39) }).map(drop);
    let old = in_child(|| {
        let answer: i64;
        // 20: getpid in the 32-bit table.
        unsafe { std::arch::asm!("int 0x80", inlateout("rax") 20_i64 => answer) };
        if answer > 0 { Ok(()) } else { Err(Error::from_raw_os_error(-answer as i32)) }
    });
    first([x32, old])
}

#[cfg(not(target_arch = "x86_64"))]
fn another_architecture() -> Attempt {
    Err(Error::other("there is none"))
}
