//! A receipt cannot be built by hand.
use vambrace_store::{ChainPosition, StartReceipt};

fn forge(position: ChainPosition) -> StartReceipt {
    StartReceipt { call: None, position }
}

fn main() {}
