//! The catalogue: each tool turns arguments into effects, and a started plan into a result. No tool checks a
//! policy; no tool can run without the receipt of a committed start.

mod apply_patch;
mod arguments;
mod catalogue;
mod change;
mod delete_file;
mod edit_file;
mod fresh;
mod key_lines;
mod list_files;
mod read_file;
mod search;
mod tool;
mod value_lines;
mod write_file;

pub use catalogue::Catalogue;
pub use change::{Part, amend, payload, undo};
pub use tool::{About, Card, Changes, Limits, Output, Prepared, Room, Tool, Touched, Weight, Work};
