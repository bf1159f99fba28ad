//! Probes that start programs in indirect ways, which must not leave the sandbox.

use std::ffi::CString;
use std::fs::{self, File};
use std::io::{Error, Write as _};
use std::os::fd::AsRawFd as _;
use std::process::Command;

use super::probes::{Attempt, Probe, call, room, scratch};

/// Probes by name.
pub(crate) const INDIRECT_PROBES: &[Probe] = &[
    // Set-user-id programs give no privilege.
    ("set_user_id_program", || {
        let own = Command::new("./set-id").arg("-u").output();
        let said = own.or_else(|_| Command::new("su").args(["-c", "id -u"]).output())?;
        let root = String::from_utf8_lossy(&said.stdout).trim() == "0";
        if root { Ok(()) } else { Err(Error::other("no gain")) }
    }),
    // Statistics of a file system outside.
    ("space_outside", || {
        let path = CString::new(room("outside").display().to_string())?;
        let mut facts: libc::statfs = unsafe { std::mem::zeroed() };
        call(unsafe { libc::statfs(path.as_ptr(), &raw mut facts) })
    }),
    // A program without a name is confined the same way.
    ("program_in_memory_reads_outside", || {
        let memory = unsafe { libc::memfd_create(c"cat".as_ptr(), 0) };
        if memory < 0 {
            return Err(Error::last_os_error());
        }
        let mut copy = unsafe { <File as std::os::fd::FromRawFd>::from_raw_fd(memory) };
        copy.write_all(&fs::read("/bin/cat")?)?;
        let path = format!("/proc/self/fd/{}", copy.as_raw_fd());
        shows_the_outside(Command::new(path).arg(room("outside/file")))
    }),
    // The loader as the program, and a preloaded library.
    ("loader_starts_a_program", || {
        let loader = ["/lib64/ld-linux-x86-64.so.2", "/lib/ld-linux-aarch64.so.1"];
        let loader = loader.into_iter().find(|path| fs::exists(path).unwrap_or(false));
        let loader = loader.ok_or_else(|| Error::other("there is none"))?;
        shows_the_outside(Command::new(loader).arg("/bin/cat").arg(room("outside/file")))
    }),
    ("library_before_all_others", || {
        let mut command = Command::new("/bin/cat");
        let outside = room("outside/file");
        // The loader opens it itself, before the program's first instruction.
        command.env("LD_PRELOAD", &outside).env("LD_DEBUG", "files").arg(outside);
        shows_the_outside(&mut command)
    }),
    ("loader_variable_of_the_broker", || {
        let arrived = std::env::vars_os().any(|(name, _)| name.to_string_lossy().starts_with("LD_"));
        if arrived { Ok(()) } else { Err(Error::other("not passed on")) }
    }),
];

/// Runs separately, because it takes long. A symlink that is swapped while it is followed must not lead outside.
pub(crate) fn swapped_link(tries: usize) -> Attempt {
    let (link, plain) = (scratch("swapped"), scratch("plain"));
    fs::write(&plain, "plain")?;
    let outside = room("outside/file");
    let stop = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for round in 0_usize.. {
                if stop.load(std::sync::atomic::Ordering::Relaxed) {
                    return;
                }
                let made = scratch("next");
                let target = if round % 2 == 0 { &plain } else { &outside };
                let _ = std::os::unix::fs::symlink(target, &made);
                let _ = fs::rename(&made, &link);
            }
        });
        let reached = (0..tries).any(|_| fs::read(&link).is_ok_and(|found| found != b"plain"));
        stop.store(true, std::sync::atomic::Ordering::Relaxed);
        if reached { Ok(()) } else { Err(Error::other("never")) }
    })
}

fn shows_the_outside(command: &mut Command) -> Attempt {
    let said = command.output()?;
    let reached = String::from_utf8_lossy(&said.stdout).contains("outside");
    if reached { Ok(()) } else { Err(Error::other(String::from_utf8_lossy(&said.stderr).trim().to_owned())) }
}
