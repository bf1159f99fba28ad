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
mod config;
mod crash;
mod disk;
mod export;
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
mod watch;
mod web;
mod witness;
mod wording;
