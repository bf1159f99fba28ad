//! Words about being a witness.

use std::path::PathBuf;

use clap::Subcommand;

/// Where a witness listens, and for whom.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct WitnessSeat {
    /// Address and port; plain HTTP, TLS is the work of a reverse proxy in front of it.
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:7380")]
    pub(crate) listen: std::net::SocketAddr,
    /// A log to sign for: its verifier key, and its origin where that is not the key's name. Several times for
    /// several logs, or several keys of one.
    #[arg(long, value_name = "VKEY [ORIGIN]")]
    pub(crate) log: Vec<String>,
    /// A file with one log a line.
    #[arg(long, value_name = "FILE")]
    pub(crate) logs: Option<PathBuf>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum WitnessCommand {
    /// Print the witness's verifier key, made on first use.
    Key {
        /// What the key is called when it is made, for example `witness.example.com/w1`.
        #[arg(long)]
        name: Option<String>,
    },
    /// The logs that were signed for, each with the checkpoint that was signed last.
    List,
    /// Forget a log: its next checkpoint is signed whatever it says. Only while no witness runs.
    Forget {
        /// The log.
        origin: String,
    },
}
