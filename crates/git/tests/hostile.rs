//! Hostile repositories and the real git. Each vector is shown twice: plain git starts the program that the repository names,
//! and the invocations of this crate do not, and still do their work. Every version of git in the search path is tested.
#![allow(
    clippy::disallowed_methods,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "tests make files, start programs and fail loudly"
)]

mod hostile {
    mod documentation;
    mod lab;
    mod operations;
    mod other_content;
    mod push_settings;
    mod syntax;
    mod trace;
    mod vectors;
    mod vectors_filters;
    mod vectors_hooks;
    mod vectors_programs;
    mod vectors_remote;
}
