//! Finding and replacing secrets in text and in streams. Each becomes `[REDACTED:<kind>:<8 hex>]`, where the digits are a
//! fingerprint keyed by the installation.
//!
//! Layers, strongest first: values that are known, in any usual encoding; forms that only secrets have (a token's mark, a
//! private key); contexts (an assignment, an address with a password, a header), and entropy only inside a context.
//! How it goes: a table of groups of four bytes dismisses nearly every place at one look (`grams.rs`); what remains is
//! compared with the anchors, and only there a regular expression or a parser runs (`pass.rs`).
//!
//! Deliberately not here: files, the environment (both are handed in), the network (never), and letting a secret
//! back in.

mod bytes;
mod command;
mod context;
mod cut;
mod ending;
mod environment;
mod escape;
mod fault;
mod finding;
mod forms;
mod found;
mod gate;
mod grams;
mod header;
mod import;
mod judge;
mod known;
mod live;
mod manifest;
mod names;
mod pass;
mod pem;
mod placeholder;
mod redactor;
mod rules;
mod secret;
mod stream;
mod token;
mod url;

pub use environment::{secrets_inside, secrets_of};
pub use fault::RuleFault;
pub use finding::{Finding, Layer};
pub use known::{KnownValue, LEAST_VALUE};
pub use placeholder::Print;
pub use redactor::Redactor;
pub use rules::Rules;
pub use secret::Secret;
pub use stream::{HELD, LONGEST_HELD, Stream};
