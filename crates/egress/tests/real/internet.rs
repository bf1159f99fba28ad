//! The servers of the test internet, on all its addresses: HTTP, HTTPS, an SSH banner, PostgreSQL that rejects TLS, and a
//! name server with rebinding and aliases. Each logs what it receives before it answers.

use std::fs::OpenOptions;
use std::io::{Read as _, Write as _};
use std::net::{IpAddr, TcpListener, TcpStream, UdpSocket};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use tokio_rustls::rustls::{ServerConfig, ServerConnection, StreamOwned};

pub(crate) fn main(dir: &str) -> ExitCode {
    let dir = PathBuf::from(dir);
    let tls = tls(&dir);
    for (port, serve) in [
        (80, http as fn(TcpStream, &Arc<ServerConfig>)),
        (8080, http),
        (3128, http),
        (443, https),
        (22, ssh),
        (5432, postgres),
    ] {
        let listener = TcpListener::bind(("::", port)).unwrap();
        // A backlog for 1,000 connections at once.
        rustix::net::listen(&listener, 4096).unwrap();
        let (dir, tls) = (dir.clone(), Arc::clone(&tls));
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let (tls, dir) = (Arc::clone(&tls), dir.clone());
                thread::spawn(move || {
                    let local = stream.local_addr().unwrap();
                    note(&dir, "connections", &format!("{} {}", local.ip().to_canonical(), local.port()));
                    serve(stream, &tls);
                });
            }
        });
    }
    let socket = UdpSocket::bind("0.0.0.0:53").unwrap();
    // The setup script waits for this.
    std::fs::write("/proc/self/fd/3", "listening\n").unwrap();
    names(&dir, &socket);
    ExitCode::SUCCESS
}

pub(crate) fn note(dir: &Path, name: &str, line: &str) {
    let mut file = OpenOptions::new().create(true).append(true).open(dir.join(name)).unwrap();
    file.write_all(format!("{line}\n").as_bytes()).unwrap();
}

fn tls(dir: &Path) -> Arc<ServerConfig> {
    let made = vambrace_selfsigned::for_names(&["good.example", "www.good.example", "evil.example"]);
    // Tests that trust this certificate read it from here.
    std::fs::write(dir.join("certificate"), &made.der).unwrap();
    Arc::new(made.config)
}

/// Answers each request of a connection with its Host header.
fn http(stream: TcpStream, _: &Arc<ServerConfig>) {
    answer(stream);
}

fn https(stream: TcpStream, tls: &Arc<ServerConfig>) {
    answer(StreamOwned::new(ServerConnection::new(Arc::clone(tls)).unwrap(), stream));
}

fn answer(mut stream: impl std::io::Read + std::io::Write) {
    let mut held = Vec::new();
    loop {
        while let Some(end) = held.windows(4).position(|part| part == b"\r\n\r\n") {
            let rest = held.split_off(end + 4);
            let head = String::from_utf8_lossy(&held).into_owned();
            held = rest;
            let host = head.lines().find_map(|line| {
                let (name, value) = line.split_once(':')?;
                name.eq_ignore_ascii_case("host").then(|| value.trim().to_owned())
            });
            let path = head.split(' ').nth(1).unwrap_or_default().to_owned();
            let (code, extra) = match path.as_str() {
                "/away" => ("302 Found", "Location: http://evil.example/\r\n"),
                "/upgrade" => ("101 Switching Protocols", "Upgrade: echo\r\nConnection: upgrade\r\n"),
                _ => ("200 OK", ""),
            };
            let authorization = head.lines().find_map(|line| {
                let (name, value) = line.split_once(':')?;
                name.eq_ignore_ascii_case("authorization").then(|| value.trim().to_owned())
            });
            note_of(&head, authorization.as_deref());
            let body = if let (true, Some(said)) = (path.starts_with("/echo"), &authorization) {
                format!("you are {said}\n")
            } else if path == "/large" {
                "x".repeat(3 << 20)
            } else {
                format!("served {}\n", host.unwrap_or_default())
            };
            let length = if code.starts_with("101") {
                String::new()
            } else {
                format!("Content-Length: {}\r\n", body.len())
            };
            let sent = stream.write_all(format!("HTTP/1.1 {code}\r\n{extra}{length}\r\n").as_bytes());
            if code.starts_with("101") {
                let mut more = [0; 100];
                let read = stream.read(&mut more).unwrap_or(0);
                let _ = stream.write_all(&more[..read]);
                return;
            }
            if sent.and_then(|()| stream.write_all(body.as_bytes())).and_then(|()| stream.flush()).is_err() {
                return;
            }
        }
        let mut more = [0; 4096];
        match stream.read(&mut more) {
            Ok(read) if read > 0 => held.extend_from_slice(&more[..read]),
            _ => return,
        }
    }
}

/// Logs the Authorization header of a request.
fn note_of(head: &str, authorization: Option<&str>) {
    let Some(dir) = std::env::args().nth(2) else { return };
    let path = head.split(' ').nth(1).unwrap_or_default();
    let host = head
        .lines()
        .find_map(|line| line.to_ascii_lowercase().strip_prefix("host:").map(|host| host.trim().to_owned()));
    if let Some(said) = authorization {
        note(Path::new(&dir), "authorizations", &format!("{} {path} {said}", host.unwrap_or_default()));
    }
}

/// The server sends first.
fn ssh(mut stream: TcpStream, _: &Arc<ServerConfig>) {
    let _ = stream.write_all(b"SSH-2.0-test\r\n");
    let mut more = [0; 1000];
    let read = stream.read(&mut more).unwrap_or(0);
    let _ = stream.write_all(&more[..read]);
}

/// The client sends first, in binary: SSLRequest, which the server rejects.
fn postgres(mut stream: TcpStream, _: &Arc<ServerConfig>) {
    let mut asked = [0; 8];
    if stream.read_exact(&mut asked).is_ok() && asked[4..] == [4, 210, 22, 47] {
        let _ = stream.write_all(b"N");
        let mut more = [0; 1000];
        let _ = stream.read(&mut more);
        let _ = stream.write_all(b"E\0\0\0\x19SFATAL\0C28000\0Mno\0\0");
    }
}

/// The addresses of a name.
fn zone(name: &str, rebinds: &AtomicUsize) -> Vec<IpAddr> {
    let list: &[&str] = match name {
        "good.example" | "www.good.example" | "a.b.c.good.example" | "xn--bcher-kva.example" => {
            &["93.184.216.34", "2606:4700::1"]
        }
        "four.example" => &["93.184.216.34"],
        "six.example" => &["2606:4700::1"],
        "evil.example" => &["93.184.216.35"],
        "private.example" | "cname.example" => &["10.9.8.7"],
        "alias.example" => &["93.184.216.34"],
        "metadata.example" => &["169.254.169.254"],
        "metadata6.example" => &["fd00:ec2::254"],
        "nat64.example" => &["64:ff9b::a9fe:a9fe"],
        "loopback.example" => &["127.0.0.1", "::1"],
        "machine.example" => &["203.0.113.1", "2606:4700:ffff::1"],
        "mixed.example" => &["10.9.8.7", "93.184.216.34"],
        "silent.example" => &[],
        // A public address the first time, loopback from then on.
        "rebind.example" if rebinds.fetch_add(1, Ordering::Relaxed) == 0 => &["93.184.216.34"],
        "rebind.example" => &["127.0.0.1"],
        _ => &[],
    };
    list.iter().map(|text| text.parse().unwrap()).collect()
}

fn names(dir: &Path, socket: &UdpSocket) {
    let rebinds = AtomicUsize::new(0);
    let mut packet = [0; 600];
    while let Ok((length, from)) = socket.recv_from(&mut packet) {
        let query = &packet[..length];
        let (mut at, mut labels) = (12, Vec::new());
        while query[at] != 0 {
            let end = at + 1 + usize::from(query[at]);
            labels.push(String::from_utf8_lossy(&query[at + 1..end]).into_owned());
            at = end;
        }
        let name = labels.join(".").to_ascii_lowercase();
        let six = query[at + 2] == 28;
        let end = at + 5;
        if !(six && name == "rebind.example") {
            note(dir, "names", &name);
        }
        // The rebinding name has no IPv6 addresses, so that each lookup counts once.
        let all = if six && name == "rebind.example" { Vec::new() } else { zone(&name, &rebinds) };
        let answers: Vec<Vec<u8>> = all
            .into_iter()
            .filter(|address| address.is_ipv6() == six)
            .map(|address| match address {
                IpAddr::V4(four) => four.octets().to_vec(),
                IpAddr::V6(six) => six.octets().to_vec(),
            })
            .collect();
        let alias: Option<&[u8]> = match name.as_str() {
            "cname.example" => Some(b"\x07private"),
            "alias.example" => Some(b"\x04good"),
            _ => None,
        };
        let count = answers.len() + usize::from(alias.is_some());
        let mut reply = query[..end].to_vec();
        reply[2..12].copy_from_slice(&[0x81, 0x80, 0, 1, 0, count as u8, 0, 0, 0, 0]);
        // Offset of the owner name of the addresses: the question's name, or the name that the alias points to.
        let mut whose = 12;
        if let Some(label) = alias {
            // `example` follows the first label of the question.
            let above = 12 + 1 + query[12];
            reply.extend([0xc0, 12, 0, 5, 0, 1, 0, 0, 0, 0, 0, label.len() as u8 + 2]);
            whose = reply.len() as u8;
            reply.extend(label);
            reply.extend([0xc0, above]);
        }
        for address in answers {
            reply.extend([
                0xc0,
                whose,
                0,
                if six { 28 } else { 1 },
                0,
                1,
                0,
                0,
                0,
                0,
                0,
                address.len() as u8,
            ]);
            reply.extend(address);
        }
        let _ = socket.send_to(&reply, from);
    }
}
