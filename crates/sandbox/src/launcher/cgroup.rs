//! Control groups, where they can be written: memory, processes and processor time of a whole tree, and ending it at
//! once. Both versions, each controller by itself, always below the group that the launcher was started in, so a bound
//! from above stays a bound. Plain files; where one cannot be written, the run says that it has no such bound.
#![expect(clippy::disallowed_methods, reason = "control groups are files of the kernel, not of a workspace")]

mod leaf;

use std::fs;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::event::EventfdFlags;
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::process::Pid;

use crate::spec::Limits;
use crate::tier::Tier;
use leaf::Leaf;

const PREFIX: &str = "vambrace-";

/// The places below which groups can be made.
#[derive(Debug, Default)]
pub(super) struct Groups {
    memory: Option<PathBuf>,
    processes: Option<PathBuf>,
    cpu: Option<PathBuf>,
    /// Version 2 with the controllers that it gives to groups below.
    unified: Option<(PathBuf, Controllers)>,
    /// Where this process is for that.
    leaf: Option<Leaf>,
    made: std::cell::Cell<u64>,
}

#[derive(Debug, Clone, Copy, Default)]
struct Controllers {
    memory: bool,
    processes: bool,
    cpu: bool,
}

/// The groups of one run.
#[derive(Debug, Default)]
pub(super) struct Group {
    memory: Option<PathBuf>,
    processes: Option<PathBuf>,
    cpu: Option<PathBuf>,
    unified: Option<(PathBuf, Controllers)>,
    /// Readable once memory ran out (version 1, which ends one process and leaves the rest; version 2 ends all).
    alarm: Option<OwnedFd>,
    /// The bounds that were written.
    limits: Option<Limits>,
    /// How often memory had run out before the present run.
    ooms_before: u64,
}

impl Groups {
    /// Looks at what this process is in and tries to make a group below.
    pub(super) fn find() -> Self {
        let own = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
        let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
        let usable = |folder: Option<PathBuf>| folder.filter(|folder| can_make(folder));
        let v1 = |controller: &str| usable(place(&own, &mounts, Some(controller)));
        let (unified, leaf) = match place(&own, &mounts, None).and_then(unified) {
            Some((folder, controllers, leaf)) => (Some((folder, controllers)), leaf),
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

    /// What can be bounded, for people.
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
            Err("no controller can be used".to_owned())
        } else {
            Err(format!("only {}", bounded.join(", ")))
        }
    }

    /// Whether some of them are of version 1.
    pub(super) fn are_old(&self) -> bool {
        self.memory.is_some() || self.processes.is_some() || self.cpu.is_some()
    }

    /// A group for one run; every part that cannot be made is left out.
    pub(super) fn make(&self, limits: &Limits, tier: Tier) -> Group {
        let number = self.made.get();
        self.made.set(number + 1);
        let name = format!("{PREFIX}{}-{number}", std::process::id());
        let make = |base: &Path| {
            let folder = base.join(&name);
            fs::create_dir(&folder).ok().map(|()| folder)
        };
        let made = |base: &Option<PathBuf>| base.as_deref().and_then(make);
        // Moving a process into a group can wait for every processor of the machine, so only for groups that bound
        // something. Without a pid namespace, and without any other group, version 2 is still what ends the tree.
        let alone = self.memory.is_none() && self.processes.is_none() && tier == Tier::NoUserns;
        let unified = self.unified.as_ref().filter(|(_, controllers)| {
            controllers.memory || controllers.processes || controllers.cpu || alone
        });
        let mut group = Group {
            memory: made(&self.memory),
            processes: made(&self.processes),
            cpu: made(&self.cpu),
            unified: unified.and_then(|(base, controllers)| Some((make(base)?, *controllers))),
            alarm: None,
            limits: None,
            ooms_before: 0,
        };
        group.alarm = group.memory.as_deref().and_then(|memory| alarm(memory).ok());
        group.bound(limits);
        group
    }

    /// Removes what was made for this launcher; every group of a run is gone.
    pub(super) fn leave(&mut self) {
        self.sweep();
        if let Some(leaf) = self.leaf.take() {
            leaf.leave();
        }
    }

    /// Removes groups of launchers that are gone.
    pub(super) fn sweep(&self) {
        let unified = self.unified.as_ref().map(|(folder, _)| folder);
        for base in
            [self.memory.as_ref(), self.processes.as_ref(), self.cpu.as_ref(), unified].into_iter().flatten()
        {
            let Ok(entries) = fs::read_dir(base) else { continue };
            for entry in entries.filter_map(Result::ok) {
                let name = entry.file_name();
                let owner = name.to_str().and_then(|name| name.strip_prefix(PREFIX)?.split('-').next());
                let Some(owner) = owner.and_then(|owner| owner.parse::<u32>().ok()) else { continue };
                if !Path::new(&format!("/proc/{owner}")).exists() {
                    // One that still has processes stays.
                    let _ = fs::remove_dir(entry.path());
                }
            }
        }
    }
}

impl Group {
    /// Whether it is used again for another run: to move a process into a group of version 1 takes milliseconds, so a
    /// stage stays in one and what it makes is born there.
    pub(super) fn lasts(&self) -> bool {
        self.memory.is_some() || self.processes.is_some() || self.cpu.is_some()
    }

    /// The folder of version 2 that a process can be born into.
    pub(super) fn birthplace(&self) -> Option<OwnedFd> {
        let (folder, _) = self.unified.as_ref()?;
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        rustix::fs::open(folder, flags, Mode::empty()).ok()
    }

    /// Forgets what an earlier run did in it.
    pub(super) fn begin_anew(&mut self) {
        self.ooms_before = self.ooms();
        if let Some(memory) = &self.memory {
            let _ = fs::write(memory.join("memory.max_usage_in_bytes"), "0");
        }
        if let Some(alarm) = &self.alarm {
            let _ = rustix::io::read(alarm, &mut [0_u8; 8]);
        }
    }

    /// Writes the bounds, unless they are written already; a part that does not take its bound is given up.
    pub(super) fn bound(&mut self, limits: &Limits) {
        if self.limits == Some(*limits) {
            return;
        }
        let quota = limits.cpu_percent.saturating_mul(1000);
        let takes =
            |folder: &Path, file: &str, value: u64| fs::write(folder.join(file), value.to_string()).is_ok();
        // The stage is in there too.
        give_up_unless(&mut self.processes, |folder| takes(folder, "pids.max", limits.processes + 1));
        give_up_unless(&mut self.cpu, |folder| takes(folder, "cpu.cfs_quota_us", quota));
        give_up_unless(&mut self.memory, |folder| {
            // Memory and swap together must not be less than memory, before and after; not every kernel counts swap.
            let swap = || takes(folder, "memory.memsw.limit_in_bytes", limits.memory);
            swap();
            let bounded = takes(folder, "memory.limit_in_bytes", limits.memory);
            swap();
            bounded
        });
        if let Some((folder, set)) = &mut self.unified {
            let write = |file: &str, value: String| fs::write(folder.join(file), value).is_ok();
            set.memory = set.memory && write("memory.max", limits.memory.to_string());
            set.processes = set.processes && write("pids.max", limits.processes.to_string());
            set.cpu = set.cpu && write("cpu.max", format!("{quota} 100000"));
            if set.memory {
                // One ended for want of memory ends all; swap would only make it slower.
                let _ = (write("memory.swap.max", "0".to_owned()), write("memory.oom.group", "1".to_owned()));
            }
        }
        self.limits = Some(*limits);
    }

    /// Puts a process into it; what it starts later is in it too. A part that does not take it bounds nothing.
    pub(super) fn add(&mut self, pid: Pid) {
        let pid = pid.as_raw_nonzero().to_string();
        let takes = |folder: &Path| fs::write(folder.join("cgroup.procs"), &pid).is_ok();
        give_up_unless(&mut self.memory, takes);
        give_up_unless(&mut self.processes, takes);
        give_up_unless(&mut self.cpu, takes);
        if self.unified.as_ref().is_some_and(|(folder, _)| !takes(folder))
            && let Some((folder, _)) = self.unified.take()
        {
            let _ = fs::remove_dir(folder);
        }
    }

    pub(super) fn alarm(&self) -> Option<&OwnedFd> {
        self.alarm.as_ref()
    }

    pub(super) fn limits_memory(&self) -> bool {
        self.memory.is_some() || self.unified.as_ref().is_some_and(|(_, set)| set.memory)
    }

    /// Whether the kernel ended something in here for want of memory.
    pub(super) fn saw_oom(&self) -> bool {
        self.ooms() > self.ooms_before
    }

    fn ooms(&self) -> u64 {
        let v1 = self.memory.as_ref().map(|folder| folder.join("memory.oom_control"));
        let v2 = self.unified.as_ref().map(|(folder, _)| folder.join("memory.events"));
        let counts = [v1, v2].into_iter().flatten().filter_map(|file| {
            let text = fs::read_to_string(file).ok()?;
            text.lines().find_map(|line| line.strip_prefix("oom_kill ")?.trim().parse::<u64>().ok())
        });
        counts.sum()
    }

    /// The most memory that was used, in bytes.
    pub(super) fn peak_memory(&self) -> Option<u64> {
        let v1 = self.memory.as_ref().map(|folder| folder.join("memory.max_usage_in_bytes"));
        let v2 = self.unified.as_ref().map(|(folder, _)| folder.join("memory.peak"));
        [v1, v2].into_iter().flatten().find_map(|file| fs::read_to_string(file).ok()?.trim().parse().ok())
    }

    /// Ends everything in it, where the kernel can do that at once.
    pub(super) fn kill(&self) {
        if let Some((folder, _)) = &self.unified {
            let _ = fs::write(folder.join("cgroup.kill"), "1");
        }
    }

    /// Removes it; the kernel needs a moment for the last process.
    pub(super) fn remove(&mut self) {
        let unified = self.unified.take().map(|(folder, _)| folder);
        for folder in
            [self.memory.take(), self.processes.take(), self.cpu.take(), unified].into_iter().flatten()
        {
            for _ in 0..100 {
                match fs::remove_dir(&folder) {
                    Err(error) if error.raw_os_error() == Some(libc::EBUSY) => {
                        std::thread::sleep(std::time::Duration::from_millis(1));
                    }
                    _ => break,
                }
            }
        }
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        self.remove();
    }
}

/// Where the group of this process lies on the file system; `None` asks for version 2.
fn place(own: &str, mounts: &str, controller: Option<&str>) -> Option<PathBuf> {
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

/// Removes a folder that does not do what it is there for.
fn give_up_unless(folder: &mut Option<PathBuf>, works: impl FnOnce(&Path) -> bool) {
    if folder.as_deref().is_some_and(|folder| !works(folder))
        && let Some(folder) = folder.take()
    {
        let _ = fs::remove_dir(folder);
    }
}

/// A descriptor that becomes readable when memory runs out in a group.
fn alarm(memory: &Path) -> Result<OwnedFd, Errno> {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC;
    let control = rustix::fs::open(memory.join("memory.oom_control"), flags, Mode::empty())?;
    let alarm = rustix::event::eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
    let wish = format!("{} {}", alarm.as_raw_fd(), control.as_raw_fd());
    fs::write(memory.join("cgroup.event_control"), wish)
        .map_err(|error| Errno::from_raw_os_error(error.raw_os_error().unwrap_or(libc::EIO)))?;
    Ok(alarm)
}

fn can_make(folder: &Path) -> bool {
    let trial = folder.join(format!("{PREFIX}{}-trial", std::process::id()));
    fs::create_dir(&trial).is_ok() && fs::remove_dir(&trial).is_ok()
}

/// Where groups of version 2 can be made, with what they get, and the leaf that this process then is in.
fn unified(own: PathBuf) -> Option<(PathBuf, Controllers, Option<Leaf>)> {
    let broker = rustix::process::getppid().map(|pid| pid.as_raw_nonzero().get().unsigned_abs());
    let ours: Vec<u32> = broker.into_iter().chain([std::process::id()]).collect();
    let around = Leaf::around(&own, &ours).filter(|leaf| can_make(&leaf.base));
    let base = around.as_ref().map_or(own, |leaf| leaf.base.clone());
    if !can_make(&base) {
        return None;
    }
    let leaf = around.or_else(|| Leaf::make(&base, &ours, &["memory", "pids", "cpu"]));
    let controllers = given(&base);
    Some((base, controllers, leaf))
}

/// Which controllers groups below this one have.
fn given(base: &Path) -> Controllers {
    let given = leaf::given(base);
    let has = |name: &str| given.iter().any(|one| one == name);
    Controllers { memory: has("memory"), processes: has("pids"), cpu: has("cpu") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_found_in_both_versions() {
        let own = "4:memory:/a/b\n3:cpu,cpuacct:/\n0::/user.slice/x\n";
        let mounts = "30 20 0:5 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n\
                      31 20 0:6 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu,cpuacct\n\
                      32 20 0:7 /user.slice /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n";
        let find = |controller| place(own, mounts, controller).map(|path| path.display().to_string());
        assert_eq!(find(Some("memory")).as_deref(), Some("/sys/fs/cgroup/memory/a/b"));
        assert_eq!(find(Some("cpu")).as_deref(), Some("/sys/fs/cgroup/cpu/"));
        assert_eq!(find(Some("pids")), None);
        assert_eq!(find(None).as_deref(), Some("/sys/fs/cgroup/unified/x"));
    }

    /// A folder with the files of a group: what would be written, whether or not this machine has version 2.
    #[test]
    fn a_group_of_version_2_is_bounded_counted_and_ended_by_its_files() {
        let folder = tempfile::tempdir().unwrap();
        let base = folder.path();
        fs::write(base.join("cgroup.controllers"), "cpuset cpu io memory pids\n").unwrap();
        fs::write(base.join("cgroup.subtree_control"), "cpu memory pids\n").unwrap();
        let groups = Groups { unified: Some((base.to_owned(), given(base))), ..Groups::default() };
        assert_eq!(groups.describe().as_deref(), Ok("memory, processes, processor time"));
        let limits = Limits { memory: 1 << 20, processes: 7, cpu_percent: 150, ..Limits::default() };
        let mut group = groups.make(&limits, Tier::Full);
        let (own, _) = group.unified.clone().unwrap();
        let read = |name: &str| fs::read_to_string(own.join(name)).unwrap_or_default();
        let check = |name: &str, expected: &str| assert_eq!(read(name), expected, "{name}");
        check("memory.max", "1048576");
        check("memory.swap.max", "0");
        check("memory.oom.group", "1");
        check("pids.max", "7");
        check("cpu.max", "150000 100000");
        assert!(group.limits_memory() && !group.lasts());
        assert!(group.birthplace().is_some());
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

    /// The kernel's own version 2, with whatever controllers it has there; on a machine with version 1 beside it, none.
    #[test]
    fn a_real_group_of_version_2_takes_ends_and_forgets_what_is_in_it() {
        let mut found = Groups::find();
        let Some((base, controllers)) = found.unified.clone() else {
            return eprintln!("skipped: this user can make no group of version 2 here");
        };
        if !controllers.memory || !controllers.processes {
            eprintln!("not tried: bounds of memory and processes, which version 2 does not have here");
        }
        let groups = Groups { unified: Some((base, controllers)), ..Groups::default() };
        let limits = Limits { memory: 64 << 20, processes: 7, ..Limits::default() };
        let mut group = groups.make(&limits, Tier::NoUserns);
        let (own, taken) = group.unified.clone().unwrap();
        if !own.join("cgroup.kill").exists() {
            return eprintln!("skipped: this kernel ends no group at once (before 5.14)");
        }
        let read = |name: &str| fs::read_to_string(own.join(name)).unwrap_or_default();
        if taken.memory {
            assert_eq!((read("memory.max").trim(), read("memory.oom.group").trim()), ("67108864", "1"));
        }
        if taken.processes {
            assert_eq!(read("pids.max").trim(), "7");
        }
        assert_eq!((group.limits_memory(), group.saw_oom()), (taken.memory, false));
        // One that leaves its session and has a child of its own, which nobody knows the number of.
        let script = "setsid sh -c 'sleep 1000 & echo up; wait'";
        let mut child = std::process::Command::new("sh")
            .args(["-c", &format!("read go; {script}")])
            .stdin(std::process::Stdio::piped())
            .stdout(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        group.add(Pid::from_raw(i32::try_from(child.id()).unwrap()).unwrap());
        assert!(group.birthplace().is_some(), "it took no process");
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
            assert!(start.elapsed().as_secs() < 20, "{:?} is left", read("cgroup.procs"));
        }
        // The last one is counted for a moment after it is gone.
        while own.exists() {
            group.unified = Some((own.clone(), taken));
            group.remove();
            assert!(start.elapsed().as_secs() < 20, "the group is left");
        }
        found.leave();
    }

    // A bound that is not taken is not claimed.
    #[test]
    fn a_controller_of_version_2_that_takes_no_bound_is_not_counted_on() {
        let folder = tempfile::tempdir().unwrap();
        let base = folder.path();
        fs::write(base.join("cgroup.controllers"), "io memory\n").unwrap();
        fs::write(base.join("cgroup.subtree_control"), "io\n").unwrap();
        let (_, asked, leaf) = unified(base.to_owned()).unwrap();
        assert!(leaf.is_none());
        assert!(!asked.memory, "it was asked for, and is not there");
        assert_eq!(fs::read_to_string(base.join("cgroup.subtree_control")).unwrap(), "+memory");
        let all = Controllers { memory: true, processes: true, cpu: false };
        let groups = Groups { unified: Some((base.to_owned(), all)), ..Groups::default() };
        let mut group = groups.make(&Limits::default(), Tier::Full);
        let (own, _) = group.unified.clone().unwrap();
        fs::remove_file(own.join("memory.max")).unwrap();
        fs::create_dir(own.join("memory.max")).unwrap();
        group.bound(&Limits { memory: 1 << 20, ..Limits::default() });
        assert!(!group.limits_memory());
        assert_eq!(
            fs::read_to_string(own.join("pids.max")).unwrap(),
            Limits::default().processes.to_string()
        );
    }
}
