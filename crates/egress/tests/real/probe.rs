//! The probe that runs in the sandbox: a client without proxy support or resolver library. It prints what it received.

use std::io::{Read as _, Write as _};
use std::net::{
    IpAddr, Ipv4Addr, Ipv6Addr, Shutdown, SocketAddr, SocketAddrV6, TcpListener, TcpStream,
    ToSocketAddrs as _, UdpSocket,
};
use std::process::ExitCode;
use std::time::Duration;

const PATIENCE: Duration = Duration::from_secs(10);

/// Runs one action after the other, separated by `then`.
pub(crate) fn main(words: &[&str]) -> ExitCode {
    for words in words.split(|word| *word == "then") {
        match done(words) {
            Ok(text) => println!("GOT {text}"),
            Err(error) => println!("ERROR {:?} {error}", error.kind()),
        }
    }
    ExitCode::SUCCESS
}

fn done(words: &[&str]) -> std::io::Result<String> {
    match words {
        ["listening", at, words @ ..] => {
            let _kept = TcpListener::bind(at)?;
            done(words)
        }
        ["tcp", host, port, text] => tcp(host, port.parse().unwrap(), &unescaped(text)),
        ["ask", host, port, text] => ask(host, port.parse().unwrap(), &unescaped(text)),
        // Resolved by the system's library.
        ["library", host, port, text] => format!("{host}:{port}")
            .to_socket_addrs()
            .and_then(|mut found| found.next().ok_or_else(|| std::io::Error::other("no such name")))
            .and_then(|there| ask(&there.ip().to_string(), there.port(), &unescaped(text))),
        ["many", host, port, count] => many(host, port.parse().unwrap(), count.parse().unwrap()),
        ["slow", host, port, count] => slow(host, port.parse().unwrap(), count.parse().unwrap()),
        ["proxy", text] => tcp("127.0.0.1", 3128, &unescaped(text)),
        ["socks", host, port, text] => socks(&unescaped(host), port.parse().unwrap(), &unescaped(text)),
        // By the address that DNS returns.
        ["socks-by-address", host, port, text] => address(host)
            .and_then(|there| socks(there.to_string().as_bytes(), port.parse().unwrap(), &unescaped(text))),
        ["connect-by-address", host, port, text] => address(host).and_then(|there| {
            let connect = format!("CONNECT {there}:{port} HTTP/1.1\r\nHost: {there}:{port}\r\n\r\n");
            tcp("127.0.0.1", 3128, &[connect.as_bytes(), &unescaped(text)].concat())
        }),
        ["udp", host, port] => udp(host, port.parse().unwrap()),
        ["udp-to", host, port] => udp_to(host, port.parse().unwrap()),
        ["dns", server, name] => found(dns(server, &unescaped(name), false)),
        ["dns-tcp", server, name] => found(dns(server, &unescaped(name), true)),
        ["tls", host, name] => tcp(host, 443, &hello(Some(&unescaped(name)), false)),
        ["tls-after", before, host, port, name] => {
            tls_after(&unescaped(before), host, port.parse().unwrap(), name.as_bytes())
        }
        ["tls-nameless", host] => tcp(host, 443, &hello(None, false)),
        // With an encrypted ClientHello inside.
        ["tls-encrypted", host, name] => tcp(host, 443, &hello(Some(name.as_bytes()), true)),
        ["relayed", host, port, text] => relayed(host, port.parse().unwrap(), &unescaped(text)),
        ["own"] => own(),
        ["ports", host, count] => ports(host, count.parse().unwrap()),
        _ => panic!("{words:?}"),
    }
}

/// Decodes `\r`, `\n`, `\0` and `\xNN`.
fn unescaped(text: &str) -> Vec<u8> {
    let mut letters = text.bytes();
    let mut bytes = Vec::new();
    while let Some(letter) = letters.next() {
        bytes.push(match letter {
            b'\\' => match letters.next().unwrap() {
                b'r' => b'\r',
                b'n' => b'\n',
                b'0' => 0,
                b'x' => {
                    let digits = [letters.next().unwrap(), letters.next().unwrap()];
                    u8::from_str_radix(std::str::from_utf8(&digits).unwrap(), 16).unwrap()
                }
                other => other,
            },
            other => other,
        });
    }
    bytes
}

/// Parses an address; resolves a name with a DNS query of our own.
fn address(host: &str) -> std::io::Result<IpAddr> {
    if let Ok(address) = host.parse() {
        return Ok(address);
    }
    dns("127.0.0.1", host.as_bytes(), false)?.ok_or_else(|| std::io::Error::other("no such name"))
}

fn connect(host: &str, port: u16) -> std::io::Result<TcpStream> {
    let there = match host.split_once('%') {
        Some((address, zone)) => {
            SocketAddrV6::new(address.parse().unwrap(), port, 0, zone.parse().unwrap()).into()
        }
        None => SocketAddr::new(address(host)?, port),
    };
    let stream = TcpStream::connect(there)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    Ok(stream)
}

fn tcp(host: &str, port: u16, text: &[u8]) -> std::io::Result<String> {
    let mut stream = connect(host, port)?;
    if !text.is_empty() {
        stream.write_all(text)?;
    }
    heard(&mut stream)
}

/// Sends everything, shuts down, and reads to EOF.
fn ask(host: &str, port: u16, text: &[u8]) -> std::io::Result<String> {
    let mut stream = connect(host, port)?;
    stream.write_all(text)?;
    stream.shutdown(Shutdown::Write)?;
    let mut all = String::new();
    stream.read_to_string(&mut all)?;
    Ok(all.replace("\r\n", "|").replace('\n', "|"))
}

/// Reads until nothing arrives for 300 ms.
fn heard(stream: &mut TcpStream) -> std::io::Result<String> {
    let mut all = Vec::new();
    let mut more = [0; 4096];
    loop {
        match stream.read(&mut more) {
            Ok(0) if all.is_empty() => return Err(std::io::Error::other("closed without data")),
            Ok(0) => break,
            Ok(read) => all.extend_from_slice(&more[..read]),
            Err(_) if !all.is_empty() => break,
            Err(error) => return Err(error),
        }
        stream.set_read_timeout(Some(Duration::from_millis(300)))?;
    }
    Ok(String::from_utf8_lossy(&all).replace("\r\n", "|").replace('\n', "|"))
}

fn many(host: &str, port: u16, count: usize) -> std::io::Result<String> {
    let there = SocketAddr::new(address(host)?, port);
    let mut open = Vec::new();
    let mut failed = 0;
    for _ in 0..count {
        match TcpStream::connect(there) {
            Ok(stream) => open.push(stream),
            Err(_) => failed += 1,
        }
    }
    let mut served = 0;
    for stream in &mut open {
        stream.set_read_timeout(Some(PATIENCE))?;
        let asked = stream.write_all(format!("GET / HTTP/1.1\r\nHost: {host}\r\n\r\n").as_bytes());
        let mut answer = [0; 12];
        if asked.and_then(|()| stream.read_exact(&mut answer)).is_ok() && &answer == b"HTTP/1.1 200" {
            served += 1;
        }
    }
    Ok(format!("{served} served, {} not, {failed} refused", open.len() - served))
}

/// Opens connections that never finish their request, and one that does.
fn slow(host: &str, port: u16, count: usize) -> std::io::Result<String> {
    let there = SocketAddr::new(address(host)?, port);
    let mut open = Vec::new();
    for _ in 0..count {
        let mut stream = TcpStream::connect(there)?;
        stream.write_all(b"GET / HT")?;
        open.push(stream);
    }
    tcp(host, port, format!("GET / HTTP/1.1\r\nHost: {host}\r\n\r\n").as_bytes())
}

fn socks(host: &[u8], port: u16, text: &[u8]) -> std::io::Result<String> {
    let mut stream = connect("127.0.0.1", 3128)?;
    stream.write_all(&[5, 1, 0])?;
    stream.read_exact(&mut [0; 2])?;
    stream.write_all(&[&[5, 1, 0, 3, host.len() as u8][..], host, &port.to_be_bytes()].concat())?;
    let mut answer = [0; 10];
    stream.read_exact(&mut answer)?;
    if answer[1] != 0 {
        return Err(std::io::Error::other(format!("socks says {}", answer[1])));
    }
    stream.write_all(text)?;
    heard(&mut stream)
}

fn udp(host: &str, port: u16) -> std::io::Result<String> {
    let there = SocketAddr::new(address(host)?, port);
    let socket = UdpSocket::bind(if there.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" })?;
    socket.connect(there)?;
    socket.set_read_timeout(Some(PATIENCE))?;
    socket.send(b"hello")?;
    let mut more = [0; 100];
    // The ICMP error arrives as the result of this call.
    let read = socket.recv(&mut more)?;
    Ok(String::from_utf8_lossy(&more[..read]).into_owned())
}

/// Sends without connecting, so the program gets no error. A connected socket beside it shows that the kernel has processed
/// the datagram (per CPU, so it repeats).
fn udp_to(host: &str, port: u16) -> std::io::Result<String> {
    let there = SocketAddr::new(address(host)?, port);
    let any = if there.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" };
    let socket = UdpSocket::bind(any)?;
    for _ in 0..20 {
        socket.send_to(b"hello", there)?;
        match udp(&there.ip().to_string(), port + 1) {
            Err(error) if error.kind() == std::io::ErrorKind::ConnectionRefused => {}
            other => return other,
        }
    }
    Ok("UNHEARD".to_owned())
}

fn found(answer: std::io::Result<Option<IpAddr>>) -> std::io::Result<String> {
    answer.map(|found| found.map_or("no such name".to_owned(), |ip| ip.to_string()))
}

fn dns(server: &str, name: &[u8], stream: bool) -> std::io::Result<Option<IpAddr>> {
    let mut query = vec![0x12, 0x34, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0];
    for label in name.split(|byte| *byte == b'.') {
        query.push(label.len() as u8);
        query.extend(label);
    }
    let server: IpAddr = server.parse().unwrap();
    let kind = if server.is_ipv6() { 28 } else { 1 };
    query.extend([0, 0, kind, 0, 1]);
    let mut answer = vec![0; 600];
    if stream {
        let mut stream = TcpStream::connect((server, 53))?;
        stream.set_read_timeout(Some(PATIENCE))?;
        // Length and message in two writes.
        stream.write_all(&(query.len() as u16).to_be_bytes())?;
        stream.write_all(&query)?;
        let mut length = [0; 2];
        stream.read_exact(&mut length)?;
        answer.truncate(usize::from(u16::from_be_bytes(length)));
        stream.read_exact(&mut answer)?;
    } else {
        let socket = UdpSocket::bind(if server.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" })?;
        // Connected: a response from another address than the server's would not arrive.
        socket.connect((server, 53))?;
        socket.set_read_timeout(Some(PATIENCE))?;
        socket.send(&query)?;
        let read = socket.recv(&mut answer)?;
        answer.truncate(read);
    }
    if answer[3] & 15 != 0 || answer[7] == 0 {
        return Ok(None);
    }
    Ok(Some(if kind == 28 {
        let six: [u8; 16] = answer[answer.len() - 16..].try_into().unwrap();
        Ipv6Addr::from(six).into()
    } else {
        let four: [u8; 4] = answer[answer.len() - 4..].try_into().unwrap();
        Ipv4Addr::from(four).into()
    }))
}

/// Connects to many ports of one host.
fn ports(host: &str, count: u16) -> std::io::Result<String> {
    let there = address(host)?;
    let refused = |port: &u16| {
        TcpStream::connect((there, *port))
            .is_err_and(|error| error.kind() == std::io::ErrorKind::PermissionDenied)
    };
    let refused = (10_000..10_000 + count).filter(refused).count();
    Ok(format!("{refused} refused"))
}

/// Connects to a server of its own in the sandbox.
fn own() -> std::io::Result<String> {
    let listener = TcpListener::bind("127.0.0.1:8080")?;
    let serving = std::thread::spawn(move || listener.accept().unwrap().0.write_all(b"myself"));
    let mut text = String::new();
    TcpStream::connect("127.0.0.1:8080")?.read_to_string(&mut text)?;
    serving.join().unwrap()?;
    Ok(text)
}

/// TLS after a preamble that the server answers with one byte.
fn tls_after(before: &[u8], host: &str, port: u16, name: &[u8]) -> std::io::Result<String> {
    let mut stream = connect(host, port)?;
    stream.write_all(before)?;
    stream.read_exact(&mut [0])?;
    stream.write_all(&hello(Some(name), false))?;
    heard(&mut stream)
}

/// Connects through a relay of its own in the sandbox.
fn relayed(host: &str, port: u16, text: &[u8]) -> std::io::Result<String> {
    let listener = TcpListener::bind("127.0.0.1:9000")?;
    std::thread::scope(|scope| {
        let relay = scope.spawn(move || {
            let (mut near, _) = listener.accept()?;
            let mut far = connect(host, port)?;
            let mut asked = Vec::new();
            near.read_to_end(&mut asked)?;
            far.write_all(&asked)?;
            far.shutdown(Shutdown::Write)?;
            std::io::copy(&mut far, &mut near)
        });
        let heard = ask("127.0.0.1", 9000, text);
        relay.join().unwrap().and(heard)
    })
}

/// A ClientHello with this SNI; `encrypted` adds an Encrypted ClientHello extension (ECH).
fn hello(name: Option<&[u8]>, encrypted: bool) -> Vec<u8> {
    let vector =
        |width: usize, content: &[u8]| [&(content.len() as u32).to_be_bytes()[4 - width..], content].concat();
    let sni =
        name.map(|name| [vec![0, 0], vector(2, &vector(2, &[vec![0], vector(2, name)].concat()))].concat());
    let inner = encrypted.then(|| [vec![0xfe, 0x0d], vector(2, &[0, 0, 1, 0, 1, 7, 0, 0, 0, 0])].concat());
    let versions = [vec![0, 43], vector(2, &[2, 3, 4])].concat();
    let extensions = vector(2, &[versions, inner.unwrap_or_default(), sni.unwrap_or_default()].concat());
    let body = [vec![3, 3], vec![7; 32], vec![0], vector(2, &[0x13, 1]), vec![1, 0], extensions].concat();
    let greeting = [vec![1], vector(3, &body)].concat();
    [&[0x16, 3, 1][..], &(greeting.len() as u16).to_be_bytes(), &greeting].concat()
}
