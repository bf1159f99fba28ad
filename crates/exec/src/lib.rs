//! A governed run of a program: a request, the settings and the decided fence become a sandbox [`Spec`], an egress gate,
//! redacted output and an outcome; what the program changed becomes a ChangeSet of the one applier.
//!
//! [`PreparedRun::new`] makes every check that needs no program, [`PreparedRun::run`] runs it, and [`prepare_write_back`]
//! prepares what it changed, so that a caller can record the reverse change before [`PreparedWriteBack::commit`].
//!
//! **Invariants.** The program reads no path that the block list or the fence denies, and none is written back; what the
//! tier cannot enforce is an error. It reaches only hosts that the request, the settings and the fence all allow. It gets
//! no `VAMBRACE_*` variable. No byte of its output is passed on that the redactor has not seen.
//!
//! Deliberately absent: decisions, records, approvals (the broker); how a run is asked for and reported (the entry points).
//!
//! [`Spec`]: vambrace_sandbox::Spec

mod change_set;
mod error;
mod explain;
mod inherited;
mod network;
mod redacted_output;
mod request;
mod run;
mod settings;
mod shared_sandbox;
mod spec;
mod tls_termination;
mod write_back;

pub use change_set::{SplitChanges, split_changes};
pub use error::{ExecError, ExecErrorKind, WriteBackFailure};
pub use explain::{ForeignGroup, Grant, NeededGrants};
pub use inherited::Inherited;
pub use network::{HostLists, NetworkAttempts};
pub use redacted_output::RedactedSink;
pub use request::{HostRequest, NetworkRequest, RunRequest};
pub use run::{PreparedRun, RunIo, RunReport};
pub use settings::RunSettings;
pub use shared_sandbox::SharedSandbox;
pub use tls_termination::SecretSource;
pub use write_back::{PreparedWriteBack, WrittenBack, prepare_write_back, recover};
