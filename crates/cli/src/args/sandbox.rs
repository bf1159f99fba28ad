//! Words about running a program inside the sandbox.

use std::path::PathBuf;

use clap::Subcommand;

#[derive(Debug, Subcommand)]
pub(crate) enum SandboxCommand {
    /// Run a program. Exits with its code, 124 after the deadline, 125 when it could not be started.
    #[command(after_help = SANDBOX_EXAMPLES)]
    Run(Box<SandboxRun>),
}

const SANDBOX_EXAMPLES: &str = "\
What a program sees: the system read-only, a private /tmp and home folder, the toolchains of your home folder without
their credentials, and the workspace as --filesystem says, without secret names (.env, secrets/, *.pem, private keys).
No network unless --network says so. Names that run or configure something (.git/hooks, .git/config, editor settings ...) are never changed.

Examples:
  vambrace sandbox run -- cargo test --offline
  vambrace sandbox run --filesystem readwrite -- ./fix-everything.sh
  vambrace sandbox run --speculative --json -- make format
  vambrace sandbox run --network 'crates.io,*.crates.io' -- cargo fetch
  vambrace sandbox run --explain --timeout 10 -- ./installer";

/// A program and its walls.
#[derive(Debug, clap::Args)]
pub(crate) struct SandboxRun {
    /// What of the workspace the program sees, and what becomes of what it writes there: `deny` shows nothing, `read`
    /// shows it unchangeable, `write` shows an empty folder whose new files are moved in, `readwrite` takes every
    /// change over at the end.
    #[arg(long, value_enum, default_value_t = FilesystemMode::Read)]
    pub(crate) filesystem: FilesystemMode,
    /// Show the workspace and take changes like `readwrite`, but only tell them: diffs of text up to 8 MiB together, the
    /// rest by hash and size.
    #[arg(long, conflicts_with = "filesystem")]
    pub(crate) speculative: bool,
    /// List every change, however many. When left out the first 5000 are listed, up to 1 MiB of names, and the rest is counted;
    /// it is taken over all the same.
    #[arg(long)]
    pub(crate) every_change: bool,
    /// The network: `deny` has not even sockets (with `--observe all` some that lead nowhere, so that names and ports
    /// are told), `loopback` a loopback interface of its own, `allow` everything but
    /// this machine and metadata addresses; or what may be reached: names (`example.com`, `*.example.com`, ports 80 and
    /// 443), addresses and networks (`10.1.0.0/16`), each with or without `:PORT`; `!` before one refuses it.
    #[arg(long, value_name = "deny|loopback|allow|HOST,...", default_value = "deny")]
    pub(crate) network: String,
    /// Open connections at the same time.
    #[arg(long, value_name = "N", default_value_t = 1024)]
    pub(crate) network_connections: usize,
    /// Bytes over the network, in both directions together.
    #[arg(long, value_name = "M", default_value = "16G", value_parser = size)]
    pub(crate) network_bytes: u64,
    /// Bytes a second over the network, in both directions together.
    #[arg(long, value_name = "M", value_parser = size)]
    pub(crate) network_rate: Option<u64>,
    /// A proxy that connections go through; it resolves the names, and is asked for nothing that the rules refuse.
    #[arg(long, value_name = "URL")]
    pub(crate) upstream_proxy: Option<String>,
    /// Variables of your environment that the program gets; `*` stands for any letters.
    #[arg(long, value_name = "NAME,...", value_delimiter = ',')]
    pub(crate) env: Vec<String>,
    /// Seconds until the program and everything it started is ended.
    #[arg(long, value_name = "S", default_value_t = 60.0)]
    pub(crate) timeout: f64,
    /// Memory of everything together, for example 512M or 2G.
    #[arg(long, value_name = "M", default_value = "2G", value_parser = size)]
    pub(crate) memory: u64,
    /// Processes and threads.
    #[arg(long, value_name = "N", default_value_t = 512, value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) processes: u64,
    /// What /tmp, the home folder and changed files may take together, and what is written into build folders; 1G, and 16G
    /// for build folders, when left out.
    #[arg(long, value_name = "M", value_parser = size)]
    pub(crate) disk: Option<u64>,
    /// Of each output stream this much is shown, and kept in memory; the rest is dropped, which is told.
    #[arg(long, value_name = "M", default_value = "1M", value_parser = size)]
    pub(crate) output: u64,
    /// A further path that may be read and executed.
    #[arg(long, value_name = "PATH")]
    pub(crate) read: Vec<PathBuf>,
    /// A further path that may be changed, directly.
    #[arg(long, value_name = "PATH")]
    pub(crate) write: Vec<PathBuf>,
    /// A build folder of the workspace that is kept apart and never taken over; target, node_modules and .venv when
    /// left out.
    #[arg(long, value_name = "NAME")]
    pub(crate) scratch: Vec<String>,
    /// The weakest tier that will do: full, full-no-proc, no-userns.
    #[arg(long, value_name = "TIER", default_value = "no-userns")]
    pub(crate) tier: String,
    /// Which refusals are told: `off` none, `writes` those of changes and starts of programs, `all` reads as well.
    #[arg(long, value_enum, default_value_t = ObserveMode::Writes)]
    pub(crate) observe: ObserveMode,
    /// When the program fails, run it once more with everything observed, drop what it writes, and tell which further
    /// grants it would need. What it sends to hosts that it may reach is sent again.
    #[arg(long)]
    pub(crate) explain: bool,
    /// The SHA-256 that the program's file must have, in hexadecimal: another file under its name is not started.
    #[arg(long, value_name = "HEX", value_parser = digest)]
    pub(crate) sha256: Option<[u8; 32]>,
    /// The workspace; the nearest folder upwards with a `.vambrace` in it, else the current folder, when left out.
    #[arg(long, value_name = "DIR")]
    pub(crate) workspace: Option<PathBuf>,
    /// The program and its arguments.
    #[arg(required = true, last = true, value_name = "CMD")]
    pub(crate) command: Vec<std::ffi::OsString>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
#[value(rename_all = "lower")]
pub(crate) enum FilesystemMode {
    Deny,
    Read,
    Write,
    ReadWrite,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
#[value(rename_all = "lower")]
pub(crate) enum ObserveMode {
    Off,
    Writes,
    All,
}

/// Bytes, with K, M or G, also written KB or KiB: always powers of 1024.
fn size(text: &str) -> Result<u64, String> {
    let number = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let unit = match text.strip_prefix(number).unwrap_or_default().to_ascii_lowercase().as_str() {
        "" | "b" => 1,
        "k" | "kb" | "kib" => 1 << 10,
        "m" | "mb" | "mib" => 1 << 20,
        "g" | "gb" | "gib" => 1 << 30,
        _ => return Err("the unit is K, M or G".to_owned()),
    };
    let number: u64 = number.trim().parse().map_err(|_| "a number, with K, M or G after it".to_owned())?;
    number.checked_mul(unit).filter(|bytes| *bytes > 0).ok_or_else(|| "out of range".to_owned())
}

fn digest(text: &str) -> Result<[u8; 32], String> {
    let pairs: Option<Vec<u8>> = text
        .as_bytes()
        .chunks(2)
        .map(|pair| {
            let pair =
                std::str::from_utf8(pair).ok().filter(|pair| pair.bytes().all(|b| b.is_ascii_hexdigit()))?;
            u8::from_str_radix(pair, 16).ok()
        })
        .collect();
    pairs
        .filter(|_| text.len() == 64)
        .and_then(|bytes| bytes.try_into().ok())
        .ok_or_else(|| "64 hexadecimal digits".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digests_are_64_hexadecimal_digits() {
        assert_eq!(digest(&"0aF9".repeat(16)), Ok([0x0a, 0xf9].repeat(16).try_into().unwrap()));
        for text in [
            "",
            "0a",
            &"0a".repeat(31),
            &"0a".repeat(33),
            &"0g".repeat(32),
            &"+1".repeat(32),
            &"é1".repeat(16),
        ] {
            assert!(digest(text).is_err(), "{text}");
        }
    }

    #[test]
    fn sizes_are_read_with_and_without_units() {
        for (text, bytes) in [
            ("7", 7),
            ("7B", 7),
            ("7k", 7 << 10),
            ("7KB", 7 << 10),
            ("64MiB", 64 << 20),
            ("64 MiB", 64 << 20),
            ("2m", 2 << 20),
            ("1G", 1 << 30),
            ("1gib", 1 << 30),
        ] {
            assert_eq!(size(text), Ok(bytes), "{text}");
        }
        for text in ["", "0", "M", "MiB", "1i", "1iB", "1T", "1MM", "-1", "1.5G", "1é", "99999999999G"] {
            assert!(size(text).is_err(), "{text}");
        }
    }
}
