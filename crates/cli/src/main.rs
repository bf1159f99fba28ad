//! The `vambrace` binary.
fn main() {}
