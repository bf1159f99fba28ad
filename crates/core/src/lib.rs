//! Vocabulary and policy decisions of Vambrace. No I/O, no clock, no randomness: the same input gives the same
//! verdict, so everything here can be tested with tables and properties.

pub mod blocked_paths;
pub mod change;
pub mod clock;
pub mod config;
pub mod diff;
pub mod digest;
pub mod effect;
pub mod error;
pub mod explain;
pub mod fence;
pub mod git_repository;
pub mod glob;
pub mod id;
pub mod network;
pub mod path;
pub mod plan;
pub mod policy;
pub mod principal;
pub mod quote;
pub mod redacted;
pub mod risk;
pub mod role;
pub mod rule;
pub mod session;
pub mod settle;
pub mod skill;
pub mod suggest;
pub mod terminal_escape;
pub mod timestamp;
pub mod tool;
pub mod verdict;
pub mod voucher;

pub use error::{CallError, ErrorCode};
