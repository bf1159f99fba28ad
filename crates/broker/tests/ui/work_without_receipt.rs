//! Work wants the receipt of a start; a permit is not enough.
use vambrace_core::settle::Permit;
use vambrace_tools::{Prepared, Room};

fn run(prepared: Prepared, room: &Room, permit: &Permit) {
    let _ = prepared.work.run(room, permit.fence(), permit);
}

fn main() {}
