//! The catalogue: each tool turns arguments into effects, and a started plan into a result. No tool checks a
//! policy; no tool can run without the receipt of a committed start.

mod apply_patch;
mod arguments;
mod bare;
mod catalogue;
mod change;
mod delete_file;
mod edit_file;
mod fresh;
mod instead;
mod list_files;
mod page;
mod part;
mod read_file;
mod search;
mod sections;
mod shown;
mod tool;
mod web;
mod web_fetch;
mod web_search;
mod write_file;

pub use catalogue::Catalogue;
pub use change::{files, payload, undo};
pub use part::{Part, amend};
pub use shown::shown_diff;
pub use tool::{About, Card, Changes, Limits, Output, Prepared, Room, Tool, Touched, Weight, Work};
pub use web::{Engine, SearchService, SecretSource, Web};
pub use web_search::SCOPE as SEARCH_SCOPE;
