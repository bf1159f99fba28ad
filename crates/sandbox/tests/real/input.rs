//! Standard input: its content reaches the program, and the program cannot write to or change its source.

use std::fs::File;
use std::io::{Read as _, Seek as _, Write as _};
use std::os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::UnixStream;

use libtest_mimic::Trial;
use vambrace_sandbox::{Filesystem, Input, RunOutcome, Tier};

use super::harness::{TIERS, TestProject, check_out, err, in_tier, out, sandbox, test};

pub(crate) fn trials() -> Vec<Trial> {
    vec![
        test(
            "input::terminal_is_neither_written_nor_reconfigured",
            terminal_is_neither_written_nor_reconfigured,
        ),
        test("input::socket_is_not_written", socket_is_not_written),
        test("input::file_is_neither_written_nor_changed", file_is_neither_written_nor_changed),
        test("input::named_pipe_is_not_changed", named_pipe_is_not_changed),
        test(
            "input::unread_part_of_a_file_stays_for_the_next_program",
            unread_part_of_a_file_stays_for_the_next_program,
        ),
        test("input::large_file_arrives_whole", large_file_arrives_whole),
        test("input::program_can_reopen_its_own_streams", program_can_reopen_its_own_streams),
    ]
}

#[track_caller]
fn run(fixture: &TestProject, tier: Tier, script: &str, input: &impl std::os::fd::AsFd) -> RunOutcome {
    let spec = in_tier(fixture.shell(Filesystem::Read, script), tier);
    sandbox().run(&spec, Input::From(input.as_fd()), &mut |_, _| {}).unwrap_or_else(|error| panic!("{error}"))
}

// P5: a terminal would show output that no redactor has seen, and keep the program's settings
fn terminal_is_neither_written_nor_reconfigured() {
    let fixture = TestProject::new();
    for tier in TIERS {
        let (mut ours, theirs) = pseudo_terminal();
        ours.write_all(b"typed\n").unwrap();
        let script = "read line; { printf escape >&0; stty -echo <&0; } 2>/dev/null; test -t 0 || echo $line";
        check_out(&run(&fixture, tier, script, &theirs), "typed\n");
        let mut settings: libc::termios = unsafe { std::mem::zeroed() };
        assert_eq!(unsafe { libc::tcgetattr(theirs.as_raw_fd(), &raw mut settings) }, 0);
        assert_ne!(settings.c_lflag & libc::ECHO, 0, "{tier}");
        // The test writes last: anything that the program wrote before would be seen.
        write_all(&theirs, b"end");
        let mut seen = Vec::new();
        while !seen.ends_with(b"end") {
            let mut piece = [0; 64];
            let read = ours.read(&mut piece).unwrap();
            seen.extend_from_slice(&piece[..read]);
        }
        assert_eq!(String::from_utf8_lossy(&seen), "typed\r\nend", "{tier}");
        // What is typed after the run stays in the terminal.
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
fn socket_is_not_written() {
    let fixture = TestProject::new();
    for tier in TIERS {
        let (mut ours, theirs) = UnixStream::pair().unwrap();
        ours.write_all(b"sent\n").unwrap();
        let script = "read line; echo out >&0 2>/dev/null; echo $line";
        let outcome = run(&fixture, tier, script, &theirs);
        assert_eq!(out(&outcome), "sent\n", "{tier}");
        drop(theirs);
        ours.shutdown(std::net::Shutdown::Write).unwrap();
        let mut received = String::new();
        ours.read_to_string(&mut received).unwrap();
        assert_eq!(received, "", "{tier}");
    }
}

// P4
fn file_is_neither_written_nor_changed() {
    let fixture = TestProject::new();
    let path = fixture.path("outside/file");
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o640)).unwrap();
    for tier in TIERS {
        for write in [true, false] {
            let input = File::options().read(true).write(write).open(&path).unwrap();
            let script = "read line; { echo changed >&0; echo changed >/dev/stdin; chmod 777 /proc/self/fd/0; \
                          touch -d 2001-01-01 /proc/self/fd/0; } 2>/dev/null; echo $line";
            assert_eq!(out(&run(&fixture, tier, script, &input)), "in-the-outside-file\n", "{tier}");
            assert_eq!(fixture.read("outside/file").as_deref(), Some("in-the-outside-file\n"), "{tier}");
            let facts = path.metadata().unwrap();
            assert_eq!(facts.permissions().mode() & 0o777, 0o640, "{tier}");
            assert!(facts.modified().unwrap().elapsed().unwrap().as_secs() < 3600, "{tier}");
        }
    }
}

// P4
fn named_pipe_is_not_changed() {
    let fixture = TestProject::new();
    let path = fixture.path("outside/pipe");
    rustix::fs::mkfifoat(rustix::fs::CWD, &path, rustix::fs::Mode::from_raw_mode(0o640)).unwrap();
    for tier in TIERS {
        let mut both = File::options().read(true).write(true).open(&path).unwrap();
        both.write_all(b"sent\n").unwrap();
        let input = File::open(&path).unwrap();
        let script = "read line; chmod 777 /proc/self/fd/0 2>/dev/null; echo $line";
        assert_eq!(out(&run(&fixture, tier, script, &input)), "sent\n", "{tier}");
        assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, 0o640, "{tier}");
    }
}

fn unread_part_of_a_file_stays_for_the_next_program() {
    let fixture = TestProject::new();
    fixture.write("outside/lines", "one\ntwo\nthree\n");
    let mut input = File::open(fixture.path("outside/lines")).unwrap();
    for tier in TIERS {
        let before = input.stream_position().unwrap();
        run(&fixture, tier, "dd bs=4 count=1 status=none", &input);
        assert_eq!(input.stream_position().unwrap(), before + 4, "{tier}");
    }
    let mut rest = String::new();
    input.read_to_string(&mut rest).unwrap();
    assert_eq!(rest, "three\n");
}

// Also if the program runs as another user than the creator of the pipes
fn program_can_reopen_its_own_streams() {
    let fixture = TestProject::new();
    let script = "echo one >/dev/stdout && echo two >>/proc/self/fd/1 && echo three | tee /dev/stderr && cat /dev/stdin";
    let input = File::open(fixture.path("project/plain.txt")).unwrap();
    for tier in TIERS {
        let (read, mut write) = std::io::pipe().unwrap();
        write.write_all(b"plain\n").unwrap();
        drop(write);
        for outcome in [run(&fixture, tier, script, &read), run(&fixture, tier, script, &input)] {
            assert_eq!(
                (out(&outcome).as_str(), err(&outcome).as_str()),
                ("one\ntwo\nthree\nplain\n", "three\n"),
                "{tier}"
            );
            assert_eq!(outcome.denials, [], "{tier}");
        }
        (&input).rewind().unwrap();
        // The program of root, which runs as another user, cannot write to an input pipe that others read.
        if rustix::process::geteuid().is_root() {
            let (mut read, write) = std::io::pipe().unwrap();
            run(&fixture, tier, "echo x >/dev/stdin", &read);
            drop(write);
            assert_eq!(read.read(&mut [0]).unwrap(), 0, "{tier}");
        }
    }
}

fn large_file_arrives_whole() {
    let fixture = TestProject::new();
    std::fs::write(fixture.path("outside/large"), vec![b'x'; 1 << 20]).unwrap();
    let input = File::open(fixture.path("outside/large")).unwrap();
    check_out(&run(&fixture, Tier::Full, "wc -c", &input), "1048576\n");
}
