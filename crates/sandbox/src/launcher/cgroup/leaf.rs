//! Version 2 gives the controllers of a group to those below only while no process is in the group itself, and whoever is
//! delegated one (`Delegate=yes`, a container) is in it. So launcher and broker move into a leaf of their own, where
//! nobody else is beside them, and back when the launcher ends. The bounds of the group stay above all of them.
//!
//! **Invariant.** A group with anybody else in it is not touched: some controllers would be given, and turn it into
//! one for threads.

use std::fs;
use std::path::{Path, PathBuf};

use super::PREFIX;

/// What the names of leaves have after the launcher's number. Then follow the controllers that were switched on for it: the last
/// launcher to leave need not be the first.
const MARK: &str = "own";

#[derive(Debug)]
pub(super) struct Leaf {
    pub(super) base: PathBuf,
    folder: PathBuf,
    /// Who is in it besides strangers.
    ours: Vec<u32>,
    /// The controllers that nobody below had before.
    added: Vec<String>,
}

impl Leaf {
    /// The one that this process was born into, because its broker has another launcher.
    pub(super) fn around(own: &Path, ours: &[u32]) -> Option<Self> {
        let mut words = own.file_name()?.to_str()?.strip_prefix(PREFIX)?.split('-');
        words.next()?.parse::<u32>().ok()?;
        words.next().filter(|word| *word == MARK)?;
        let added = words.map(str::to_owned).collect();
        Some(Self { base: own.parent()?.to_owned(), folder: own.to_owned(), ours: ours.to_vec(), added })
    }

    /// Has a group give the controllers that are wanted and that it has; into a leaf for those who are in it, where that
    /// is needed. Nothing where it is not, or cannot be done: then nothing has changed.
    pub(super) fn make(base: &Path, ours: &[u32], wanted: &[&str]) -> Option<Self> {
        let (there, given) = (words(base, "cgroup.controllers"), words(base, "cgroup.subtree_control"));
        let missing: Vec<&str> = wanted
            .iter()
            .copied()
            .filter(|name| there.iter().any(|one| one == name) && !given.iter().any(|one| one == name))
            .collect();
        if missing.is_empty() {
            return None;
        }
        if !base.join("cgroup.type").exists() {
            // The root of the machine's groups may have processes.
            let _ = switch(base, '+', &missing);
            return None;
        }
        let folder = base.join(format!("{PREFIX}{}-{MARK}-{}", std::process::id(), missing.join("-")));
        if !holds_only(base, ours) || fs::create_dir(&folder).is_err() {
            return None;
        }
        let added = missing.iter().map(|name| (*name).to_owned()).collect();
        let leaf = Self { base: base.to_owned(), folder, ours: ours.to_vec(), added };
        if moved(&leaf.base, &leaf.folder) && switch(base, '+', &missing) {
            return Some(leaf);
        }
        leaf.undo();
        None
    }

    /// Everything as it was, unless somebody still needs it.
    pub(super) fn leave(self) {
        let others = fs::read_dir(&self.base).into_iter().flatten().filter_map(Result::ok).any(|entry| {
            let name = entry.file_name();
            name.to_str().is_some_and(|name| name.starts_with(PREFIX)) && entry.path() != self.folder
        });
        if !others && holds_only(&self.folder, &self.ours) {
            self.undo();
        }
    }

    fn undo(self) {
        switch(&self.base, '-', &self.added.iter().map(String::as_str).collect::<Vec<_>>());
        moved(&self.folder, &self.base);
        // One that somebody was started in meanwhile stays, until it is swept.
        let _ = fs::remove_dir(&self.folder);
    }
}

/// Every controller that a group gives to those below.
pub(super) fn given(base: &Path) -> Vec<String> {
    words(base, "cgroup.subtree_control")
}

fn words(group: &Path, file: &str) -> Vec<String> {
    let text = fs::read_to_string(group.join(file)).unwrap_or_default();
    text.split_whitespace().map(str::to_owned).collect()
}

/// All of them or none.
fn switch(base: &Path, sign: char, names: &[&str]) -> bool {
    let text: Vec<String> = names.iter().map(|name| format!("{sign}{name}")).collect();
    fs::write(base.join("cgroup.subtree_control"), text.join(" ")).is_ok()
}

/// Processes of a group; of one for threads, and of other pid namespaces, it cannot be told.
fn processes(group: &Path) -> Option<Vec<u32>> {
    let text = fs::read_to_string(group.join("cgroup.procs")).ok()?;
    text.lines().map(|line| line.parse().ok().filter(|pid| *pid != 0)).collect()
}

fn holds_only(group: &Path, ours: &[u32]) -> bool {
    processes(group).is_some_and(|found| found.iter().all(|pid| ours.contains(pid)))
}

/// Moves everybody from one group to another.
fn moved(from: &Path, to: &Path) -> bool {
    let put = |pid: &u32| fs::write(to.join("cgroup.procs"), pid.to_string()).is_ok();
    processes(from).is_some_and(|found| found.iter().all(put))
}

#[cfg(test)]
mod tests {
    use std::process::{Child, Command};

    use super::*;

    /// The root of the groups, and a controller that no hierarchy of version 1 has: the rules are the same for all but those
    /// for threads.
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
        let skipped = || println!("skipped: no controller of version 2 that this user can give");
        let Some((root, controller)) = root() else { return skipped() };
        // Others who test this on the same machine wait.
        let lock = fs::File::open(&root).unwrap();
        rustix::fs::flock(&lock, rustix::fs::FlockOperation::LockExclusive).unwrap();
        let was_given = given(&root).contains(&controller);
        let folder = root.join(format!("leaf-test-{name}-{}", std::process::id()));
        if !switch(&root, '+', &[&controller]) || fs::create_dir(&folder).is_err() {
            return skipped();
        }
        let mut children = Vec::new();
        test(&folder, &controller, &mut children);
        for mut child in children {
            child.kill().unwrap();
            child.wait().unwrap();
        }
        // The kernel needs a moment for the last one.
        let start = std::time::Instant::now();
        while fs::remove_dir(&folder).is_err() {
            assert!(start.elapsed().as_secs() < 20, "the group is left");
        }
        assert!(was_given || switch(&root, '-', &[&controller]));
    }

    #[test]
    fn who_is_alone_in_a_group_gets_its_controllers_and_leaves_it_as_it_was() {
        check("alone", |folder, controller, children| {
            children.extend([start_in(folder), start_in(folder)]);
            let mut ours: Vec<u32> = children.iter().map(Child::id).collect();
            ours.sort_unstable();
            let leaf = Leaf::make(folder, &ours, &[controller, "none-such"]).unwrap();
            assert_eq!(given(folder), [controller]);
            assert_eq!(processes(folder), Some(Vec::new()));
            let mut inside = processes(&leaf.folder).unwrap();
            inside.sort_unstable();
            assert_eq!(inside, ours);
            // Another launcher of the same broker finds it.
            assert_eq!(Leaf::around(&leaf.folder, &[]).unwrap().base, folder);
            // A run's group keeps it; so does somebody else in it.
            let run = folder.join(format!("{PREFIX}1-0"));
            fs::create_dir(&run).unwrap();
            Leaf::around(&leaf.folder, &ours).unwrap().leave();
            fs::remove_dir(&run).unwrap();
            Leaf::around(&leaf.folder, &ours[..1]).unwrap().leave();
            assert_eq!(given(folder), [controller]);
            let place = leaf.folder.clone();
            leaf.leave();
            assert_eq!((given(folder), processes(folder).unwrap().len(), place.exists()), (vec![], 2, false));
        });
    }

    /// A folder with the files of a group: this machine may have one controller only.
    #[test]
    fn what_was_given_before_is_given_after() {
        let folder = tempfile::tempdir().unwrap();
        let (base, control) = (folder.path(), folder.path().join("cgroup.subtree_control"));
        for (name, text) in [("type", "domain\n"), ("controllers", "cpu memory pids\n"), ("procs", "")] {
            fs::write(base.join(format!("cgroup.{name}")), text).unwrap();
        }
        fs::write(&control, "pids\n").unwrap();
        let leaf = Leaf::make(base, &[], &["memory", "pids", "cpu"]).unwrap();
        assert_eq!(fs::read_to_string(&control).unwrap(), "+memory +cpu");
        fs::write(leaf.folder.join("cgroup.procs"), "").unwrap();
        fs::write(&control, "cpu memory pids\n").unwrap();
        // Another launcher is the last.
        Leaf::around(&leaf.folder, &[]).unwrap().leave();
        assert_eq!(fs::read_to_string(&control).unwrap(), "-memory -cpu");
    }

    #[test]
    fn a_group_with_somebody_else_in_it_is_not_touched() {
        check("shared", |folder, controller, children| {
            children.extend([start_in(folder), start_in(folder)]);
            let ours = [children[0].id()];
            assert!(Leaf::make(folder, &ours, &[controller]).is_none());
            assert_eq!((given(folder), processes(folder).unwrap().len()), (vec![], 2));
            assert_eq!(fs::read_to_string(folder.join("cgroup.type")).unwrap(), "domain\n");
            let below = fs::read_dir(folder).unwrap().flatten().filter(|entry| entry.path().is_dir());
            assert_eq!(below.count(), 0);
            assert!(Leaf::around(folder, &ours).is_none());
        });
    }
}
