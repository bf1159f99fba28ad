//! The path of a call
