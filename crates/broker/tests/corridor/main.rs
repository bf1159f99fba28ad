//! The corridor from its door: real files, a real store, policies as people write them.
#![expect(clippy::disallowed_methods, reason = "tests make their own projects")]

mod calls;
mod compile_fail;
mod faults;
mod kit;
mod violations;
