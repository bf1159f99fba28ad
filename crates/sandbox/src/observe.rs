//! Telling what was refused. Calls that are meant to change something, and starts of programs, stop at the filter and
//! wait here; what the walls would refuse anyway is refused at once and becomes an event, everything else goes on and
//! is judged by the kernel. The observer widens nothing: letting a call go on leaves every wall in its way.
//!
//! A path is read from the program's memory and looked up through its own root, so what is told is what the kernel
//! would have met a moment later. A program that changes the path in between only spoils its own report.
//!
//! Whoever serves the run waits for no file system: what the kernel cannot say from memory is looked at by a thread that may
//! hang for ever.

mod call;
mod memory;
mod place;

use std::collections::HashSet;
use std::os::fd::{AsFd as _, AsRawFd as _, BorrowedFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::{Mode, OFlags, ResolveFlags, StatVfsMountFlags};
use rustix::io::Errno;

use parking_lot::Mutex;

use crate::audit::{Heard, Right};
use crate::cell;
use crate::denial::{Certainty, Denial, Operation, Rule, Source, Told};
use crate::filter::{Walls, refuses, wants_set_id};
use crate::network::{Door, hint};
use crate::spec::Observe;
use crate::sys::notify::{self, Notice};
use crate::tier::Tier;
use crate::wire::{Order, View};
use call::Call;
pub(crate) use memory::Memory;
use place::{base_of, interpreter, is_mounted, look, name_of, open_in, where_it_leads, without_parents};

/// After so many calls of one run somebody waits for nothing else.
const MANY: u32 = 32;
/// So many processes and threads are remembered at most: programs write many files from few.
const MOST_CALLERS: usize = 16;

/// What every process has of its own under the same name.
const OWN: [&str; 6] =
    ["/proc/self", "/proc/thread-self", "/dev/fd", "/dev/stdin", "/dev/stdout", "/dev/stderr"];

/// Whoever begins a session, as every program here does, has none: the kernel has nothing to give at this name, walls or not.
const TERMINAL: &str = "/dev/tty";

/// The observer of one run.
pub(crate) struct Observer {
    listener: OwnedFd,
    tier: Tier,
    workspace: PathBuf,
    shows_workspace: bool,
    masked: HashSet<PathBuf>,
    writable: Vec<PathBuf>,
    /// What Landlock lets be read, where more than that is there.
    readable: Vec<PathBuf>,
    /// Whether looking is asked about too.
    all: bool,
    /// Places, and whether they can be written: lexically below one that can, and in no other below it, a write goes
    /// on without a closer look. The kernel judges it anyway.
    places: Vec<(Vec<u8>, bool)>,
    door: Option<Arc<dyn Door>>,
    /// Those who asked last, until somebody starts a program.
    callers: Vec<Caller>,
    /// The path that is asked about.
    text: Vec<u8>,
    answered: u32,
    /// Whether nobody waits for us but who asks.
    alone: bool,
    /// Waits until we are alone.
    put_off: Option<Notice>,
    told: Arc<Mutex<Told>>,
}

/// Who asked before.
struct Caller {
    pid: u32,
    memory: Memory,
    /// Its working folder, until anybody changes one: threads share theirs. Only used to let a call go on: who is judged
    /// wrongly by an old one is judged by the kernel.
    stands: Option<Vec<u8>>,
}

/// What the observer says to a call.
enum Say {
    GoOn,
    /// It goes on; the kernel will refuse it.
    Tell(Denial),
    /// It is refused here.
    Refuse(Denial),
    /// It fails here as it would without walls.
    Fail(Errno),
    /// It takes a look that may take long.
    Later,
}

impl Observer {
    pub(crate) fn new(listener: OwnedFd, order: &Order) -> Self {
        notify::hand_over_directly(listener.as_fd());
        let path = |bytes: &[u8]| PathBuf::from(std::ffi::OsStr::from_bytes(bytes));
        let workspace = path(&order.workspace);
        let all = order.observe == Observe::All;
        let mut places: Vec<(Vec<u8>, bool)> = order.write.iter().map(|path| (path.clone(), true)).collect();
        places.push((b"/dev/null".to_vec(), true));
        if order.tier != Tier::NoUserns {
            // Not the home folder: what the user's has and this one has not is told.
            places.extend([b"/tmp".to_vec(), b"/dev/shm".to_vec()].map(|path| (path, true)));
            places.push((order.home.clone(), false));
            places.push((order.workspace.clone(), matches!(order.view, View::Fresh | View::Layered)));
            places.extend(order.read.iter().chain(&order.toolchains).map(|path| (path.clone(), false)));
        }
        let mut writable: Vec<PathBuf> = order.write.iter().map(|bytes| path(bytes)).collect();
        writable.extend(["/dev/null", "/dev/zero", "/dev/full"].map(PathBuf::from));
        Self {
            listener,
            tier: order.tier,
            masked: masked(order),
            workspace,
            shows_workspace: matches!(order.view, View::Read | View::Layered),
            writable,
            readable: Vec::new(),
            all,
            places,
            door: None,
            callers: Vec::new(),
            text: Vec::new(),
            answered: 0,
            alone: false,
            put_off: None,
            told: Arc::default(),
        }
    }

    /// With somebody who answers for the network.
    pub(crate) fn at(mut self, door: Option<Arc<dyn Door>>) -> Self {
        self.door = door;
        self
    }

    pub(crate) fn listener(&self) -> BorrowedFd<'_> {
        self.listener.as_fd()
    }

    /// What is told, also by a thread of its own.
    pub(crate) fn told(&self) -> Arc<Mutex<Told>> {
        Arc::clone(&self.told)
    }

    /// Whether somebody should wait for nothing else: the program asks often, or for what may take long.
    pub(crate) fn is_busy(&self) -> bool {
        self.answered >= MANY || self.put_off.is_some()
    }

    /// Where nobody can be found who does nothing else: it goes on, and nobody knows what for.
    pub(crate) fn let_go(&mut self) {
        if let Some(notice) = self.put_off.take() {
            self.told.lock().miss();
            let _ = notify::go_on(self.listener.as_fd(), notice.id);
        }
    }

    /// Answers until nobody is left who could ask. A call that finds its answerer asleep in this very place is handed
    /// over without a detour, which is half of what an observed call costs.
    pub(crate) fn answer_all(mut self) {
        self.alone = true;
        if let Some(notice) = self.put_off.take() {
            self.answer(&notice);
        }
        loop {
            match notify::receive(self.listener.as_fd()) {
                Ok(notice) => self.answer(&notice),
                Err(Errno::INTR) => {}
                // Its caller died meanwhile, or there is none any more.
                Err(Errno::NOENT) if notify::has_callers(self.listener.as_fd()) => {}
                Err(_) => return,
            }
        }
    }

    /// Answers one call that waits. Many programs never ask: what is only needed then is made with the first.
    pub(crate) fn answer_next(&mut self, order: &Order) {
        if self.readable.is_empty() && !self.opens_what_is_there() {
            self.readable = cell::readable(order);
        }
        if let Ok(notice) = notify::receive(self.listener.as_fd()) {
            self.answered += 1;
            self.answer(&notice);
        }
    }

    fn answer(&mut self, notice: &Notice) {
        if let Some(door) =
            self.door.as_ref().filter(|_| libc::c_long::from(notice.number) == libc::SYS_connect)
        {
            return hint::answer(self.listener.as_fd(), notice, door.as_ref());
        }
        let said = self.judge(notice);
        if matches!(libc::c_long::from(notice.number), libc::SYS_execve | libc::SYS_execveat) {
            // A program of its own has a memory of its own; the one before may live on in whoever shared it.
            self.callers.clear();
        }
        if matches!(said, Say::Later) {
            self.put_off = Some(*notice);
            return;
        }
        let listener = self.listener.as_fd();
        // Told before it is answered: the caller may end at once, and the run with it. One that died meanwhile needs no
        // answer.
        let _ = match said {
            Say::GoOn | Say::Later => notify::go_on(listener, notice.id),
            Say::Tell(denial) => {
                if notify::still_waits(listener, notice.id) {
                    self.told.lock().add(denial);
                }
                notify::go_on(listener, notice.id)
            }
            Say::Refuse(denial) => {
                self.told.lock().add(denial);
                notify::refuse(listener, notice.id, Errno::PERM)
            }
            Say::Fail(errno) => notify::refuse(listener, notice.id, errno),
        };
    }

    fn judge(&mut self, notice: &Notice) -> Say {
        let number = libc::c_long::from(notice.number);
        if matches!(number, libc::SYS_chdir | libc::SYS_fchdir) {
            self.callers.iter_mut().for_each(|caller| caller.stands = None);
            if number == libc::SYS_fchdir || !self.all {
                return Say::GoOn;
            }
        }
        let walls = if self.tier == Tier::NoUserns { Walls::LandlockOnly } else { Walls::Namespaces };
        let set_id = wants_set_id(number, &notice.arguments);
        let call = Call::of(number, notice).filter(|_| !refuses(number, walls) && !set_id);
        let Some(call) = call else {
            return Say::Refuse(Denial {
                operation: Operation::Call,
                path: {
                    let bit = if set_id { " with a set-id bit" } else { "" };
                    PathBuf::from(call::name(number, &notice.arguments) + bit)
                },
                rule: Rule::Filter,
                right: None,
                source: Source::Observer,
                certainty: Certainty::Refused,
            });
        };
        let mut verdict = Say::GoOn;
        for (operation, folder, address) in call.paths.iter().flatten() {
            let said = self.judge_path(notice.pid, *folder, *address, *operation).unwrap_or_else(|errno| {
                // One that died meanwhile is refused nothing, nor is one that names no path.
                let blind = matches!(errno, Errno::ACCESS | Errno::PERM);
                if blind && notify::still_waits(self.listener.as_fd(), notice.id) {
                    self.told.lock().miss();
                }
                Say::GoOn
            });
            match (said, &verdict) {
                (Say::GoOn, _) => {}
                (Say::Tell(denial) | Say::Refuse(denial), _)
                    if call::opens(number) && denial.path == Path::new(TERMINAL) =>
                {
                    return Say::Fail(Errno::NXIO);
                }
                (said @ (Say::Tell(_) | Say::Refuse(_)), Say::GoOn) => verdict = said,
                // What moves needs both ends.
                (Say::Tell(denial) | Say::Refuse(denial), _) => self.told.lock().add(denial),
                (other, _) => return other,
            }
        }
        verdict
    }

    /// An error where it cannot be known what the call is about.
    fn judge_path(
        &mut self,
        pid: u32,
        folder: i32,
        address: u64,
        operation: Operation,
    ) -> Result<Say, Errno> {
        let at = self.hear(pid, address)?;
        if self.text.is_empty() {
            // No name, for which the kernel has an error of its own, or what is open already.
            return Ok(Say::GoOn);
        }
        let changes = operation.changes();
        // Who wants to know everything waits for a closer look.
        let quick = changes && !self.all;
        let absolute = self.text.starts_with(b"/");
        if quick && absolute && self.plainly_open(&self.text) {
            return Ok(Say::GoOn);
        }
        let here = folder == libc::AT_FDCWD && !absolute;
        if quick
            && here
            && let Some(stands) = self.callers.get(at).and_then(|caller| caller.stands.as_deref())
            && self.plainly_open(&[stands, b"/".as_slice(), &self.text].concat())
        {
            return Ok(Say::GoOn);
        }
        let base = base_of(pid, folder, absolute)?;
        let path = base.join(std::ffi::OsStr::from_bytes(&self.text));
        if here && let Some(caller) = self.callers.get_mut(at) {
            caller.stands = Some(base.into_os_string().into_vec());
        }
        let plainly_open = quick && self.plainly_open(path.as_os_str().as_bytes());
        // What is a process's own means another thing to whoever looks.
        if plainly_open || OWN.iter().any(|own| path.starts_with(own)) {
            return Ok(Say::GoOn);
        }
        let root = rustix::fs::open(
            format!("/proc/{pid}/root"),
            OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC,
            Mode::empty(),
        )?;
        if !self.alone {
            let harmless = !changes && self.nothing_to_tell(&root, &path);
            return Ok(if harmless { Say::GoOn } else { Say::Later });
        }
        self.told.lock().looking(true);
        let said = match changes {
            true => self.judge_change(&root, path, operation),
            false => self.judge_look(&root, path, operation),
        };
        self.told.lock().looking(false);
        Ok(said)
    }

    /// Whether there is nothing to tell of a look, as far as that is known without waiting for any disk or machine.
    fn nothing_to_tell(&self, root: &OwnedFd, path: &Path) -> bool {
        // The root of a mount may be asked after elsewhere even where its name is known.
        let near = ResolveFlags::CACHED | ResolveFlags::NO_XDEV;
        let known = if self.tier == Tier::NoUserns { near } else { ResolveFlags::CACHED };
        let nowhere = |found: Result<OwnedFd, Errno>| matches!(found, Err(Errno::NOENT));
        match open_in(root, path, OFlags::empty(), known) {
            Ok(found) => {
                let shown = name_of(&found).is_some_and(|real| !is_masked(&self.masked, &real));
                shown && (self.opens_what_is_there() || self.may_read(&found))
            }
            Err(Errno::NOENT) => {
                let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
                let outside = || rustix::fs::openat2(rustix::fs::CWD, path, flags, Mode::empty(), near);
                nowhere(open_in(root, path, OFlags::NOFOLLOW, known)) && nowhere(outside())
            }
            Err(_) => false,
        }
    }

    /// Reads what a caller asks about, and gives where it stands among those who asked.
    fn hear(&mut self, pid: u32, address: u64) -> Result<usize, Errno> {
        let known = self.callers.iter().enumerate().find(|(_, caller)| caller.pid == pid);
        if let Some((at, caller)) = known {
            if caller.memory.read_text(address, &mut self.text).is_ok() {
                return Ok(at);
            }
            // That memory is gone, and whoever has the number now is another.
            self.callers.swap_remove(at);
        }
        let memory = Memory::of(pid)?;
        memory.read_text(address, &mut self.text)?;
        if self.callers.len() >= MOST_CALLERS {
            self.callers.clear();
        }
        self.callers.push(Caller { pid, memory, stands: None });
        Ok(self.callers.len() - 1)
    }

    fn plainly_open(&self, path: &[u8]) -> bool {
        let below = |place: &[u8]| {
            path.strip_prefix(place).is_some_and(|rest| rest.is_empty() || rest.starts_with(b"/"))
        };
        let around = self.places.iter().filter(|(place, _)| below(place));
        !path.split(|byte| *byte == b'/').any(|part| part == b"..")
            && around.max_by_key(|(place, _)| place.len()).is_some_and(|(_, open)| *open)
    }

    fn judge_change(&self, root: &OwnedFd, path: PathBuf, operation: Operation) -> Say {
        let path = match operation {
            Operation::Write => where_it_leads(root, path),
            // The link itself goes.
            _ => path,
        };
        // The thing itself, or the folder that it would be made in. What is granted by its name stays there, and so do the
        // mounts in a workspace, for which there is no grant.
        let folder = path.parent().unwrap_or_else(|| Path::new("/"));
        let itself = !operation.changes_folder() || path.starts_with(&self.workspace);
        let follow = if operation.changes_folder() { OFlags::NOFOLLOW } else { OFlags::empty() };
        let there = match itself {
            true => open_in(root, &path, follow, ResolveFlags::empty()),
            false => Err(Errno::NOENT),
        };
        let Ok(found) = there.or_else(|_| look(root, folder)) else {
            let there = self.is_hidden(&path) || self.is_hidden(folder);
            return if there { seen(operation, path, Rule::NotShown) } else { Say::GoOn };
        };
        let rule = if self.tier == Tier::NoUserns {
            let Some(real) = name_of(&found) else { return Say::GoOn };
            if self.writable.iter().any(|granted| real.starts_with(granted)) {
                return Say::GoOn;
            }
            Rule::NotGranted
        } else {
            match rustix::fs::fstatvfs(&found) {
                Ok(facts) if facts.f_flag.contains(StatVfsMountFlags::RDONLY) => Rule::ReadOnly,
                // A folder to move into, of which there is only the one that is not shown.
                _ if path.as_os_str().as_bytes().ends_with(b"/")
                    && look(root, &path).is_err()
                    && self.is_hidden(&path) =>
                {
                    let moved = operation == Operation::MoveTo;
                    return if moved { seen(operation, path, Rule::NotShown) } else { Say::GoOn };
                }
                // What is granted by its own name stays where it is.
                _ if !itself && is_mounted(root, &path) => return seen(operation, path, Rule::NotGranted),
                _ => {
                    // The program made the folder meanwhile.
                    self.told.lock().forget(&path, Rule::NotShown);
                    return Say::GoOn;
                }
            }
        };
        let certainty = Certainty::Refused;
        Say::Refuse(Denial { operation, path, rule, right: None, source: Source::Observer, certainty })
    }

    /// What is not there inside and is there outside was not found because it is not shown. What is there may still not
    /// be opened.
    fn judge_look(&self, root: &OwnedFd, path: PathBuf, operation: Operation) -> Say {
        let path = without_parents(&where_it_leads(root, path));
        let found = look(root, &path);
        if operation == Operation::Execute && self.all {
            self.judge_interpreter(root, &path, found.as_ref().ok());
        }
        let rule = if is_masked(&self.masked, &path) {
            Rule::Masked
        } else if let Ok(found) = &found {
            if operation == Operation::Look || self.opens_what_is_there() || self.may_read(found) {
                return Say::GoOn;
            }
            Rule::NotGranted
        } else if self.is_hidden(&path) {
            Rule::NotShown
        } else {
            return Say::GoOn;
        };
        seen(operation, path, rule)
    }

    /// A script is started by another program, for which nobody asks.
    fn judge_interpreter(&self, root: &OwnedFd, script: &Path, found: Option<&OwnedFd>) {
        let script = match found {
            Some(found) => PathBuf::from(format!("/proc/self/fd/{}", found.as_raw_fd())),
            None if self.is_hidden(script) => script.to_owned(),
            None => return,
        };
        let Some(interpreter) = interpreter(&script) else { return };
        // One that is a script again is not named by what it needs.
        let path = without_parents(&where_it_leads(root, interpreter));
        let rule = match look(root, &path) {
            Ok(found) if !self.may_read(&found) => Rule::NotGranted,
            Err(_) if self.is_hidden(&path) => Rule::NotShown,
            _ => return,
        };
        if let Say::Tell(denial) = seen(Operation::Execute, path, rule) {
            self.told.lock().add(denial);
        }
    }

    /// Whether something that is not there inside is there outside.
    fn is_hidden(&self, path: &Path) -> bool {
        self.tier != Tier::NoUserns
            && !(self.shows_workspace && path.starts_with(&self.workspace))
            && path.symlink_metadata().is_ok()
    }

    /// Whether programs are only asked about that start, and whatever is there may: the mounts show no other.
    fn opens_what_is_there(&self) -> bool {
        !self.all && self.tier != Tier::NoUserns
    }

    /// By its one name. What belongs to processes is told by nobody: whose it is changes.
    fn may_read(&self, found: &OwnedFd) -> bool {
        let Some(real) = name_of(found).filter(|real| real.is_absolute()) else { return true };
        let own = real
            .strip_prefix("/proc")
            .is_ok_and(|below| below.as_os_str().as_bytes().first().is_some_and(u8::is_ascii_digit));
        own || self.readable.iter().any(|granted| real.starts_with(granted))
    }
}

/// It goes on, and what comes of it is known.
fn seen(operation: Operation, path: PathBuf, rule: Rule) -> Say {
    let certainty = Certainty::Seen;
    Say::Tell(Denial { operation, path, rule, right: None, source: Source::Observer, certainty })
}

fn masked(order: &Order) -> HashSet<PathBuf> {
    let path = |bytes: &[u8]| PathBuf::from(std::ffi::OsStr::from_bytes(bytes));
    let workspace = path(&order.workspace);
    let masks = order.masks.iter().map(|mask| workspace.join(path(&mask.path)));
    masks.chain(order.blank.iter().map(|bytes| path(bytes))).collect()
}

fn is_masked(masked: &HashSet<PathBuf>, path: &Path) -> bool {
    path.ancestors().any(|above| masked.contains(above))
}

/// What the kernel says that Landlock refused, with the rule that we know for it.
pub(crate) fn refused_by_landlock(heard: Heard, order: &Order) -> Vec<Denial> {
    let masked = if heard.found.is_empty() { HashSet::new() } else { masked(order) };
    let denial = |(right, path): (&'static Right, PathBuf)| Denial {
        operation: right.operation,
        rule: if is_masked(&masked, &path) { Rule::Masked } else { Rule::NotGranted },
        path,
        right: Some(right.name),
        source: Source::Landlock,
        certainty: Certainty::Refused,
    };
    heard.found.into_iter().filter(|(_, path)| path != Path::new(TERMINAL)).map(denial).collect()
}
