//! Standard input: what comes from it reaches the program, and nothing of the program's reaches where it comes from.

use std::fs::File;
use std::io::{Read as _, Seek as _, Write as _};
use std::os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::UnixStream;

use libtest_mimic::Trial;
use vambrace_sandbox::{Filesystem, Input, Outcome, Tier};

use super::kit::{Room, TIERS, check_out, err, in_tier, out, sandbox, test};

pub(crate) fn trials() -> Vec<Trial> {
    vec![
        test("input::a_terminal_is_neither_written_to_nor_set", terminal),
        test("input::a_socket_is_not_written_to", socket),
        test("input::a_file_is_neither_written_to_nor_changed", file),
        test("input::a_pipe_with_a_name_is_not_changed", named_pipe),
        test("input::what_a_program_did_not_read_of_a_file_is_there_for_the_next", the_rest),
        test("input::a_large_file_comes_whole", large),
        test("input::a_program_opens_its_own_streams_by_their_names", own_streams),
    ]
}

#[track_caller]
fn run(room: &Room, tier: Tier, script: &str, input: &impl std::os::fd::AsFd) -> Outcome {
    let spec = in_tier(room.shell(Filesystem::Read, script), tier);
    sandbox().run(&spec, Input::From(input.as_fd()), &mut |_, _| {}).unwrap_or_else(|fault| panic!("{fault}"))
}

// P5: a terminal would show what no redactor has seen, and stay as the program left it
fn terminal() {
    let room = Room::new();
    for tier in TIERS {
        let (mut ours, theirs) = pseudo_terminal();
        ours.write_all(b"typed\n").unwrap();
        let script = "read line; { printf escape >&0; stty -echo <&0; } 2>/dev/null; test -t 0 || echo $line";
        check_out(&run(&room, tier, script, &theirs), "typed\n");
        let mut settings: libc::termios = unsafe { std::mem::zeroed() };
        assert_eq!(unsafe { libc::tcgetattr(theirs.as_raw_fd(), &raw mut settings) }, 0);
        assert_ne!(settings.c_lflag & libc::ECHO, 0, "{tier}");
        // What is shown last is ours: whatever came before it would be seen.
        write_all(&theirs, b"end");
        let mut seen = Vec::new();
        while !seen.ends_with(b"end") {
            let mut piece = [0; 64];
            let read = ours.read(&mut piece).unwrap();
            seen.extend_from_slice(&piece[..read]);
        }
        assert_eq!(String::from_utf8_lossy(&seen), "typed\r\nend", "{tier}");
        // What is typed after the run is nobody's but the terminal's.
        ours.write_all(b"next\n").unwrap();
        let mut ready = [rustix::event::PollFd::new(&theirs, rustix::event::PollFlags::IN)];
        let bound = rustix::event::Timespec { tv_sec: 20, tv_nsec: 0 };
        assert_eq!(rustix::event::poll(&mut ready, Some(&bound)), Ok(1), "{tier}");
        let mut next = [0; 64];
        let read = rustix::io::read(&theirs, &mut next).unwrap();
        assert_eq!(&next[..read], b"next\n", "{tier}");
    }
}

fn write_all(handle: &OwnedFd, bytes: &[u8]) {
    assert_eq!(rustix::io::write(handle, bytes), Ok(bytes.len()));
}

fn pseudo_terminal() -> (File, OwnedFd) {
    let (mut ours, mut theirs) = (-1, -1);
    let null = std::ptr::null_mut();
    let made =
        unsafe { libc::openpty(&raw mut ours, &raw mut theirs, null, std::ptr::null(), std::ptr::null()) };
    assert_eq!(made, 0, "{}", std::io::Error::last_os_error());
    unsafe { (File::from_raw_fd(ours), OwnedFd::from_raw_fd(theirs)) }
}

// T12: with no network nothing leaves
fn socket() {
    let room = Room::new();
    for tier in TIERS {
        let (mut ours, theirs) = UnixStream::pair().unwrap();
        ours.write_all(b"sent\n").unwrap();
        let script = "read line; echo out >&0 2>/dev/null; echo $line";
        let outcome = run(&room, tier, script, &theirs);
        assert_eq!(out(&outcome), "sent\n", "{tier}");
        drop(theirs);
        ours.shutdown(std::net::Shutdown::Write).unwrap();
        let mut heard = String::new();
        ours.read_to_string(&mut heard).unwrap();
        assert_eq!(heard, "", "{tier}");
    }
}

fn file() {
    let room = Room::new();
    let path = room.path("outside/file");
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o640)).unwrap();
    for tier in TIERS {
        for write in [true, false] {
            let input = File::options().read(true).write(write).open(&path).unwrap();
            let script = "read line; { echo changed >&0; echo changed >/dev/stdin; chmod 777 /proc/self/fd/0; \
                          touch -d 2001-01-01 /proc/self/fd/0; } 2>/dev/null; echo $line";
            assert_eq!(out(&run(&room, tier, script, &input)), "in-the-outside-file\n", "{tier}");
            assert_eq!(room.read("outside/file").as_deref(), Some("in-the-outside-file\n"), "{tier}");
            let facts = path.metadata().unwrap();
            assert_eq!(facts.permissions().mode() & 0o777, 0o640, "{tier}");
            assert!(facts.modified().unwrap().elapsed().unwrap().as_secs() < 3600, "{tier}");
        }
    }
}

fn named_pipe() {
    let room = Room::new();
    let path = room.path("outside/pipe");
    rustix::fs::mkfifoat(rustix::fs::CWD, &path, rustix::fs::Mode::from_raw_mode(0o640)).unwrap();
    for tier in TIERS {
        let mut both = File::options().read(true).write(true).open(&path).unwrap();
        both.write_all(b"sent\n").unwrap();
        let input = File::open(&path).unwrap();
        let script = "read line; chmod 777 /proc/self/fd/0 2>/dev/null; echo $line";
        assert_eq!(out(&run(&room, tier, script, &input)), "sent\n", "{tier}");
        assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, 0o640, "{tier}");
    }
}

fn the_rest() {
    let room = Room::new();
    room.write("outside/lines", "one\ntwo\nthree\n");
    let mut input = File::open(room.path("outside/lines")).unwrap();
    for tier in TIERS {
        let before = input.stream_position().unwrap();
        run(&room, tier, "dd bs=4 count=1 status=none", &input);
        assert_eq!(input.stream_position().unwrap(), before + 4, "{tier}");
    }
    let mut rest = String::new();
    input.read_to_string(&mut rest).unwrap();
    assert_eq!(rest, "three\n");
}

// 6.4: also where the program is another user than whoever made the pipes
fn own_streams() {
    let room = Room::new();
    let script = "echo one >/dev/stdout && echo two >>/proc/self/fd/1 && echo three | tee /dev/stderr && cat /dev/stdin";
    let input = File::open(room.path("project/plain.txt")).unwrap();
    for tier in TIERS {
        let (read, mut write) = std::io::pipe().unwrap();
        write.write_all(b"plain\n").unwrap();
        drop(write);
        for outcome in [run(&room, tier, script, &read), run(&room, tier, script, &input)] {
            assert_eq!(
                (out(&outcome).as_str(), err(&outcome).as_str()),
                ("one\ntwo\nthree\nplain\n", "three\n"),
                "{tier}"
            );
            assert_eq!(outcome.denials, [], "{tier}");
        }
        (&input).rewind().unwrap();
        // And writes into none that somebody else may read on, where it is not the owner's own user.
        if rustix::process::geteuid().is_root() {
            let (mut read, write) = std::io::pipe().unwrap();
            run(&room, tier, "echo x >/dev/stdin", &read);
            drop(write);
            assert_eq!(read.read(&mut [0]).unwrap(), 0, "{tier}");
        }
    }
}

fn large() {
    let room = Room::new();
    std::fs::write(room.path("outside/large"), vec![b'x'; 1 << 20]).unwrap();
    let input = File::open(room.path("outside/large")).unwrap();
    check_out(&run(&room, Tier::Full, "wc -c", &input), "1048576\n");
}
