//! The leaf cgroup of launcher and broker. cgroup v2 enables controllers for children only while the cgroup itself
//! has no process ("no internal processes"), but the process that a cgroup is delegated to (`Delegate=yes`, a
//! container) is in it. So launcher and broker move into a leaf of their own, without other processes, and back when
//! the launcher exits. The limits of the outer cgroup still apply to all of them.
//!
//! **Invariant.** A cgroup with any other process in it is not touched: enabling some controllers would turn it into
//! a threaded one.

use std::fs;
use std::path::{Path, PathBuf};

use super::PREFIX;

/// Marks a leaf in its name, after the launcher's pid. The controllers that were enabled for it follow: the last
/// launcher to leave need not be the first.
const LEAF_MARK: &str = "own";

#[derive(Debug)]
pub(super) struct LeafCgroup {
    pub(super) base: PathBuf,
    dir: PathBuf,
    /// Pids of launcher and broker.
    ours: Vec<u32>,
    /// Controllers that were not enabled before.
    added: Vec<String>,
}

impl LeafCgroup {
    /// The leaf that this process was born into, because its broker has another launcher.
    pub(super) fn around(own: &Path, ours: &[u32]) -> Option<Self> {
        let mut words = own.file_name()?.to_str()?.strip_prefix(PREFIX)?.split('-');
        words.next()?.parse::<u32>().ok()?;
        words.next().filter(|word| *word == LEAF_MARK)?;
        let added = words.map(str::to_owned).collect();
        Some(Self { base: own.parent()?.to_owned(), dir: own.to_owned(), ours: ours.to_vec(), added })
    }

    /// Enables the wanted controllers that a cgroup has; moves its processes into a leaf where that is needed.
    /// Returns `None`, and changes nothing, where it is not needed or not possible.
    pub(super) fn make(base: &Path, ours: &[u32], wanted: &[&str]) -> Option<Self> {
        let (there, enabled_controllers) =
            (words(base, "cgroup.controllers"), words(base, "cgroup.subtree_control"));
        let missing: Vec<&str> = wanted
            .iter()
            .copied()
            .filter(|name| {
                there.iter().any(|one| one == name) && !enabled_controllers.iter().any(|one| one == name)
            })
            .collect();
        if missing.is_empty() {
            return None;
        }
        if !base.join("cgroup.type").exists() {
            // The root cgroup may have processes.
            let _ = switch_controllers(base, '+', &missing);
            return None;
        }
        let dir = base.join(format!("{PREFIX}{}-{LEAF_MARK}-{}", std::process::id(), missing.join("-")));
        if !holds_only(base, ours) || fs::create_dir(&dir).is_err() {
            return None;
        }
        let added = missing.iter().map(|name| (*name).to_owned()).collect();
        let leaf = Self { base: base.to_owned(), dir, ours: ours.to_vec(), added };
        if move_processes(&leaf.base, &leaf.dir) && switch_controllers(base, '+', &missing) {
            return Some(leaf);
        }
        leaf.undo();
        None
    }

    /// Restores the previous state, unless another launcher still needs it.
    pub(super) fn leave(self) {
        let others = fs::read_dir(&self.base).into_iter().flatten().filter_map(Result::ok).any(|entry| {
            let name = entry.file_name();
            name.to_str().is_some_and(|name| name.starts_with(PREFIX)) && entry.path() != self.dir
        });
        if !others && holds_only(&self.dir, &self.ours) {
            self.undo();
        }
    }

    fn undo(self) {
        switch_controllers(&self.base, '-', &self.added.iter().map(String::as_str).collect::<Vec<_>>());
        move_processes(&self.dir, &self.base);
        // If a process was started in it meanwhile it stays, until the next sweep.
        let _ = fs::remove_dir(&self.dir);
    }
}

/// Controllers enabled for the children of a cgroup.
pub(super) fn enabled_controllers(base: &Path) -> Vec<String> {
    words(base, "cgroup.subtree_control")
}

fn words(group: &Path, file: &str) -> Vec<String> {
    let text = fs::read_to_string(group.join(file)).unwrap_or_default();
    text.split_whitespace().map(str::to_owned).collect()
}

/// Enables or disables all of them, or none.
fn switch_controllers(base: &Path, sign: char, names: &[&str]) -> bool {
    let text: Vec<String> = names.iter().map(|name| format!("{sign}{name}")).collect();
    fs::write(base.join("cgroup.subtree_control"), text.join(" ")).is_ok()
}

/// Pids in a cgroup; `None` for a threaded cgroup and for processes of other pid namespaces.
fn processes(group: &Path) -> Option<Vec<u32>> {
    let text = fs::read_to_string(group.join("cgroup.procs")).ok()?;
    text.lines().map(|line| line.parse().ok().filter(|pid| *pid != 0)).collect()
}

fn holds_only(group: &Path, ours: &[u32]) -> bool {
    processes(group).is_some_and(|found| found.iter().all(|pid| ours.contains(pid)))
}

/// Moves every process from one cgroup to another.
fn move_processes(from: &Path, to: &Path) -> bool {
    let put = |pid: &u32| fs::write(to.join("cgroup.procs"), pid.to_string()).is_ok();
    processes(from).is_some_and(|found| found.iter().all(put))
}

#[cfg(test)]
mod tests {
    use std::process::{Child, Command};

    use super::*;

    /// The root cgroup, and a controller that no v1 hierarchy has: all but the threaded controllers follow the same
    /// rules.
    fn root() -> Option<(PathBuf, String)> {
        let mounts = fs::read_to_string("/proc/self/mounts").unwrap();
        let mut found = mounts.lines().map(|line| line.split(' ').collect::<Vec<_>>());
        let root = PathBuf::from(found.find(|words| words[2] == "cgroup2")?[1]);
        let ordinary = |name: &String| !["cpu", "pids", "perf_event", "cpuset"].contains(&name.as_str());
        let controller = words(&root, "cgroup.controllers").into_iter().find(ordinary)?;
        Some((root, controller))
    }

    fn start_in(group: &Path) -> Child {
        let child = Command::new("sleep").arg("1000").spawn().unwrap();
        fs::write(group.join("cgroup.procs"), child.id().to_string()).unwrap();
        child
    }

    fn check(name: &str, test: impl Fn(&Path, &str, &mut Vec<Child>)) {
        let skipped = || vambrace_skip::skip("no v2 controller that this user can enable");
        let Some((root, controller)) = root() else { return skipped() };
        // Serialises with other test processes on this machine.
        let lock = fs::File::open(&root).unwrap();
        rustix::fs::flock(&lock, rustix::fs::FlockOperation::LockExclusive).unwrap();
        let was_given = enabled_controllers(&root).contains(&controller);
        let dir = root.join(format!("leaf-test-{name}-{}", std::process::id()));
        if !switch_controllers(&root, '+', &[&controller]) || fs::create_dir(&dir).is_err() {
            return skipped();
        }
        let mut children = Vec::new();
        test(&dir, &controller, &mut children);
        for mut child in children {
            child.kill().unwrap();
            child.wait().unwrap();
        }
        // The kernel needs a moment after the last process.
        let start = std::time::Instant::now();
        while fs::remove_dir(&dir).is_err() {
            assert!(start.elapsed().as_secs() < 20, "the cgroup was not removed");
        }
        assert!(was_given || switch_controllers(&root, '-', &[&controller]));
    }

    #[test]
    fn leaf_enables_controllers_and_restores_the_cgroup() {
        check("alone", |dir, controller, children| {
            children.extend([start_in(dir), start_in(dir)]);
            let mut ours: Vec<u32> = children.iter().map(Child::id).collect();
            ours.sort_unstable();
            let leaf = LeafCgroup::make(dir, &ours, &[controller, "none-such"]).unwrap();
            assert_eq!(enabled_controllers(dir), [controller]);
            assert_eq!(processes(dir), Some(Vec::new()));
            let mut inside = processes(&leaf.dir).unwrap();
            inside.sort_unstable();
            assert_eq!(inside, ours);
            // Another launcher of the same broker finds the leaf.
            assert_eq!(LeafCgroup::around(&leaf.dir, &[]).unwrap().base, dir);
            // The cgroup of a run keeps the leaf; so does a foreign process in it.
            let run = dir.join(format!("{PREFIX}1-0"));
            fs::create_dir(&run).unwrap();
            LeafCgroup::around(&leaf.dir, &ours).unwrap().leave();
            fs::remove_dir(&run).unwrap();
            LeafCgroup::around(&leaf.dir, &ours[..1]).unwrap().leave();
            assert_eq!(enabled_controllers(dir), [controller]);
            let place = leaf.dir.clone();
            leaf.leave();
            assert_eq!(
                (enabled_controllers(dir), processes(dir).unwrap().len(), place.exists()),
                (vec![], 2, false)
            );
        });
    }

    /// A plain directory with the files of a cgroup: this machine may have only one controller.
    #[test]
    fn previously_enabled_controllers_stay_enabled() {
        let dir = tempfile::tempdir().unwrap();
        let (base, control) = (dir.path(), dir.path().join("cgroup.subtree_control"));
        for (name, text) in [("type", "domain\n"), ("controllers", "cpu memory pids\n"), ("procs", "")] {
            fs::write(base.join(format!("cgroup.{name}")), text).unwrap();
        }
        fs::write(&control, "pids\n").unwrap();
        let leaf = LeafCgroup::make(base, &[], &["memory", "pids", "cpu"]).unwrap();
        assert_eq!(fs::read_to_string(&control).unwrap(), "+memory +cpu");
        fs::write(leaf.dir.join("cgroup.procs"), "").unwrap();
        fs::write(&control, "cpu memory pids\n").unwrap();
        // Another launcher is the last to leave.
        LeafCgroup::around(&leaf.dir, &[]).unwrap().leave();
        assert_eq!(fs::read_to_string(&control).unwrap(), "-memory -cpu");
    }

    #[test]
    fn cgroup_with_a_foreign_process_is_not_touched() {
        check("shared", |dir, controller, children| {
            children.extend([start_in(dir), start_in(dir)]);
            let ours = [children[0].id()];
            assert!(LeafCgroup::make(dir, &ours, &[controller]).is_none());
            assert_eq!((enabled_controllers(dir), processes(dir).unwrap().len()), (vec![], 2));
            assert_eq!(fs::read_to_string(dir.join("cgroup.type")).unwrap(), "domain\n");
            let below = fs::read_dir(dir).unwrap().flatten().filter(|entry| entry.path().is_dir());
            assert_eq!(below.count(), 0);
            assert!(LeafCgroup::around(dir, &ours).is_none());
        });
    }
}
