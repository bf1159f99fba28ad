//! The redactor from outside: texts and streams in, clean ones out.
#![expect(
    clippy::string_slice,
    clippy::indexing_slicing,
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "tests cut the texts they have made, and fail by panicking"
)]

#[path = "suite/attacks.rs"]
mod attacks;
#[path = "suite/drawn.rs"]
mod drawn;
#[path = "suite/exactness.rs"]
mod exactness;
#[path = "suite/fuzz.rs"]
mod fuzz;
#[path = "suite/given.rs"]
mod given;
#[path = "suite/import.rs"]
mod import;
#[path = "suite/known.rs"]
mod known;
#[path = "suite/streams.rs"]
mod streams;
#[path = "suite/vectors.rs"]
mod vectors;
