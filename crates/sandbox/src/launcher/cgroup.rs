//! Control groups (cgroups), where they are writable: limits for memory, processes and CPU time of a whole process
//! tree, and killing it at once. Supports v1 and v2, each controller by itself, always below the cgroup that the
//! launcher was started in, so that outer limits still apply. A limit that cannot be written is reported as absent.
#![expect(clippy::disallowed_methods, reason = "cgroups are kernel files, not workspace files")]

mod leaf;

use std::fs;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::event::EventfdFlags;
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::process::Pid;

use crate::spec::RunLimits;
use crate::tier::Tier;
use leaf::LeafCgroup;

const PREFIX: &str = "vambrace-";

/// Directories below which cgroups for runs can be created.
#[derive(Debug, Default)]
pub(super) struct CgroupRoots {
    memory: Option<PathBuf>,
    processes: Option<PathBuf>,
    cpu: Option<PathBuf>,
    /// The v2 directory, and the controllers enabled for its children.
    unified: Option<(PathBuf, Controllers)>,
    /// The leaf cgroup that this process moved into for that.
    leaf: Option<LeafCgroup>,
    made: std::cell::Cell<u64>,
}

#[derive(Debug, Clone, Copy, Default)]
struct Controllers {
    memory: bool,
    processes: bool,
    cpu: bool,
}

/// The cgroups of one run.
#[derive(Debug, Default)]
pub(super) struct RunCgroup {
    memory: Option<PathBuf>,
    processes: Option<PathBuf>,
    cpu: Option<PathBuf>,
    unified: Option<(PathBuf, Controllers)>,
    /// Eventfd that is readable once memory ran out (v1, which kills one process and leaves the rest; v2 kills all).
    oom_event: Option<OwnedFd>,
    /// The limits that were written.
    limits: Option<RunLimits>,
    /// OOM kills before the current run.
    oom_kills_before: u64,
}

impl CgroupRoots {
    /// Finds the cgroups of this process and checks whether it can create children.
    pub(super) fn find() -> Self {
        let own = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
        let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
        let usable = |dir: Option<PathBuf>| dir.filter(|dir| can_create_child(dir));
        let v1 = |controller: &str| usable(cgroup_path(&own, &mounts, Some(controller)));
        let (unified, leaf) = match cgroup_path(&own, &mounts, None).and_then(unified) {
            Some((dir, controllers, leaf)) => (Some((dir, controllers)), leaf),
            None => (None, None),
        };
        let groups = Self {
            memory: v1("memory"),
            processes: v1("pids"),
            cpu: v1("cpu"),
            unified,
            leaf,
            made: std::cell::Cell::new(0),
        };
        groups.sweep();
        groups
    }

    /// Which resources can be limited, for `doctor`.
    pub(super) fn describe(&self) -> Result<String, String> {
        let unified = self.unified.as_ref().map(|(_, controllers)| *controllers).unwrap_or_default();
        let mut bounded = Vec::new();
        for (name, there) in [
            ("memory", self.memory.is_some() || unified.memory),
            ("processes", self.processes.is_some() || unified.processes),
            ("processor time", self.cpu.is_some() || unified.cpu),
        ] {
            bounded.extend(there.then_some(name));
        }
        if bounded.contains(&"memory") && bounded.contains(&"processes") {
            Ok(bounded.join(", "))
        } else if bounded.is_empty() {
            Err("no controller is usable".to_owned())
        } else {
            Err(format!("only {}", bounded.join(", ")))
        }
    }

    /// Whether any controller is v1.
    pub(super) fn uses_v1(&self) -> bool {
        self.memory.is_some() || self.processes.is_some() || self.cpu.is_some()
    }

    /// Creates the cgroups of one run; a controller that fails is left out.
    pub(super) fn make(&self, limits: &RunLimits, tier: Tier) -> RunCgroup {
        let number = self.made.get();
        self.made.set(number + 1);
        let name = format!("{PREFIX}{}-{number}", std::process::id());
        let make = |base: &Path| {
            let dir = base.join(&name);
            fs::create_dir(&dir).ok().map(|()| dir)
        };
        let made = |base: &Option<PathBuf>| base.as_deref().and_then(make);
        // Moving a process into a cgroup can wait for every CPU of the machine, so it is done only for cgroups that
        // limit something. Without a pid namespace, and without any other cgroup, v2 is still needed to kill the
        // tree.
        let alone = self.memory.is_none() && self.processes.is_none() && tier == Tier::NoUserns;
        let unified = self.unified.as_ref().filter(|(_, controllers)| {
            controllers.memory || controllers.processes || controllers.cpu || alone
        });
        let mut group = RunCgroup {
            memory: made(&self.memory),
            processes: made(&self.processes),
            cpu: made(&self.cpu),
            unified: unified.and_then(|(base, controllers)| Some((make(base)?, *controllers))),
            oom_event: None,
            limits: None,
            oom_kills_before: 0,
        };
        group.oom_event = group.memory.as_deref().and_then(|memory| oom_event(memory).ok());
        group.bound(limits);
        group
    }

    /// Removes this launcher's cgroups; those of runs are gone already.
    pub(super) fn leave(&mut self) {
        self.sweep();
        if let Some(leaf) = self.leaf.take() {
            leaf.leave();
        }
    }

    /// Removes cgroups of launchers that no longer exist.
    pub(super) fn sweep(&self) {
        let unified = self.unified.as_ref().map(|(dir, _)| dir);
        for base in
            [self.memory.as_ref(), self.processes.as_ref(), self.cpu.as_ref(), unified].into_iter().flatten()
        {
            let Ok(entries) = fs::read_dir(base) else { continue };
            for entry in entries.filter_map(Result::ok) {
                let name = entry.file_name();
                let owner = name.to_str().and_then(|name| name.strip_prefix(PREFIX)?.split('-').next());
                let Some(owner) = owner.and_then(|owner| owner.parse::<u32>().ok()) else { continue };
                if !Path::new(&format!("/proc/{owner}")).exists() {
                    // Fails, as it should, if processes are left in it.
                    let _ = fs::remove_dir(entry.path());
                }
            }
        }
    }
}

impl RunCgroup {
    /// Whether it is reused for further runs: moving a process into a v1 cgroup takes milliseconds, so a zygote stays
    /// in one and its children are born there.
    pub(super) fn is_reusable(&self) -> bool {
        self.memory.is_some() || self.processes.is_some() || self.cpu.is_some()
    }

    /// Handle of the v2 directory for `CLONE_INTO_CGROUP`.
    pub(super) fn open_for_clone(&self) -> Option<OwnedFd> {
        let (dir, _) = self.unified.as_ref()?;
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        rustix::fs::open(dir, flags, Mode::empty()).ok()
    }

    /// Resets the counters of an earlier run.
    pub(super) fn reset(&mut self) {
        self.oom_kills_before = self.oom_kills();
        if let Some(memory) = &self.memory {
            let _ = fs::write(memory.join("memory.max_usage_in_bytes"), "0");
        }
        if let Some(oom_event) = &self.oom_event {
            let _ = rustix::io::read(oom_event, &mut [0_u8; 8]);
        }
    }

    /// Writes the limits, unless they are current; a controller that does not accept its limit is dropped.
    pub(super) fn bound(&mut self, limits: &RunLimits) {
        if self.limits == Some(*limits) {
            return;
        }
        let quota = limits.cpu_percent.saturating_mul(1000);
        let takes = |dir: &Path, file: &str, value: u64| fs::write(dir.join(file), value.to_string()).is_ok();
        // The zygote is in it too.
        remove_unless(&mut self.processes, |dir| takes(dir, "pids.max", limits.processes + 1));
        remove_unless(&mut self.cpu, |dir| takes(dir, "cpu.cfs_quota_us", quota));
        remove_unless(&mut self.memory, |dir| {
            // The limit for memory plus swap must never be below the limit for memory; not every kernel accounts
            // swap.
            let swap = || takes(dir, "memory.memsw.limit_in_bytes", limits.memory);
            swap();
            let bounded = takes(dir, "memory.limit_in_bytes", limits.memory);
            swap();
            bounded
        });
        if let Some((dir, set)) = &mut self.unified {
            let write = |file: &str, value: String| fs::write(dir.join(file), value).is_ok();
            set.memory = set.memory && write("memory.max", limits.memory.to_string());
            set.processes = set.processes && write("pids.max", limits.processes.to_string());
            set.cpu = set.cpu && write("cpu.max", format!("{quota} 100000"));
            if set.memory {
                // An OOM kill takes the whole cgroup; swap would only slow it down.
                let _ = (write("memory.swap.max", "0".to_owned()), write("memory.oom.group", "1".to_owned()));
            }
        }
        self.limits = Some(*limits);
    }

    /// Moves a process into it; its later children are born in it. A controller that does not accept it is dropped.
    pub(super) fn add(&mut self, pid: Pid) {
        let pid = pid.as_raw_nonzero().to_string();
        let takes = |dir: &Path| fs::write(dir.join("cgroup.procs"), &pid).is_ok();
        remove_unless(&mut self.memory, takes);
        remove_unless(&mut self.processes, takes);
        remove_unless(&mut self.cpu, takes);
        if self.unified.as_ref().is_some_and(|(dir, _)| !takes(dir))
            && let Some((dir, _)) = self.unified.take()
        {
            let _ = fs::remove_dir(dir);
        }
    }

    pub(super) fn oom_event(&self) -> Option<&OwnedFd> {
        self.oom_event.as_ref()
    }

    pub(super) fn limits_memory(&self) -> bool {
        self.memory.is_some() || self.unified.as_ref().is_some_and(|(_, set)| set.memory)
    }

    /// Whether the kernel OOM-killed a process in it during this run.
    pub(super) fn saw_oom(&self) -> bool {
        self.oom_kills() > self.oom_kills_before
    }

    fn oom_kills(&self) -> u64 {
        let v1 = self.memory.as_ref().map(|dir| dir.join("memory.oom_control"));
        let v2 = self.unified.as_ref().map(|(dir, _)| dir.join("memory.events"));
        let counts = [v1, v2].into_iter().flatten().filter_map(|file| {
            let text = fs::read_to_string(file).ok()?;
            text.lines().find_map(|line| line.strip_prefix("oom_kill ")?.trim().parse::<u64>().ok())
        });
        counts.sum()
    }

    /// Peak memory usage in bytes.
    pub(super) fn peak_memory(&self) -> Option<u64> {
        let v1 = self.memory.as_ref().map(|dir| dir.join("memory.max_usage_in_bytes"));
        let v2 = self.unified.as_ref().map(|(dir, _)| dir.join("memory.peak"));
        [v1, v2].into_iter().flatten().find_map(|file| fs::read_to_string(file).ok()?.trim().parse().ok())
    }

    /// Kills everything in it, where the kernel can (`cgroup.kill`, v2).
    pub(super) fn kill(&self) {
        if let Some((dir, _)) = &self.unified {
            let _ = fs::write(dir.join("cgroup.kill"), "1");
        }
    }

    /// Removes it. Retries on EBUSY, because the kernel needs a moment after the last process.
    pub(super) fn remove(&mut self) {
        let unified = self.unified.take().map(|(dir, _)| dir);
        for dir in [self.memory.take(), self.processes.take(), self.cpu.take(), unified].into_iter().flatten()
        {
            for _ in 0..100 {
                match fs::remove_dir(&dir) {
                    Err(error) if error.raw_os_error() == Some(libc::EBUSY) => {
                        std::thread::sleep(std::time::Duration::from_millis(1));
                    }
                    _ => break,
                }
            }
        }
    }
}

impl Drop for RunCgroup {
    fn drop(&mut self) {
        self.remove();
    }
}

/// Path of this process's cgroup on the file system; `None` means v2.
fn cgroup_path(own: &str, mounts: &str, controller: Option<&str>) -> Option<PathBuf> {
    let path = own.lines().find_map(|line| {
        let mut fields = line.splitn(3, ':');
        let (_, names, path) = (fields.next()?, fields.next()?, fields.next()?);
        let hit = match controller {
            Some(wanted) => names.split(',').any(|name| name == wanted),
            None => names.is_empty(),
        };
        hit.then(|| path.to_owned())
    })?;
    mounts.lines().find_map(|line| {
        let (before, after) = line.split_once(" - ")?;
        let mut after = after.split(' ');
        let (kind, _, options) = (after.next()?, after.next()?, after.next()?);
        let hit = match controller {
            Some(wanted) => kind == "cgroup" && options.split(',').any(|option| option == wanted),
            None => kind == "cgroup2",
        };
        let mut before = before.split(' ').skip(3);
        let (root, point) = (before.next()?, before.next()?);
        let below = path.strip_prefix(root.trim_end_matches('/'))?;
        hit.then(|| Path::new(point).join(below.trim_start_matches('/')))
    })
}

/// Removes a cgroup directory that does not work.
fn remove_unless(dir: &mut Option<PathBuf>, works: impl FnOnce(&Path) -> bool) {
    if dir.as_deref().is_some_and(|dir| !works(dir))
        && let Some(dir) = dir.take()
    {
        let _ = fs::remove_dir(dir);
    }
}

/// An eventfd that becomes readable when memory runs out in a v1 cgroup.
fn oom_event(memory: &Path) -> Result<OwnedFd, Errno> {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC;
    let control = rustix::fs::open(memory.join("memory.oom_control"), flags, Mode::empty())?;
    let oom_event = rustix::event::eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
    let registration = format!("{} {}", oom_event.as_raw_fd(), control.as_raw_fd());
    fs::write(memory.join("cgroup.event_control"), registration)
        .map_err(|error| Errno::from_raw_os_error(error.raw_os_error().unwrap_or(libc::EIO)))?;
    Ok(oom_event)
}

fn can_create_child(dir: &Path) -> bool {
    let trial = dir.join(format!("{PREFIX}{}-trial", std::process::id()));
    fs::create_dir(&trial).is_ok() && fs::remove_dir(&trial).is_ok()
}

/// Where v2 cgroups can be created, their controllers, and the leaf that this process moved into.
fn unified(own: PathBuf) -> Option<(PathBuf, Controllers, Option<LeafCgroup>)> {
    let broker = rustix::process::getppid().map(|pid| pid.as_raw_nonzero().get().unsigned_abs());
    let ours: Vec<u32> = broker.into_iter().chain([std::process::id()]).collect();
    let around = LeafCgroup::around(&own, &ours).filter(|leaf| can_create_child(&leaf.base));
    let base = around.as_ref().map_or(own, |leaf| leaf.base.clone());
    if !can_create_child(&base) {
        return None;
    }
    let leaf = around.or_else(|| LeafCgroup::make(&base, &ours, &["memory", "pids", "cpu"]));
    let controllers = enabled_controllers(&base);
    Some((base, controllers, leaf))
}

/// Controllers that are enabled for children of this cgroup.
fn enabled_controllers(base: &Path) -> Controllers {
    let enabled_controllers = leaf::enabled_controllers(base);
    let has = |name: &str| enabled_controllers.iter().any(|one| one == name);
    Controllers { memory: has("memory"), processes: has("pids"), cpu: has("cpu") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cgroup_paths_are_found_in_v1_and_v2() {
        let own = "4:memory:/a/b\n3:cpu,cpuacct:/\n0::/user.slice/x\n";
        let mounts = "30 20 0:5 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n\
                      31 20 0:6 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu,cpuacct\n\
                      32 20 0:7 /user.slice /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n";
        let find = |controller| cgroup_path(own, mounts, controller).map(|path| path.display().to_string());
        assert_eq!(find(Some("memory")).as_deref(), Some("/sys/fs/cgroup/memory/a/b"));
        assert_eq!(find(Some("cpu")).as_deref(), Some("/sys/fs/cgroup/cpu/"));
        assert_eq!(find(Some("pids")), None);
        assert_eq!(find(None).as_deref(), Some("/sys/fs/cgroup/unified/x"));
    }

    /// A plain directory with the files of a cgroup: checks what would be written, whether or not this machine has
    /// v2.
    #[test]
    fn v2_cgroup_is_limited_read_and_killed_through_its_files() {
        let dir = tempfile::tempdir().unwrap();
        let base = dir.path();
        fs::write(base.join("cgroup.controllers"), "cpuset cpu io memory pids\n").unwrap();
        fs::write(base.join("cgroup.subtree_control"), "cpu memory pids\n").unwrap();
        let groups = CgroupRoots {
            unified: Some((base.to_owned(), enabled_controllers(base))),
            ..CgroupRoots::default()
        };
        assert_eq!(groups.describe().as_deref(), Ok("memory, processes, processor time"));
        let limits = RunLimits { memory: 1 << 20, processes: 7, cpu_percent: 150, ..RunLimits::default() };
        let mut group = groups.make(&limits, Tier::Full);
        let (own, _) = group.unified.clone().unwrap();
        let read = |name: &str| fs::read_to_string(own.join(name)).unwrap_or_default();
        let check = |name: &str, expected: &str| assert_eq!(read(name), expected, "{name}");
        check("memory.max", "1048576");
        check("memory.swap.max", "0");
        check("memory.oom.group", "1");
        check("pids.max", "7");
        check("cpu.max", "150000 100000");
        assert!(group.limits_memory() && !group.is_reusable());
        assert!(group.open_for_clone().is_some());
        group.add(rustix::process::getpid());
        check("cgroup.procs", &std::process::id().to_string());
        fs::write(own.join("memory.events"), "low 0\nmax 3\noom 1\noom_kill 0\n").unwrap();
        assert!(!group.saw_oom());
        fs::write(own.join("memory.events"), "low 0\nmax 3\noom 1\noom_kill 2\noom_group_kill 1\n").unwrap();
        assert!(group.saw_oom());
        fs::write(own.join("memory.peak"), "4096\n").unwrap();
        assert_eq!(group.peak_memory(), Some(4096));
        group.kill();
        check("cgroup.kill", "1");
    }

    /// The kernel's own v2, with the controllers it has here; with v1 beside it, there are none.
    #[test]
    fn real_v2_cgroup_kills_its_processes_and_is_removed() {
        let mut found = CgroupRoots::find();
        let Some((base, controllers)) = found.unified.clone() else {
            return vambrace_skip::skip("this user cannot create a v2 cgroup here");
        };
        if !controllers.memory || !controllers.processes {
            eprintln!("not tested: limits of memory and processes, which v2 does not have here");
        }
        let groups = CgroupRoots { unified: Some((base, controllers)), ..CgroupRoots::default() };
        let limits = RunLimits { memory: 64 << 20, processes: 7, ..RunLimits::default() };
        let mut group = groups.make(&limits, Tier::NoUserns);
        let (own, taken) = group.unified.clone().unwrap();
        if !own.join("cgroup.kill").exists() {
            return vambrace_skip::skip("this kernel has no cgroup.kill (before 5.14)");
        }
        let read = |name: &str| fs::read_to_string(own.join(name)).unwrap_or_default();
        if taken.memory {
            assert_eq!((read("memory.max").trim(), read("memory.oom.group").trim()), ("67108864", "1"));
        }
        if taken.processes {
            assert_eq!(read("pids.max").trim(), "7");
        }
        assert_eq!((group.limits_memory(), group.saw_oom()), (taken.memory, false));
        // A process that leaves its session and has a child of unknown pid.
        let script = "setsid sh -c 'sleep 1000 & echo up; wait'";
        let mut child = std::process::Command::new("sh")
            .args(["-c", &format!("read go; {script}")])
            .stdin(std::process::Stdio::piped())
            .stdout(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        group.add(Pid::from_raw(i32::try_from(child.id()).unwrap()).unwrap());
        assert!(group.open_for_clone().is_some(), "it accepted no process");
        std::io::Write::write_all(child.stdin.as_mut().unwrap(), b"go\n").unwrap();
        let mut said = [0; 3];
        std::io::Read::read_exact(child.stdout.as_mut().unwrap(), &mut said).unwrap();
        let members = read("cgroup.procs").lines().count();
        assert!(members >= 2, "{members}");
        group.kill();
        let status = child.wait().unwrap();
        assert_eq!(std::os::unix::process::ExitStatusExt::signal(&status), Some(libc::SIGKILL), "{status}");
        let start = std::time::Instant::now();
        while !read("cgroup.procs").is_empty() {
            assert!(start.elapsed().as_secs() < 20, "{:?} are left", read("cgroup.procs"));
        }
        // The kernel counts the last process for a moment after it is gone.
        while own.exists() {
            group.unified = Some((own.clone(), taken));
            group.remove();
            assert!(start.elapsed().as_secs() < 20, "the cgroup was not removed");
        }
        found.leave();
    }

    // A limit that was not accepted must not be reported.
    #[test]
    fn v2_controller_that_rejects_a_limit_is_not_reported() {
        let dir = tempfile::tempdir().unwrap();
        let base = dir.path();
        fs::write(base.join("cgroup.controllers"), "io memory\n").unwrap();
        fs::write(base.join("cgroup.subtree_control"), "io\n").unwrap();
        let (_, asked, leaf) = unified(base.to_owned()).unwrap();
        assert!(leaf.is_none());
        assert!(!asked.memory, "it was requested and is not available");
        assert_eq!(fs::read_to_string(base.join("cgroup.subtree_control")).unwrap(), "+memory");
        let all = Controllers { memory: true, processes: true, cpu: false };
        let groups = CgroupRoots { unified: Some((base.to_owned(), all)), ..CgroupRoots::default() };
        let mut group = groups.make(&RunLimits::default(), Tier::Full);
        let (own, _) = group.unified.clone().unwrap();
        fs::remove_file(own.join("memory.max")).unwrap();
        fs::create_dir(own.join("memory.max")).unwrap();
        group.bound(&RunLimits { memory: 1 << 20, ..RunLimits::default() });
        assert!(!group.limits_memory());
        assert_eq!(
            fs::read_to_string(own.join("pids.max")).unwrap(),
            RunLimits::default().processes.to_string()
        );
    }
}
