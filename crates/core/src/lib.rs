//! Vocabulary and decisions of Vambrace. No input or output, no clock, no randomness: the same input gives
//! the same verdict, so everything here can be tested as a table or a property.

pub mod block;
pub mod change;
pub mod clock;
pub mod config;
pub mod diff;
pub mod digest;
pub mod effect;
pub mod error;
pub mod explain;
pub mod fence;
pub mod glob;
pub mod id;
pub mod near;
pub mod network;
pub mod path;
pub mod plan;
pub mod policy;
pub mod principal;
pub mod quote;
pub mod redacted;
pub mod repository;
pub mod risk;
pub mod role;
pub mod rule;
pub mod session;
pub mod settle;
pub mod skill;
pub mod timestamp;
pub mod tool;
pub mod verdict;
pub mod voucher;

pub use error::{CallError, ErrorCode};
