//! An upstream proxy on the machine itself. It connects to anything, so the gate must not ask it for destinations that a
//! direct connection could not reach.

use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::sync::{Arc, Mutex};

use libtest_mimic::{Failed, Trial};
use vambrace_egress::{GateConfig, UpstreamProxy};

use super::harness::{harness, line, setting};

pub(crate) fn trials() -> Vec<Trial> {
    vec![Trial::test(
        "upstream_proxy::proxy_is_not_asked_for_denied_destinations",
        proxy_is_not_asked_for_denied_destinations,
    )]
}

/// A proxy that accepts every CONNECT and records the targets.
fn proxy() -> (UpstreamProxy, Arc<Mutex<Vec<String>>>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let there = UpstreamProxy::parse(&listener.local_addr().unwrap().to_string()).unwrap();
    let asked: Arc<Mutex<Vec<String>>> = Arc::default();
    let kept = Arc::clone(&asked);
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let mut head = Vec::new();
            let mut more = [0; 1000];
            while !head.ends_with(b"\r\n\r\n") {
                match stream.read(&mut more) {
                    Ok(read) if read > 0 => head.extend_from_slice(&more[..read]),
                    _ => break,
                }
            }
            let target = String::from_utf8_lossy(&head).split(' ').nth(1).unwrap_or_default().to_owned();
            kept.lock().unwrap().push(target);
            let _ = stream.write_all(b"HTTP/1.1 200 OK\r\n\r\nREACHED\n");
        }
    });
    (there, asked)
}

/// Rules, the probe's arguments, the expected event, the target that the proxy gets.
type Case = (&'static [&'static str], &'static [&'static str], &'static str, Option<&'static str>);

const CASES: &[Case] = &[
    (
        &["allow"],
        &["tcp", "good.example", "22", ""],
        "connect good.example 22 allowed",
        Some("good.example:22"),
    ),
    // Only the proxy can resolve it.
    (
        &["allow"],
        &["tcp", "silent.example", "22", ""],
        "connect silent.example 22 allowed",
        Some("silent.example:22"),
    ),
    (&["allow"], &["tcp", "10.9.8.7", "22", ""], "connect 10.9.8.7 22 allowed", Some("10.9.8.7:22")),
    (&["allow"], &["socks", "localhost", "8080", ""], "socks localhost 8080 denied special_address", None),
    (
        &["allow"],
        &["socks", "a.localhost", "8080", ""],
        "socks a.localhost 8080 denied special_address",
        None,
    ),
    (
        &["allow"],
        &["proxy", "CONNECT localhost:8080 HTTP/1.1\\r\\nHost: localhost:8080\\r\\n\\r\\n"],
        "http_proxy localhost 8080 denied special_address",
        None,
    ),
    (
        &["allow"],
        &["tcp", "metadata.google.internal", "80", ""],
        "connect metadata.google.internal 80 denied special_address",
        None,
    ),
    (
        &["allow"],
        &["tcp", "loopback.example", "8080", ""],
        "connect loopback.example 8080 denied special_address",
        None,
    ),
    (&["allow"], &["tcp", "machine.example", "8080", ""], "connect machine.example 8080 denied", None),
    (
        &["allow"],
        &["tcp", "metadata.example", "80", ""],
        "connect metadata.example 80 denied special_address",
        None,
    ),
    // The proxy chooses among its addresses.
    (
        &["mixed.example:22"],
        &["tcp", "mixed.example", "22", ""],
        "connect mixed.example 22 denied special_address",
        None,
    ),
    (
        &["mixed.example:22", "10.9.8.7"],
        &["tcp", "mixed.example", "22", ""],
        "connect mixed.example 22 allowed",
        Some("mixed.example:22"),
    ),
    (
        &["allow"],
        &["tcp", "2606:4700:ffff::1", "8080", ""],
        "connect 2606:4700:ffff::1 8080 denied this_machine",
        None,
    ),
    (
        &["allow", "127.0.0.1:8080", "[::1]:8080"],
        &["socks", "localhost", "8080", ""],
        "socks localhost 8080 allowed",
        Some("localhost:8080"),
    ),
];

// P2, P3
fn proxy_is_not_asked_for_denied_destinations() -> Result<(), Failed> {
    let (upstream, asked) = proxy();
    let program = std::env::current_exe().unwrap();
    for (rules, words, event, wanted) in CASES {
        asked.lock().unwrap().clear();
        let setting = GateConfig { upstream: Some(upstream.clone()), ..setting(rules) };
        let words: Vec<&str> = ["probe"].iter().chain(*words).copied().collect();
        let ran = harness().run(setting, program.to_str().unwrap(), &words);
        let asked = asked.lock().unwrap().clone();
        let expected: Vec<&str> = wanted.iter().copied().collect();
        let reported = ran.events.iter().any(|one| line(one).starts_with(event));
        if asked != expected || !reported || ran.out.contains("REACHED") != wanted.is_some() {
            return Err(format!("{words:?}: the proxy was asked for {asked:?}: {}", ran.report()).into());
        }
    }
    Ok(())
}
