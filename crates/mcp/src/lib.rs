//! The MCP server, for clients of both protocol revisions. [`McpServer`] is one connection: the tool list, calls, approval
//! forms, progress, cancellation. It knows no transport; [`serve_stdio`] runs it on standard input and output.
//!
//! Every call goes through the broker's pipeline. Not here: opening projects and configuration (`vambrace-host`), decisions.

mod elicitation;
mod progress;
mod server;
mod tool_list;
mod transport;

pub use server::McpServer;
pub use transport::{ServeError, serve_stdio};
