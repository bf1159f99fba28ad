//! The public interface of the redactor: texts and streams in, redacted ones out.
#![expect(
    clippy::string_slice,
    clippy::indexing_slicing,
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "tests slice strings that they created, and fail by panicking"
)]

#[path = "suite/attacks.rs"]
mod attacks;
#[path = "suite/exactness.rs"]
mod exactness;
#[path = "suite/fixtures.rs"]
mod fixtures;
#[path = "suite/fuzz.rs"]
mod fuzz;
#[path = "suite/import.rs"]
mod import;
#[path = "suite/known.rs"]
mod known;
#[path = "suite/positions.rs"]
mod positions;
#[path = "suite/random_values.rs"]
mod random_values;
#[path = "suite/streams.rs"]
mod streams;
#[path = "suite/vectors.rs"]
mod vectors;
