//! Arguments of `witness`.

use std::path::PathBuf;

use clap::Subcommand;

/// Address of the witness and the logs it signs for.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct WitnessServeArgs {
    /// Address and port to listen on; plain HTTP, put a reverse proxy in front of it for TLS.
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:7380")]
    pub(crate) listen: std::net::SocketAddr,
    /// Log to sign for: its verifier key, and its origin if that is not the key's name; repeatable, for several logs or
    /// several keys of one log.
    #[arg(long, value_name = "VKEY [ORIGIN]")]
    pub(crate) log: Vec<String>,
    /// File with one log per line.
    #[arg(long, value_name = "FILE")]
    pub(crate) logs: Option<PathBuf>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum WitnessCommand {
    /// Print the verifier key of the witness; the first use creates it.
    Key {
        /// Name of a new key, for example `witness.example.com/w1`.
        #[arg(long)]
        name: Option<String>,
    },
    /// List the logs that the witness has signed for, each with the last signed checkpoint.
    List,
    /// Forget a log: its next checkpoint is signed unconditionally. Not while the witness is running.
    Forget {
        /// Origin of the log.
        origin: String,
    },
}
