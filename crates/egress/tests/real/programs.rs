//! Common programs (curl, git, Python, Node, a static binary), none of them configured to use a proxy.

use std::path::Path;

use libtest_mimic::{Failed, Trial};

use vambrace_sandbox::{NetworkMode, SandboxError, Spec, Tier};

use super::harness::{ProbeRun, harness, line, setting};

/// Programs that the suite uses if they are installed; `real table` prints which are missing.
pub(crate) const PROGRAMS: &[&str] = &["curl", "git", "python3", "node", "cc"];

pub(crate) fn trials() -> Vec<Trial> {
    let mut trials = vec![
        Trial::test("programs::curl_reaches_allowed_hosts_only", curl_reaches_allowed_hosts_only)
            .with_ignored_flag(!is_here("curl")),
        Trial::test("programs::redirect_to_a_denied_host_is_denied", redirect_to_a_denied_host_is_denied)
            .with_ignored_flag(!is_here("curl")),
        Trial::test(
            "programs::static_program_is_checked_like_any_other",
            static_program_is_checked_like_any_other,
        )
        .with_ignored_flag(!is_here("cc")),
        Trial::test("programs::other_socket_families_are_denied", other_socket_families_are_denied),
        Trial::test(
            "programs::gated_network_fails_in_a_tier_without_network_namespaces",
            gated_network_fails_in_a_tier_without_network_namespaces,
        ),
        Trial::test(
            "programs::port_in_use_at_one_address_can_be_opened_at_others",
            port_in_use_at_one_address_can_be_opened_at_others,
        ),
        Trial::test("programs::bytes_sent_before_exit_arrive", bytes_sent_before_exit_arrive),
        Trial::test(
            "programs::warm_cell_serves_every_kind_of_network",
            warm_cell_serves_every_kind_of_network,
        ),
    ];
    for program in ["git", "python3", "node"] {
        let trial = Trial::test(format!("programs::{program}_is_checked_like_any_other"), move || {
            program_is_checked_like_any_other(program)
        });
        trials.push(trial.with_ignored_flag(!is_here(program)));
    }
    trials
}

/// Whether a program is installed system-wide. Programs in a home directory are not visible in the sandbox.
pub(crate) fn is_here(program: &str) -> bool {
    ["/usr/local/bin", "/usr/bin", "/bin"].iter().any(|dir| Path::new(dir).join(program).exists())
}

fn shell(rules: &[&str], script: &str) -> ProbeRun {
    harness().run(setting(rules), "/bin/sh", &["-c", script])
}

#[track_caller]
fn expect(ran: &ProbeRun, said: &str, events: &[&str]) -> Result<(), Failed> {
    let lines: Vec<String> = ran.events.iter().map(line).collect();
    let missing: Vec<&&str> =
        events.iter().filter(|event| !lines.iter().any(|line| line == **event)).collect();
    if ran.out.contains(said) && missing.is_empty() {
        Ok(())
    } else {
        Err(format!("`{said}` {missing:?}: {}", ran.report()).into())
    }
}

// P3, P12
fn curl_reaches_allowed_hosts_only() -> Result<(), Failed> {
    let ran = shell(&["good.example"], "curl -sS http://good.example/ && curl -sSk https://good.example/");
    expect(
        &ran,
        "served good.example\nserved good.example",
        &["connect good.example 80 allowed", "connect good.example 443 allowed"],
    )?;
    let ran = shell(
        &["good.example"],
        "curl -sSk -m 10 https://evil.example/ 2>&1; curl -sS -m 10 http://93.184.216.35/ 2>&1",
    );
    expect(
        &ran,
        "Could not resolve host",
        &["dns evil.example denied host_not_allowed", "connect 93.184.216.35 80 denied address_not_allowed"],
    )?;
    // The SNI differs from the name that the gate resolved.
    let script = "curl -sSk -m 10 --connect-to evil.example:443:good.example:443 https://evil.example/ 2>&1";
    expect(&shell(&["good.example"], script), "", &["connect good.example 443 denied name_mismatch"])?;
    let script = "curl -sSk -x socks5h://127.0.0.1:3128 https://good.example/ && curl -sSk -x http://127.0.0.1:3128 https://good.example/";
    let both = ["socks good.example 443 allowed", "http_proxy good.example 443 allowed"];
    expect(&shell(&["good.example"], script), "served good.example\nserved good.example", &both)
}

// P3
fn redirect_to_a_denied_host_is_denied() -> Result<(), Failed> {
    let ran = shell(&["good.example"], "curl -sSL -m 10 http://good.example/away 2>&1");
    expect(
        &ran,
        "Could not resolve host: evil.example",
        &["connect good.example 80 allowed", "dns evil.example denied host_not_allowed"],
    )
}

// P3
fn program_is_checked_like_any_other(program: &str) -> Result<(), Failed> {
    let get = |url: &str| match program {
        "git" => format!("git ls-remote {url}x 2>&1"),
        "python3" => {
            format!(
                "/usr/bin/python3 -c 'import urllib.request as u; print(u.urlopen(\"{url}\").read())' 2>&1"
            )
        }
        _ => format!(
            "node -e 'fetch(\"{url}\").then(r => r.text()).then(console.log, e => console.log(String(e)))' 2>&1"
        ),
    };
    let served = if program == "git" { "" } else { "served good.example" };
    let ran = shell(&["good.example"], &get("http://good.example/"));
    expect(&ran, served, &["connect good.example 80 allowed"])?;
    let ran = shell(&["good.example"], &get("http://evil.example/"));
    expect(&ran, "", &["dns evil.example denied host_not_allowed"])?;
    if ran.reached.is_empty() && ran.asked.is_empty() { Ok(()) } else { Err(ran.report().into()) }
}

// P3: no loader, no library, and proxy variables are ignored
fn static_program_is_checked_like_any_other() -> Result<(), Failed> {
    let dir = tempfile::tempdir().unwrap();
    let program = dir.path().canonicalize().unwrap().join("static");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/real/static.c");
    let made =
        std::process::Command::new("cc").args(["-static", "-o"]).arg(&program).arg(source).output().unwrap();
    if !made.status.success() {
        return Err(format!("`cc -static` needs the static C library (libc6-dev): {made:?}").into());
    }
    if is_dynamic(&std::fs::read(&program).unwrap()) {
        return Err("the program is not static".into());
    }
    let run = |host: &str| {
        harness().run_with(setting(&["good.example"]), program.to_str().unwrap(), &[host, "80"], |spec| {
            spec.read = vec![program.clone()];
            let dead = |name: &str| (name.into(), "http://127.0.0.1:9".into());
            spec.environment = ["http_proxy", "HTTP_PROXY", "ALL_PROXY"].map(dead).to_vec();
        })
    };
    expect(&run("good.example"), "served good.example", &["connect good.example 80 allowed"])?;
    for (host, said, event) in [
        ("evil.example", "no such name", "dns evil.example denied host_not_allowed"),
        ("93.184.216.35", "", "connect 93.184.216.35 80 denied address_not_allowed"),
        ("169.254.169.254", "", "connect 169.254.169.254 80 denied special_address"),
    ] {
        let ran = run(host);
        expect(&ran, said, &[event])?;
        if !ran.reached.is_empty() || !ran.asked.is_empty() {
            return Err(ran.report().into());
        }
    }
    Ok(())
}

/// Whether a 64-bit ELF file names a loader (`PT_INTERP`).
fn is_dynamic(program: &[u8]) -> bool {
    let number = |at: usize, width: usize| {
        program[at..at + width].iter().rev().fold(0_usize, |sum, byte| sum << 8 | usize::from(*byte))
    };
    let (first, size, count) = (number(32, 8), number(54, 2), number(56, 2));
    (0..count).any(|at| number(first + at * size, 4) == 3)
}

// P2, P3
fn other_socket_families_are_denied() -> Result<(), Failed> {
    const SCRIPT: &str = r#"
import socket, errno
for family, kind, protocol in [(2, 3, 1), (2, 2, 1), (10, 3, 58), (2, 1, 262), (2, 1, 132), (2, 5, 132), (17, 3, 0), (16, 3, 0), (40, 1, 0), (38, 5, 0), (2, 2, 136)]:
    try:
        socket.socket(family, kind, protocol)
        print("made", family, kind, protocol)
    except OSError as error:
        print("no" if error.errno in (errno.EPERM, errno.EPROTONOSUPPORT, errno.ESOCKTNOSUPPORT, errno.EAFNOSUPPORT) else error)
s = socket.socket()
try:
    s.sendto(b"GET / HTTP/1.0\r\n\r\n", socket.MSG_FASTOPEN, ("93.184.216.34", 80))
    print("sent")
except OSError as error:
    print("no" if error.errno == errno.EOPNOTSUPP else error)
"#;
    let ran = harness().run(setting(&["allow"]), "/usr/bin/python3", &["-c", SCRIPT]);
    let expected = ["no"; 12].join("\n");
    let reported =
        ran.outcome.denials.iter().any(|denial| denial.path.to_string_lossy().starts_with("socket ("));
    if ran.out == expected && ran.reached.is_empty() && reported { Ok(()) } else { Err(ran.report().into()) }
}

// P3: a weaker tier is never used silently.
fn gated_network_fails_in_a_tier_without_network_namespaces() -> Result<(), Failed> {
    let mut spec = Spec::new("/bin/true", harness().project());
    spec.network = NetworkMode::Gated;
    let refused = |spec: &Spec, wanted: fn(&SandboxError) -> bool| match harness().try_run(spec) {
        Err(error) if wanted(&error) => Ok(()),
        other => Err(Failed::from(format!("{other:?}"))),
    };
    refused(&spec, |error| matches!(error, SandboxError::Refused(_)))?;
    spec.gate = Some(harness().gate(setting(&["allow"])));
    spec.forced_tier = Some(Tier::NoUserns);
    refused(&spec, |error| matches!(error, SandboxError::Unavailable { .. }))
}

fn bytes_sent_before_exit_arrive() -> Result<(), Failed> {
    // The program sends and exits; the server still gets the bytes.
    let script = "import socket; s = socket.create_connection((\"good.example\", 22)); s.sendall(b\"x\" * 499 + b\"\\n\")";
    let ran = harness().run(setting(&["good.example:22"]), "/usr/bin/python3", &["-c", script]);
    match ran.events.iter().find(|event| event.port == 22) {
        Some(event) if event.sent == 500 => Ok(()),
        _ => Err(ran.report().into()),
    }
}

// P3, P9: an allowed connection succeeds, or an event says why not
fn port_in_use_at_one_address_can_be_opened_at_others() -> Result<(), Failed> {
    const GET: &str = "GET / HTTP/1.1\\r\\nHost: good.example\\r\\n\\r\\n";
    const NEAR: &[&str] = &["ask", "127.0.0.1", "8080", ""];
    const SERVED: &str = "served good.example";
    let check = |words: &[&[&str]], said: &[&str], event: &str| {
        let words = words.join(&"then");
        let ran = harness().probe(
            &["127.0.0.1:8080", "[::1]:8080", "93.184.216.34", "2606:4700::1", "good.example:*"],
            &words,
        );
        let heard: Vec<&str> = ran.out.lines().collect();
        let alike =
            heard.len() == said.len() && heard.iter().zip(said).all(|(heard, said)| heard.contains(said));
        if !alike {
            return Err(Failed::from(format!("{said:?}: {}", ran.report())));
        }
        expect(&ran, "", &[event])
    };
    super::escape_cases::machine();
    for host in ["93.184.216.34", "2606:4700::1", "good.example"] {
        let there: &[&str] = &["ask", host, "8080", GET];
        let event = format!("connect {host} 8080 allowed");
        check(&[NEAR, there, NEAR], &["the machine", SERVED, "the machine"], &event)?;
        check(&[there, NEAR, there], &[SERVED, "the machine", SERVED], "connect 127.0.0.1 8080 allowed")?;
        check(&[&["ask", "::1", "8080", ""], there], &["the machine", SERVED], &event)?;
        let own = [&["listening", "127.0.0.1:8080"], there].concat();
        check(&[&own], &[SERVED], &event)?;
        let own = [&["listening", "[::]:8080"], there].concat();
        check(
            &[&own],
            &["ERROR PermissionDenied"],
            &format!(
                "connect {host} 8080 failed unreachable (the sandboxed program itself listens on this port)"
            ),
        )?;
    }
    // The explicit proxy listens on loopback only.
    let proxy: &[&str] = &["socks", "good.example", "80", GET];
    let there: &[&str] = &["ask", "good.example", "3128", GET];
    check(&[proxy, there], &[SERVED; 2], "connect good.example 3128 allowed")?;
    check(&[there, proxy], &[SERVED; 2], "socks good.example 80 allowed")?;
    // A program that listens there itself connects to itself, which is logged.
    check(&[&["own"]], &["GOT myself"], "local 127.0.0.1 8080 allowed")
}

// P2: the network of a warm cell is set up before its kind is known
fn warm_cell_serves_every_kind_of_network() -> Result<(), Failed> {
    let program = std::env::current_exe().unwrap();
    let request = "GET / HTTP/1.1\\r\\nHost: good.example\\r\\n\\r\\n";
    for _ in 0..4 {
        let ran = harness().probe(&["93.184.216.34"], &["tcp", "93.184.216.34", "80", request]);
        if !ran.out.contains("served good.example") {
            return Err(ran.report().into());
        }
        for (network, said) in [
            (NetworkMode::Loopback, "ERROR NetworkUnreachable"),
            (NetworkMode::None, "ERROR PermissionDenied"),
        ] {
            let mut spec = Spec::new(&program, harness().project());
            spec.arguments = ["probe", "tcp", "93.184.216.34", "80", request].map(Into::into).to_vec();
            spec.read = vec![program.clone()];
            spec.network = network;
            let outcome = harness().try_run(&spec).map_err(|error| error.to_string())?;
            let out = String::from_utf8_lossy(&outcome.stdout.bytes).into_owned();
            if !out.contains(said) {
                return Err(format!("{network:?}: {out}").into());
            }
        }
    }
    Ok(())
}
