//! The corridor from its door: real files, a real store, policies as people write them.
#![expect(
    clippy::disallowed_methods,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used,
    reason = "tests make their own projects, and fail by panicking"
)]

mod asking;
mod calls;
mod changes;
mod compile_fail;
mod faults;
mod kit;
mod parts;
mod powercut;
mod races;
mod violations;
