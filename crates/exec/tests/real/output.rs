//! The output of a program on its way to the caller.

use std::ops::ControlFlow;

use libtest_mimic::Trial;
use vambrace_exec::{Inherited, PreparedRun, RunIo, SecretSource};
use vambrace_redact::{KnownValue, SecretBytes};
use vambrace_sandbox::{Exit, Filesystem, Input, OutputStream};

use super::harness::{SECRET, TestProject, redactor, sandbox, test};

pub(crate) fn trials() -> Vec<Trial> {
    vec![test("output_is_redacted_and_a_closed_stream_ends_the_program", output_is_redacted)]
}

struct Unused;

impl SecretSource for Unused {
    fn value(&self, _: &str) -> Option<SecretBytes> {
        None
    }
    fn file(&self, _: &str) -> Option<std::path::PathBuf> {
        None
    }
    fn all(&self) -> Vec<KnownValue> {
        Vec::new()
    }
}

fn output_is_redacted() {
    let project = TestProject::new();
    let state = tempfile::tempdir().unwrap();
    let (sandbox, redactor) = (sandbox(state.path()), redactor());
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let inherited = Inherited { path: Vec::new(), ..Inherited::of_this_process() };
    let run = |script: &str, sink: &mut dyn FnMut(OutputStream, &[u8]) -> ControlFlow<()>| {
        let request = project.request(Filesystem::Read, script);
        let (settings, fence) = (&project.settings, &project.fence);
        let places = sandbox.places();
        let handle = runtime.handle();
        let prepared =
            PreparedRun::new(&request, settings, fence, &inherited, places, &Unused, handle).unwrap();
        let io = RunIo { input: Input::Nothing, output: Some(sink), redactor: &redactor, stop: None };
        prepared.run(&sandbox, io).unwrap()
    };
    let (mut out, mut err) = (Vec::new(), Vec::new());
    let (begin, end) = SECRET.split_at(9);
    let script = format!("printf {begin}; sleep 0.1; echo {end}; echo {SECRET} >&2; echo plain");
    let report = run(&script, &mut |stream, bytes| {
        match stream {
            OutputStream::Out => out.extend_from_slice(bytes),
            OutputStream::Err => err.extend_from_slice(bytes),
        }
        ControlFlow::Continue(())
    });
    for text in [&out, &err] {
        let text = String::from_utf8_lossy(text);
        assert!(!text.contains(SECRET) && text.contains("[REDACTED:"), "{text}");
    }
    assert!(String::from_utf8_lossy(&out).ends_with("\nplain\n"));
    let text = report.text(OutputStream::Out, &redactor).unwrap();
    assert!(!text.contains(SECRET) && text.contains("[REDACTED:"), "{text}");
    let report = run("exec yes", &mut |_, _| ControlFlow::Break(()));
    assert_eq!(report.outcome.exit, Exit::Signal(13));
}
