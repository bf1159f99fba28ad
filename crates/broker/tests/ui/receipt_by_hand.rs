//! A receipt cannot be made by hand.
use vambrace_store::{Sealed, StartReceipt};

fn forge(sealed: Sealed) -> StartReceipt {
    StartReceipt { call: None, sealed }
}

fn main() {}
