//! The binary from outside: arguments in; standard output, standard error, exit code and ledger out.
#![expect(
    clippy::disallowed_methods,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used,
    reason = "tests start the program they look at, make their own projects, and fail by panicking"
)]

mod bare;
mod calls;
mod canary;
mod changes;
mod commands;
mod completion;
mod config;
mod crash;
mod disk;
mod export;
mod git_tools;
mod governed_run;
mod home;
mod interop;
mod ledger;
mod mcp;
mod network;
mod payload;
mod redact;
mod rollback;
mod sandbox;
mod tls_termination;
mod toolchain_tools;
mod two_users;
mod watch;
mod web;
mod witness;
mod wording;
