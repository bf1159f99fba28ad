//! Whole-program tests: the binary from the outside.
