//! `vambrace sandbox run --network`: what a program can reach, what is reported, and which rules are rejected.

use std::io::{Read as _, Write as _};
use std::net::TcpListener;

use crate::home::{Home, Ran};

/// A server on the machine's loopback that answers each connection with one line.
fn server() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let mut asked = [0; 100];
            let _ = stream.read(&mut asked);
            let _ = stream.write_all(b"served\n");
        }
    });
    port
}

/// Connects with bash's `/dev/tcp`, which needs no other program.
fn ask(home: &Home, network: &str, place: &str, options: &[&str]) -> Ran {
    let script = format!("exec 3<>/dev/tcp/{place} && echo hello >&3 && cat <&3");
    let mut words = vec!["sandbox", "run", "--network", network];
    words.extend(options);
    words.extend(["--", "/bin/bash", "-c", &script]);
    home.run(words)
}

// P2, P12: network deny blocks http
#[test]
fn network_deny_blocks_sockets_and_reports_the_denial() {
    let (home, port) = (Home::bare(), server());
    let ran = ask(&home, "deny", &format!("127.0.0.1/{port}"), &["--json"]);
    assert_ne!(ran.code, 0, "{ran:?}");
    let reported = ran.json();
    assert_eq!(reported["stdout"], "");
    let denials = reported["denials"].as_array().unwrap();
    assert!(denials.iter().any(|denial| denial["path"] == "socket (IPv4)"), "{denials:?}");
    assert!(reported.get("network").is_none());
}

/// Action, host, port and reason of each attempt.
fn attempts(reported: &serde_json::Value) -> Vec<String> {
    let events = reported["network"]["events"].as_array().unwrap_or_else(|| panic!("{reported:#}"));
    let words = |event: &serde_json::Value| {
        ["action", "host", "port", "reason"].map(|key| event[key].to_string().replace('"', "")).join(" ")
    };
    events.iter().map(words).collect()
}

// P9: nothing leaves the machine, and every attempt is reported with name and port
#[test]
fn network_without_allowed_hosts_reports_names_and_ports() {
    let home = Home::bare();
    for (network, options) in [("loopback", &["--json"][..]), ("deny", &["--json", "--observe", "all"])] {
        let ran = ask(&home, network, "secret.evil.example/80", options);
        assert!(ran.code != 0, "{ran:?}");
        assert_eq!(attempts(&ran.json()), ["dns secret.evil.example null host_not_allowed"], "{network}");
        let ran = ask(&home, network, "93.184.216.34/8443", options);
        assert!(ran.code != 0, "{ran:?}");
        assert_eq!(attempts(&ran.json()), ["connect 93.184.216.34 8443 address_not_allowed"], "{network}");
    }
}

// P9
#[test]
fn explain_lists_the_hosts_that_a_program_needs() {
    let home = Home::bare();
    for network in ["deny", "loopback"] {
        let reported = ask(&home, network, "secret.evil.example/80", &["--json", "--explain"]).json();
        assert_eq!(
            attempts(&reported["explain"]),
            ["dns secret.evil.example null host_not_allowed"],
            "{network}"
        );
        assert_eq!(
            reported["explain"]["grants"],
            serde_json::json!(["--network secret.evil.example"]),
            "{reported:#}"
        );
    }
    let ran = ask(&home, "deny", "93.184.216.34/8443", &["--explain"]);
    assert!(
        ran.err.contains("denied: connect 93.184.216.34:8443: no rule allows this address"),
        "{}",
        ran.err
    );
    assert!(ran.err.contains("would need: --network 93.184.216.34:8443"), "{}", ran.err);
}

// P3, P9
#[test]
fn listed_address_is_reached_and_every_attempt_is_reported() {
    let (home, port) = (Home::bare(), server());
    let ran = ask(&home, &format!("127.0.0.1:{port}"), &format!("127.0.0.1/{port}"), &["--json"]);
    let reported = ran.json();
    assert_eq!((ran.code, &reported["stdout"]), (0, &"served\n".into()), "{reported}");
    let [event] = &reported["network"]["events"].as_array().unwrap()[..] else { panic!("{reported}") };
    let facts =
        ["phase", "action", "host", "verdict", "status", "address"].map(|key| event[key].as_str().unwrap());
    assert_eq!(facts, ["egress", "connect", "127.0.0.1", "allowed", "ok", "127.0.0.1"]);
    assert_eq!(
        (&event["port"], &event["sent_bytes"], &event["received_bytes"]),
        (&port.into(), &6.into(), &7.into())
    );
    assert!(event["duration_ms"].as_f64().unwrap() > 0.0);
}

// P2, P3
#[test]
fn unlisted_hosts_are_denied_by_name_and_by_address() {
    let (home, port) = (Home::bare(), server());
    let ran = ask(&home, "good.example", "evil.example/80", &[]);
    assert_ne!(ran.code, 0);
    assert!(ran.err.contains("denied: dns evil.example: no rule allows this host"), "{}", ran.err);
    let ran = ask(&home, "allow", "169.254.169.254/80", &[]);
    assert!(ran.err.contains("denied: connect 169.254.169.254:80: a cloud metadata address"), "{}", ran.err);
    // The machine's loopback is not the sandbox's.
    let ran = ask(&home, "allow", &format!("127.0.0.1/{port}"), &[]);
    assert!(ran.code != 0 && !ran.out.contains("served"), "{ran:?}");
}

#[test]
fn invalid_rules_are_rejected_with_a_suggestion() {
    let home = Home::bare();
    for (network, hint) in [
        ("https://example.org/x", "example.org"),
        ("*", "allow"),
        ("10.1.2.3/8", "10.0.0.0/8"),
        ("127.1", "four decimal"),
        ("deny,192.0.2.2:19000", "remove it"),
        ("192.0.2.2,Deny:80", "remove it"),
        ("loopback,192.0.2.2", "remove it"),
        ("!allow,192.0.2.2", "without `!`"),
        ("allow:443", "without `!` and port"),
    ] {
        let ran = home.run(["sandbox", "run", "--network", network, "--", "true"]);
        assert!(ran.code == 2 && ran.err.contains(hint), "{network}: {ran:?}");
    }
    let ran = home.run(["sandbox", "run", "--network", "*.github.io", "--", "true"]);
    assert!(ran.code == 0 && ran.err.contains("anyone can register"), "{ran:?}");
    let ran =
        home.run(["sandbox", "run", "--network", "a.com", "--upstream-proxy", "nonsense", "--", "true"]);
    assert_eq!(ran.code, 2, "{ran:?}");
}

// S3: never silently weaker
#[test]
fn upstream_proxy_is_asked_for_the_name() {
    let home = Home::bare();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let proxy = format!("http://{}", listener.local_addr().unwrap());
    let heard = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut asked = vec![0; 1000];
        let read = stream.read(&mut asked).unwrap();
        asked.truncate(read);
        // The bytes behind the response head come from the server.
        stream.write_all(b"HTTP/1.1 200 OK\r\n\r\nserved by proxy\n").unwrap();
        // Closing with unread bytes would reset the connection.
        stream.read_exact(&mut [0; 6]).unwrap();
        String::from_utf8(asked).unwrap()
    });
    let ran = ask(&home, "db.example:5432", "db.example/5432", &["--upstream-proxy", &proxy]);
    assert_eq!((ran.code, ran.out.as_str()), (0, "served by proxy\n"), "{ran:?}");
    assert!(heard.join().unwrap().starts_with("CONNECT db.example:5432 HTTP/1.1\r\n"));
}

// P3: configuration files narrow the command line, and a project's own file can only narrow
#[test]
fn configuration_narrows_the_command_line() {
    let (home, one, two) = (Home::bare(), server(), server());
    let reaches = |home: &Home, network: &str, port: u16| {
        let ran = ask(home, network, &format!("127.0.0.1/{port}"), &[]);
        ran.code == 0 && ran.out == "served\n"
    };
    let both = format!("127.0.0.1:{one},127.0.0.1:{two}");
    assert!(reaches(&home, &both, one) && reaches(&home, &both, two));
    home.user_config(&format!("network: {{allow: ['127.0.0.1:{one}']}}\n"));
    assert!(reaches(&home, &both, one) && !reaches(&home, &both, two));
    // `*` does not include this machine.
    home.user_config("network: {allow: ['*']}\n");
    assert!(!reaches(&home, &both, one));
    home.user_config(&format!("network: {{deny: ['127.0.0.1:{two}']}}\n"));
    assert!(reaches(&home, &both, one) && !reaches(&home, &both, two));
    home.user_config("");
    home.write(".vambrace/config.yaml", &format!("network: {{allow: ['127.0.0.1:{two}']}}\n"));
    assert!(!reaches(&home, &both, one) && reaches(&home, &both, two));
    assert!(!reaches(&home, &format!("127.0.0.1:{one}"), two));
    home.user_config(&format!("network: {{allow: ['127.0.0.1:{one}']}}\n"));
    assert!(!reaches(&home, &both, one) && !reaches(&home, &both, two));
}

#[test]
fn invalid_configuration_entry_is_reported_with_its_line() {
    let home = Home::bare();
    home.user_config("network:\n  allow:\n    - good.example\n    - https://evil.example/x\n");
    let ran = home.run(["sandbox", "run", "--network", "good.example", "--", "true"]);
    assert!(ran.code == 125 && ran.err.contains("config.yaml:4:"), "{ran:?}");
    assert!(ran.err.contains("write the host only: `evil.example`"), "{}", ran.err);
}

// P3: the configuration is warned about like the command line
#[test]
fn overly_broad_configuration_entry_causes_a_warning() {
    let home = Home::new();
    home.user_config("network: {allow: ['*.com', '*.example.com']}\n");
    const WARNING: &str = "`*.com` allows names that anyone can register";
    for words in [
        &["sandbox", "run", "--network", "a.example.com", "--", "true"][..],
        &["config", "show", "network"],
        &["doctor"],
    ] {
        let ran = home.run(words);
        assert!(format!("{}{}", ran.out, ran.err).contains(WARNING), "{ran:?}");
    }
    let reported = home.run(["config", "show", "--json"]).json();
    assert_eq!(reported["warnings"].as_array().map(Vec::len), Some(1), "{reported}");
}
