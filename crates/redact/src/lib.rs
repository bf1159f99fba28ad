//! Finds and replaces secrets in texts and streams. Each secret becomes `[REDACTED:<kind>:<8 hex>]`, where the digits
//! are a fingerprint keyed by the installation.
//!
//! Detection layers, strongest first: known values, in any usual encoding; formats that only secrets have (a token's
//! prefix, a private key); contexts (an assignment, a URL with a password, a header). Entropy counts only inside a
//! context.
//! Control flow: a hash table of four-byte groups rejects nearly every position with one lookup (`prefilter.rs`); the
//! remaining positions are compared with the anchors, and a regular expression or a parser runs only where an anchor
//! matches (`scan_pass.rs`).
//!
//! Deliberately not here: file and environment access (the caller passes both in), network access (never), and any way
//! to restore a redacted secret.

mod assignment;
mod bytes;
mod candidates;
mod classify;
mod command_line;
mod cut_edges;
mod encodings;
mod environment;
mod escape;
mod finding;
mod header;
mod known;
mod kubernetes_secret;
mod open_ended;
mod pem;
mod placeholder;
mod precheck;
mod prefilter;
mod redactor;
mod rule_error;
mod rule_import;
mod rules;
mod scan_pass;
mod scanner;
mod secret_bytes;
mod secret_names;
mod stream;
mod token_rules;
mod url;

pub use environment::{secrets_inside, secrets_of};
pub use finding::{DetectionLayer, SecretFinding};
pub use known::{KnownValue, MIN_KNOWN_VALUE_BYTES};
pub use placeholder::Fingerprint;
pub use redactor::Redactor;
pub use rule_error::RuleError;
pub use rules::RuleSet;
pub use secret_bytes::SecretBytes;
pub use stream::{HELD_BYTES, MAX_HELD_BYTES, RedactStream};
