//! The test network: a machine and an internet, two network namespaces connected by a veth pair. The internet also has hosts
//! that must not be reached: the metadata service, a private network, another host beside the allowed one. The machine's
//! resolver is a name server in the internet, which logs the questions it gets; some names are in the machine's hosts file.

use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::{Command, ExitCode};

const DIR_VARIABLE: &str = "EGRESS_WORLD";

/// Addresses of the internet.
const INTERNET_ADDRESSES: &[&str] = &[
    "93.184.216.34/32",
    "93.184.216.35/32",
    "93.184.216.32/32",
    "93.184.216.39/32",
    "93.184.216.31/32",
    "93.184.216.40/32",
    "10.9.8.7/32",
    "169.254.169.254/32",
    "100.100.100.200/32",
    "168.63.129.16/32",
    "2606:4700::1/128",
    "2606:4700::2/128",
    "fd00:ec2::254/128",
    "64:ff9b::a9fe:a9fe/128",
    "2002:a9fe:a9fe::1/128",
];

/// $1 this program, $2 the directory of the test network, $3 the addresses of the internet.
const SETUP_SCRIPT: &str = r#"
set -e
ulimit -n 4096 2>/dev/null || ulimit -n "$(ulimit -Hn)"
self=$1; dir=$2; there=$3; shift 3
ip link set lo up
trap '[ -z "$internet" ] || kill $internet; rm -rf "$dir"' EXIT
trap 'exit 1' TERM INT HUP
internet=
mkfifo "$dir/news"
unshare --net sh -c '
  set -e
  echo made >&3
  ip link set lo up
  for one in $2; do ip addr add $one dev lo nodad 2>/dev/null || ip addr add $one dev lo; done
  exec "$0" internet "$1"' "$self" "$dir" "$there" 3>"$dir/news" &
internet=$!
# When the servers exit, reading the FIFO ends.
exec 4<"$dir/news"
read -r news <&4
ip link add cable0 type veth peer name cable1 netns $internet
ip addr add 203.0.113.1/24 dev cable0
ip -6 addr add 2606:4700:ffff::1/64 dev cable0 nodad
ip link set cable0 up
nsenter -t $internet -n sh -c '
  ip addr add 203.0.113.2/24 dev cable1
  ip -6 addr add 2606:4700:ffff::2/64 dev cable1 nodad
  ip link set cable1 up'
ip route add default via 203.0.113.2
ip -6 route add default via 2606:4700:ffff::2
echo 'nameserver 203.0.113.2' >"$dir/resolv.conf"
mount --bind "$dir/resolv.conf" /etc/resolv.conf
printf '127.0.0.1 localhost\n93.184.216.34 pinned.example\n93.184.216.35 evil.example\n' >"$dir/hosts"
mount --bind "$dir/hosts" /etc/hosts
read -r news <&4
export EGRESS_WORLD="$dir"
drop=
[ "$(id -u)" = 0 ] || drop='setpriv --ambient-caps -all --inh-caps -all --'
status=0
$drop "$self" "$@" || status=$?
exit $status
"#;

pub(crate) fn is_inside() -> bool {
    std::env::var_os(DIR_VARIABLE).is_some()
}

/// The directory of the servers' logs.
pub(crate) fn dir() -> PathBuf {
    PathBuf::from(std::env::var_os(DIR_VARIABLE).unwrap())
}

/// Sets up the network and executes the tests again inside it.
pub(crate) fn enter() -> ExitCode {
    let dir = tempfile::TempDir::new().unwrap().keep();
    let mut command = Command::new("unshare");
    command.args(["--net", "--mount"]);
    if !is_root() {
        command.args(["--user", "--map-current-user", "--keep-caps"]);
    }
    let error = command
        .args(["sh", "-c", SETUP_SCRIPT, "world"])
        .arg(std::env::current_exe().unwrap())
        .arg(&dir)
        .arg(INTERNET_ADDRESSES.join(" "))
        .args(std::env::args_os().skip(1))
        .exec();
    eprintln!("the egress tests need `unshare` (util-linux), `ip` (iproute2) and user namespaces: {error}");
    ExitCode::FAILURE
}

fn is_root() -> bool {
    std::fs::metadata("/proc/self").is_ok_and(|facts| std::os::unix::fs::MetadataExt::uid(&facts) == 0)
}
