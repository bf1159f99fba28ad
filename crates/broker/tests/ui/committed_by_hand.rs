//! `Committed` proves a commit and cannot be built by hand.
use vambrace_store::Committed;

fn forge() -> Committed {
    Committed::new(Vec::new(), true, None)
}

fn main() {}
