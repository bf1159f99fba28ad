//! The public interface of the classifier: command lines in, classes and programs out.
#![expect(
    clippy::indexing_slicing,
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "tests index what they created, fail by panicking and print figures"
)]

#[path = "suite/bash.rs"]
mod bash;
#[path = "suite/classes.rs"]
mod classes;
#[path = "suite/programs.rs"]
mod programs;
#[path = "suite/properties.rs"]
mod properties;
#[path = "suite/vectors.rs"]
mod vectors;
