//! What must not compile: performing without a committed start, and making by hand what only one step may make.

// T1: what does the work cannot be reached but through the corridor
#[test]
fn nothing_is_performed_without_a_committed_start() {
    trybuild::TestCases::new().compile_fail("tests/ui/*.rs");
}
