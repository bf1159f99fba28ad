//! `network.terminate`: TLS termination at the gate, from the configuration to the program and back. The server is behind an
//! upstream proxy of the test, which sends every name to it.

use std::io::Write as _;
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::sync::{Arc, Mutex};

use tokio_rustls::rustls::{ServerConfig, ServerConnection, StreamOwned};

use crate::home::{Home, Ran, file_containing};

const VALUE: &str = "real-api-key-0123456789abcdef";

/// A secret of a scope that no host is given.
const OTHER: &str = "another-scopes-value-0123456789";

struct ProxiedServer {
    proxy: String,
    certificate: String,
    saw: Arc<Mutex<Vec<String>>>,
}

/// A server for `api.example` that echoes the request, and a proxy that leads to it.
fn server() -> ProxiedServer {
    let made = vambrace_selfsigned::for_names(&["api.example"]);
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let proxy = format!("http://{}", listener.local_addr().unwrap());
    let saw: Arc<Mutex<Vec<String>>> = Arc::default();
    let (config, kept) = (Arc::new(made.config), Arc::clone(&saw));
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let (config, kept) = (Arc::clone(&config), Arc::clone(&kept));
            std::thread::spawn(move || serve(stream, config, &kept));
        }
    });
    ProxiedServer { proxy, certificate: made.pem, saw }
}

fn serve(mut stream: TcpStream, config: Arc<ServerConfig>, saw: &Mutex<Vec<String>>) {
    head(&mut stream);
    stream.write_all(b"HTTP/1.1 200 OK\r\n\r\n").unwrap();
    let mut stream = StreamOwned::new(ServerConnection::new(config).unwrap(), stream);
    let asked = head(&mut stream);
    if asked.is_empty() {
        return;
    }
    saw.lock().unwrap().push(asked.clone());
    let length = asked.len();
    let answer = format!("HTTP/1.1 200 OK\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{asked}");
    let _ = stream.write_all(answer.as_bytes());
    let _ = stream.flush();
}

fn head(stream: &mut impl std::io::Read) -> String {
    let mut held = Vec::new();
    let mut byte = [0; 1];
    while !held.ends_with(b"\r\n\r\n") && matches!(stream.read(&mut byte), Ok(1)) {
        held.push(byte[0]);
    }
    String::from_utf8(held).unwrap()
}

fn ask(home: &Home, server: &ProxiedServer, words: &str) -> Ran {
    let script = format!("curl -sS -m 20 {words} 2>&1; echo; env");
    let options = ["--network", "api.example", "--upstream-proxy", &server.proxy, "--json"];
    let program = ["--", "/bin/sh", "-c", &script];
    home.run(["sandbox", "run"].iter().chain(&options).chain(&program))
}

fn home(server: &ProxiedServer) -> Home {
    let home = Home::bare();
    std::fs::write(home.path("roots.pem"), &server.certificate).unwrap();
    std::fs::write(home.path("key"), format!("{VALUE}\n")).unwrap();
    std::fs::write(home.path("other"), OTHER).unwrap();
    home.user_config(&format!(
        "network:\n  roots: {}\n  terminate:\n    - hosts: [api.example]\n      methods: [GET]\n      paths: ['/v1/*']\n      \
         secret: api\n      header: X-Api-Key\n      env: API_KEY\nsecrets: {{scopes: {{api: {{file: {}}}, other: {{file: {}}}}}}}\n",
        home.path("roots.pem").display(),
        home.path("key").display(),
        home.path("other").display(),
    ));
    home
}

fn no_curl() -> bool {
    let missing = !Path::new("/usr/bin/curl").exists();
    if missing {
        vambrace_skip::skip("curl is not installed");
    }
    missing
}

// P5: the value never enters the sandbox
#[test]
fn program_uses_a_credential_that_it_never_sees() {
    if no_curl() {
        return;
    }
    let server = server();
    let home = home(&server);
    let ran = ask(&home, &server, "-H \"X-Api-Key: $API_KEY\" https://api.example/v1/x");
    let reported = ran.json();
    let said = reported["stdout"].as_str().unwrap();
    assert!(said.contains("GET /v1/x HTTP/1.1") && said.contains("X-Api-Key: [REDACTED"), "{reported}");
    assert!(said.contains("API_KEY=vambrace-placeholder-") && said.contains("SSL_CERT_FILE="), "{reported}");
    assert!(!ran.out.contains(VALUE) && !ran.err.contains(VALUE), "{ran:?}");
    assert!(server.saw.lock().unwrap()[0].contains(&format!("X-Api-Key: {VALUE}\r\n")));
    let events = reported["network"]["events"].to_string();
    assert!(events.contains("\"credential\"") && events.contains("x-api-key"), "{events}");
    assert_eq!(file_containing(&home.state(), VALUE), None);
    // The response has no value of another scope either; the program itself counts the matches, before its output is redacted.
    let words = format!("-H 'X-Told: {OTHER}' https://api.example/v1/x | grep -c {OTHER}");
    let reported = ask(&home, &server, &words).json();
    assert!(reported["stdout"].as_str().unwrap().starts_with("0\n"), "{reported}");
    assert!(server.saw.lock().unwrap()[1].contains(&format!("X-Told: {OTHER}\r\n")));
    // The certificate file is removed.
    assert_eq!(std::fs::read_dir(home.state().join("certificates")).unwrap().count(), 0);
}

// P3
#[test]
fn requests_that_the_configuration_denies_do_not_reach_the_server() {
    if no_curl() {
        return;
    }
    let server = server();
    let home = home(&server);
    for words in [
        "-X POST https://api.example/v1/x",
        "https://api.example/admin",
        "--path-as-is https://api.example/v1/../admin",
    ] {
        let reported = ask(&home, &server, words).json();
        assert!(
            reported["stdout"].as_str().unwrap().contains("denied by the network policy"),
            "{words}: {reported}"
        );
    }
    assert!(server.saw.lock().unwrap().is_empty());
}

// P5
#[test]
fn project_cannot_terminate_tls_and_a_missing_secret_starts_nothing() {
    let server = server();
    let own = home(&server);
    std::fs::remove_file(own.path("key")).unwrap();
    assert_ne!(ask(&own, &server, "https://api.example/v1/x").code, 0);
    assert!(server.saw.lock().unwrap().is_empty());
    let project = Home::with("network: {terminate: [{hosts: [api.example]}]}\n");
    let ran = project.run(["config", "show", "--json"]);
    assert!(!ran.out.contains("api.example"), "{}", ran.out);
    for bad in [
        "{hosts: []}",
        "{hosts: ['10.0.0.1']}",
        "{hosts: [a.b], secret: x}",
        "{hosts: [a.b], paths: [x]}",
        "{hosts: [a.b], methods: [get]}",
    ] {
        project.user_config(&format!("network: {{terminate: [{bad}]}}\n"));
        let ran = project.run(["sandbox", "run", "--", "true"]);
        assert!(ran.code == 125 && ran.err.contains("network.terminate[0]"), "{bad}: {ran:?}");
    }
}

// P5: the gate cannot protect a secret that the program can read
#[test]
fn credential_in_a_file_that_the_program_can_read_is_denied() {
    let home = Home::bare();
    let outside = home.path("keys");
    let (shown, hidden) = (home.project().join("key"), home.project().join("secrets/key"));
    for file in [&outside.join("key"), &shown, &hidden] {
        std::fs::create_dir_all(file.parent().unwrap()).unwrap();
        std::fs::write(file, VALUE).unwrap();
    }
    let ran = |file: &Path, options: &[&str]| {
        home.user_config(&format!(
            "network:\n  terminate: [{{hosts: [api.example], secret: api, header: X-Api-Key, env: API_KEY}}]\n\
             secrets: {{scopes: {{api: {{file: {}}}}}}}\n",
            file.display(),
        ));
        let words = ["sandbox", "run", "--network", "api.example"];
        home.run(words.iter().chain(options).chain(&["--", "/bin/true"]))
    };
    let granted = outside.to_str().unwrap();
    assert_eq!(ran(&outside.join("key"), &[]).code, 0);
    assert_eq!(ran(&hidden, &[]).code, 0);
    for refused in [ran(&shown, &[]), ran(&outside.join("key"), &["--read", granted])] {
        assert!(refused.code != 0 && refused.err.contains("can read the file"), "{refused:?}");
    }
    // Without a file system the program cannot read it.
    assert_eq!(ran(&shown, &["--filesystem", "deny"]).code, 0);
}
