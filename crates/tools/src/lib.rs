//! The catalogue: each tool turns arguments into effects, and a started plan into a result. No tool checks a
//! policy; no tool can run without the receipt of a committed start.

mod arguments;
mod catalogue;
mod list_files;
mod read_file;
mod search;
mod tool;

pub use catalogue::Catalogue;
pub use tool::{About, Card, Limits, Output, Prepared, Room, Tool, Touched, Weight, Work};
