//! Arguments of `sandbox run`.

use std::path::PathBuf;

use clap::Subcommand;

#[derive(Debug, Subcommand)]
pub(crate) enum SandboxCommand {
    /// Run a program. Exits with its exit code, 124 on timeout, 125 if it could not be started.
    #[command(after_help = SANDBOX_EXAMPLES)]
    Run(Box<SandboxRun>),
}

const SANDBOX_EXAMPLES: &str = "\
A program sees the system read-only, a private /tmp and home directory, the toolchains in your home directory without their
credentials, and the workspace according to --filesystem, without secret files (.env, secrets/, *.pem, private keys). It has
no network without --network. Files that run or configure programs (.git/hooks, .git/config, editor settings ...) are never changed.

Examples:
  vambrace sandbox run -- cargo test --offline
  vambrace sandbox run --filesystem readwrite -- ./fix-everything.sh
  vambrace sandbox run --speculative --json -- make format
  vambrace sandbox run --network 'crates.io,*.crates.io' -- cargo fetch
  vambrace sandbox run --explain --timeout 10 -- ./installer";

/// A program and its limits.
#[derive(Debug, clap::Args)]
pub(crate) struct SandboxRun {
    /// Access to the workspace: `deny` hides it, `read` shows it read-only, `write` shows an empty directory whose new files
    /// are written back, `readwrite` writes all changes back when the program ends.
    #[arg(long, value_enum, default_value_t = FilesystemMode::Read)]
    pub(crate) filesystem: FilesystemMode,
    /// Like `readwrite`, but only report the changes and discard them: text as a diff (up to 8 MiB in total), everything
    /// else as hash and size.
    #[arg(long, conflicts_with = "filesystem")]
    pub(crate) speculative: bool,
    /// List every change. By default the first 5000 are listed (up to 1 MiB of names) and the rest are counted; all are
    /// written back in either case.
    #[arg(long)]
    pub(crate) every_change: bool,
    /// Network access: `deny` blocks sockets (with `--observe all` sockets work but reach nothing, so that hosts and ports are
    /// reported), `loopback` gives a private loopback interface, `allow` permits everything except this machine and
    /// cloud metadata addresses. Otherwise a list of what may be reached: host names (`example.com`, `*.example.com`, ports 80
    /// and 443), addresses and networks (`10.1.0.0/16`), each with an optional `:PORT`; `!` denies an entry.
    #[arg(long, value_name = "deny|loopback|allow|HOST,...", default_value = "deny")]
    pub(crate) network: String,
    /// Maximum number of open connections.
    #[arg(long, value_name = "N", default_value_t = 1024)]
    pub(crate) network_connections: usize,
    /// Maximum bytes over the network, both directions together.
    #[arg(long, value_name = "M", default_value = "16G", value_parser = size)]
    pub(crate) network_bytes: u64,
    /// Maximum bytes per second over the network, both directions together.
    #[arg(long, value_name = "M", value_parser = size)]
    pub(crate) network_rate: Option<u64>,
    /// Proxy for all connections; it also resolves host names. Denied connections do not reach it.
    #[arg(long, value_name = "URL")]
    pub(crate) upstream_proxy: Option<String>,
    /// Environment variables to pass to the program; `*` matches any characters.
    #[arg(long, value_name = "NAME,...", value_delimiter = ',')]
    pub(crate) env: Vec<String>,
    /// Timeout in seconds; the program and all its processes are killed.
    #[arg(long, value_name = "S", default_value_t = 60.0)]
    pub(crate) timeout: f64,
    /// Memory limit of all processes together, for example 512M or 2G.
    #[arg(long, value_name = "M", default_value = "2G", value_parser = size)]
    pub(crate) memory: u64,
    /// Maximum number of processes and threads.
    #[arg(long, value_name = "N", default_value_t = 512, value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) processes: u64,
    /// Disk limit: for /tmp, the home directory and changed files together, and for build directories [default: 1G, and 16G for
    /// build directories].
    #[arg(long, value_name = "M", value_parser = size)]
    pub(crate) disk: Option<u64>,
    /// Maximum output of each stream, shown and kept in memory; the rest is dropped and reported.
    #[arg(long, value_name = "M", default_value = "1M", value_parser = size)]
    pub(crate) output: u64,
    /// Additional path that may be read and executed.
    #[arg(long, value_name = "PATH")]
    pub(crate) read: Vec<PathBuf>,
    /// Additional path that may be changed directly.
    #[arg(long, value_name = "PATH")]
    pub(crate) write: Vec<PathBuf>,
    /// Build directory of the workspace; kept separately, never written back [default: target, node_modules, .venv].
    #[arg(long, value_name = "NAME")]
    pub(crate) scratch: Vec<String>,
    /// Weakest acceptable sandbox tier: full, full-no-proc, no-userns.
    #[arg(long, value_name = "TIER", default_value = "no-userns")]
    pub(crate) tier: String,
    /// Which denials to report: `off` none, `writes` denied changes and program starts, `all` denied reads too.
    #[arg(long, value_enum, default_value_t = ObserveMode::Writes)]
    pub(crate) observe: ObserveMode,
    /// If the program fails, run it again with `--observe all`, discard its writes, and report which options it would need.
    /// It sends its network requests to allowed hosts again.
    #[arg(long)]
    pub(crate) explain: bool,
    /// Expected SHA-256 of the program's file, in hexadecimal; another file is not started.
    #[arg(long, value_name = "HEX", value_parser = digest)]
    pub(crate) sha256: Option<[u8; 32]>,
    /// Workspace directory [default: the nearest parent directory with `.vambrace`, or the current directory].
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

/// Parses a size in bytes: a number with an optional K, M or G (also KB, KiB ...), always powers of 1024.
fn size(text: &str) -> Result<u64, String> {
    let number = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let unit = match text.strip_prefix(number).unwrap_or_default().to_ascii_lowercase().as_str() {
        "" | "b" => 1,
        "k" | "kb" | "kib" => 1 << 10,
        "m" | "mb" | "mib" => 1 << 20,
        "g" | "gb" | "gib" => 1 << 30,
        _ => return Err("the unit must be K, M or G".to_owned()),
    };
    let number: u64 =
        number.trim().parse().map_err(|_| "expected a number with an optional K, M or G".to_owned())?;
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
        .ok_or_else(|| "expected 64 hexadecimal digits".to_owned())
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
    fn sizes_parse_with_and_without_units() {
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
