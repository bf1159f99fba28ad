//! The network part: one host is allowed, and programs with and without a proxy try to reach it and others. The servers run
//! in this process, on the loopback interface.

use std::{
    fs,
    io::{Read as _, Write as _},
    net::{IpAddr, TcpListener, UdpSocket},
    process::{Command, Stdio},
    time::Duration,
};

use serde_json::json;

use super::{ProbeDirs, unprivileged};
use crate::{
    error::{TaskResult, WithContext},
    project::Project,
    toolbox::Toolbox,
};

const REACHED: &str = "the server was reached";

/// What is tried, whether it should succeed, and the shell command; `P` is the allowed port, `Q` another one.
const ATTEMPTS: &[(&str, bool, &str)] = &[
    ("the allowed host", true, "curl -sS -m 5 --noproxy '' http://127.0.0.1:P/"),
    ("the allowed host, no proxy set", true, "curl -sS -m 5 --noproxy '*' http://127.0.0.1:P/"),
    ("another port of it", false, "curl -sS -m 5 --noproxy '' http://127.0.0.1:Q/"),
    ("another port of it, no proxy set", false, "curl -sS -m 5 --noproxy '*' http://127.0.0.1:Q/"),
    ("another host", false, "curl -sS -m 5 --noproxy '' http://127.0.0.2:P/"),
    ("another host, no proxy set", false, "curl -sS -m 5 --noproxy '*' http://127.0.0.2:P/"),
    ("another host as a number", false, "curl -sS -m 5 --noproxy '' http://2130706434:P/"),
    ("another host in hexadecimal", false, "curl -sS -m 5 --noproxy '' http://0x7f.2:P/"),
    ("another host, IPv6", false, "curl -sS -m 5 --noproxy '' 'http://[::1]:P/'"),
    ("another host, IPv4 in IPv6", false, "curl -sS -m 5 --noproxy '' 'http://[::ffff:127.0.0.2]:P/'"),
    ("a redirect to another port", false, "curl -sS -L -m 5 --noproxy '' http://127.0.0.1:P/elsewhere"),
    (
        "a tunnel to another port",
        false,
        "curl -sS -m 5 -p -x \"${http_proxy:-http://127.0.0.1:3128}\" --noproxy '' http://127.0.0.1:Q/",
    ),
    ("a datagram", false, "bash -c 'exec 3<>/dev/udp/127.0.0.1/P && echo x >&3 && timeout 2 head -c 22 <&3'"),
];

/// The allowed port and another one.
struct Servers {
    listed: u16,
    other: u16,
}

/// Prints what each peer can reach; returns whether ours reaches what it should and nothing else.
pub(super) fn run(project: &Project, toolbox: &Toolbox<'_>, dirs: &ProbeDirs) -> TaskResult<bool> {
    let servers = Servers::start().when(|| "cannot start servers on the loopback address".to_owned())?;
    let settings = dirs.path("srt.json");
    let rule = format!("127.0.0.1:{}", servers.listed);
    let text = json!({
        "network": {"allowedDomains": [rule], "deniedDomains": []},
        "filesystem": {"denyRead": [], "allowWrite": ["."], "denyWrite": []},
    });
    fs::write(&settings, text.to_string()).when(|| format!("cannot write `{}`", settings.display()))?;
    let mut peers: Vec<(&str, Vec<std::ffi::OsString>)> = vec![("bare", vec!["sh".into(), "-c".into()])];
    let mut ours: Vec<std::ffi::OsString> = vec![project.built("debug", "vambrace").into()];
    ours.extend(["sandbox", "run", "--network", &rule, "--", "sh", "-c"].map(Into::into));
    peers.push(("vambrace", ours));
    match toolbox.node_program("@anthropic-ai/sandbox-runtime", "srt") {
        Some(program) => {
            peers.push(("srt", vec![program.into(), "--settings".into(), settings.into(), "-c".into()]));
        }
        None => println!("srt: cannot be installed here"),
    }
    println!();
    let head: String = peers.iter().map(|(name, _)| format!("{name:>11}")).collect();
    println!("{:<36}{:>11}{head}", "network: one port of one host", "should");
    let mut right = vec![0; peers.len()];
    for (name, should, words) in ATTEMPTS {
        let words = servers.fill(words);
        let cell = |reached: bool| if reached { "reached" } else { "-" };
        let mut line = format!("{name:<36}{:>11}", cell(*should));
        for ((_, start), right) in peers.iter().zip(&mut right) {
            let reached = attempt(dirs, start, &words)?;
            *right += usize::from(reached == *should);
            line += &format!("{:>11}", cell(reached));
        }
        println!("{line}");
    }
    let sums: String =
        right.iter().map(|right| format!("{:>11}", format!("{right}/{}", ATTEMPTS.len()))).collect();
    println!("{:<36}{:>11}{sums}", "as it should be", "");
    let ours = peers.iter().position(|(name, _)| *name == "vambrace").and_then(|at| right.get(at));
    Ok(ours == Some(&ATTEMPTS.len()))
}

fn attempt(dirs: &ProbeDirs, start: &[std::ffi::OsString], words: &str) -> TaskResult<bool> {
    let Some((program, rest)) = start.split_first() else { return Ok(false) };
    let mut command = Command::new(program);
    command
        .args(rest)
        .arg(words)
        .current_dir(dirs.path("project"))
        .env("HOME", dirs.path("home"))
        .env("VAMBRACE_HOME", dirs.path("own-state"))
        .stdin(Stdio::null());
    let output =
        unprivileged(&mut command).output().when(|| format!("cannot start `{}`", program.display()))?;
    Ok(String::from_utf8_lossy(&output.stdout).contains(REACHED))
}

impl Servers {
    fn start() -> std::io::Result<Self> {
        let here: IpAddr = [127, 0, 0, 1].into();
        let (listed, other) = (TcpListener::bind((here, 0))?, TcpListener::bind((here, 0))?);
        let servers = Self { listed: listed.local_addr()?.port(), other: other.local_addr()?.port() };
        let elsewhere = format!("http://127.0.0.1:{}/", servers.other);
        let second = TcpListener::bind((IpAddr::from([127, 0, 0, 2]), servers.listed))?;
        // Fails on a machine without IPv6.
        let six = TcpListener::bind((IpAddr::from([0, 0, 0, 0, 0, 0, 0, 1]), servers.listed)).ok();
        for listener in [listed, other, second].into_iter().chain(six) {
            let elsewhere = elsewhere.clone();
            std::thread::spawn(move || serve(&listener, &elsewhere));
        }
        let datagrams = UdpSocket::bind((here, servers.listed))?;
        std::thread::spawn(move || {
            while let Ok((_, from)) = datagrams.recv_from(&mut [0; 100]) {
                // The client may be gone.
                let _ = datagrams.send_to(REACHED.as_bytes(), from);
            }
        });
        Ok(servers)
    }

    fn fill(&self, words: &str) -> String {
        words
            .replace(":P", &format!(":{}", self.listed))
            .replace("/P ", &format!("/{} ", self.listed))
            .replace(":Q", &format!(":{}", self.other))
    }
}

/// Answers requests one after the other; `/elsewhere` redirects to the other port.
fn serve(listener: &TcpListener, elsewhere: &str) {
    for mut stream in listener.incoming().flatten() {
        let mut asked = [0; 4096];
        let _ = stream.set_read_timeout(Some(Duration::from_secs(5)));
        let read = stream.read(&mut asked).unwrap_or(0);
        let first = String::from_utf8_lossy(asked.get(..read).unwrap_or_default()).into_owned();
        let length = REACHED.len();
        // The client may be gone.
        let _ = if first.contains("/elsewhere ") {
            write!(
                stream,
                "HTTP/1.1 302 Found\r\nLocation: {elsewhere}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
            )
        } else {
            write!(
                stream,
                "HTTP/1.1 200 OK\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{REACHED}"
            )
        };
    }
}
