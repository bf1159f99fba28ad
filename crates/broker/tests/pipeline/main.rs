//! The pipeline from its entry point: real files, a real store, policies as people write them.
#![expect(
    clippy::disallowed_methods,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used,
    reason = "tests make their own projects, and fail by panicking"
)]

mod amendments;
mod approvals;
mod calls;
mod changes;
mod compile_fail;
mod completion;
mod faults;
mod fixtures;
mod masking;
mod power_cut;
mod races;
mod violations;
