//! The cost of the egress gate: connections and bytes from inside a sandbox through the gate to a server on the host's
//! loopback, compared with the same client and server without a sandbox; a thousand connections at once; and the spawn
//! of a sandbox with an allow list compared with a bare `posix_spawn`.
//!
//! Client and server are this program with hidden arguments. The client measures and prints its figure.

use std::{
    io::{BufRead as _, BufReader, Read as _, Write as _},
    net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream},
    process::{Child, Command, Stdio},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use tokio::runtime::Runtime;
use vambrace_egress::{EgressGate, GateConfig, HostName, NetworkRules, Resolve, ResolveFuture, TrafficCaps};
use vambrace_sandbox::{Exit, Input, NetworkMode, Sandbox, Spec, Tier};

use crate::{
    read::{micros, percentile},
    report::{Report, Requirement},
    spawn::{BenchDirs, confined, medians, spawned},
};

/// The hidden arguments.
pub(crate) const CLIENT: &str = "egress-client";
pub(crate) const SERVER: &str = "egress-server";

const ROUNDS: usize = 7;
const CONNECTIONS: usize = 300;
const BYTES: u64 = 512 << 20;
const MANY: usize = 1000;
const SPAWNS: usize = 100;
const NAME: &str = "bench.example";

pub(crate) fn run() -> Report {
    let mut report = Report::new("egress");
    let place = BenchDirs::new();
    let server = Server::start();
    let stage = EgressBench {
        sandbox: place.sandbox(),
        runtime: Runtime::new().unwrap(),
        place: &place,
        port: server.port,
        server: server.child.id(),
    };
    stage.latency(&mut report);
    stage.throughput(&mut report);
    stage.parallel(&mut report);
    stage.spawns(&mut report);
    report
}

struct EgressBench<'a> {
    sandbox: Sandbox,
    runtime: Runtime,
    place: &'a BenchDirs,
    port: u16,
    /// The server's process.
    server: u32,
}

/// Resolves every name to the loopback address.
#[derive(Debug)]
struct LoopbackResolver;

impl Resolve for LoopbackResolver {
    fn resolve(&self, _: &HostName) -> ResolveFuture {
        Box::pin(async { Ok(vec![IpAddr::V4(Ipv4Addr::LOCALHOST)]) })
    }
}

impl EgressBench<'_> {
    fn gate(&self) -> Arc<EgressGate> {
        let rules = [format!("127.0.0.1:{}", self.port), format!("{NAME}:{}", self.port)];
        let rules = NetworkRules::parse(rules.iter().map(String::as_str)).unwrap();
        let setting = GateConfig {
            resolver: Arc::new(LoopbackResolver),
            caps: TrafficCaps { bytes: u64::MAX, ..TrafficCaps::default() },
            ..GateConfig::new(rules)
        };
        EgressGate::new(setting, self.runtime.handle().clone())
    }

    /// Runs the client in a sandbox; returns its figure.
    fn inside(&self, host: &str, what: &str) -> f64 {
        let program = std::env::current_exe().unwrap();
        let mut spec = Spec::new(&program, self.place.path("empty"));
        spec.arguments = [CLIENT, host, &self.port.to_string(), what].map(Into::into).to_vec();
        spec.read = vec![program];
        spec.network = NetworkMode::Gated;
        spec.limits.open_files = 4096;
        spec.limits.time = Duration::from_secs(300);
        let gate = self.gate();
        spec.gate = Some(gate.clone());
        let outcome = self.sandbox.run(&spec, Input::Nothing, &mut |_, _| {}).unwrap();
        let (events, _) = gate.close();
        let said = String::from_utf8_lossy(&outcome.stdout.bytes).trim().to_owned();
        let wrong: Vec<_> = events.iter().filter(|event| event.reason.is_some()).collect();
        assert!(outcome.exit == Exit::Code(0) && wrong.is_empty(), "{said} {wrong:?}");
        said.parse().unwrap()
    }

    /// Runs the same client without a sandbox.
    fn outside(&self, what: &str) -> f64 {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args([CLIENT, "127.0.0.1", &self.port.to_string(), what]);
        let output = command.output().unwrap();
        String::from_utf8_lossy(&output.stdout).trim().parse().unwrap()
    }

    fn latency(&self, report: &mut Report) {
        let mut times = vec![Vec::new(); 3];
        for _ in 0..ROUNDS {
            times[0].push(self.outside("latency"));
            times[1].push(self.inside("127.0.0.1", "latency"));
            times[2].push(self.inside(NAME, "latency"));
        }
        let [direct, address, name] = [0, 1, 2].map(|at| percentile(&mut times[at], 50) / 1e3);
        report.add("connect, one byte there and back, without gate, p50", direct, "ms");
        report.require(
            "added by the gate, by address, p50",
            address - direct,
            "ms",
            Requirement::AtMost(0.3),
        );
        report.require("added by the gate, by name, p50", name - direct, "ms", Requirement::AtMost(0.3));
    }

    fn throughput(&self, report: &mut Report) {
        for (what, said) in [("download", "to the program"), ("upload", "from the program")] {
            let mut rates = vec![Vec::new(); 2];
            let mut spent = [0.0; 2];
            for _ in 0..7 {
                let before = processor_time(self.server) + children_time();
                rates[0].push(self.outside(what));
                spent[0] += processor_time(self.server) + children_time() - before;
                let before = processor_time(std::process::id());
                rates[1].push(self.inside("127.0.0.1", what));
                spent[1] += processor_time(std::process::id()) - before;
            }
            let [direct, gated] = [0, 1].map(|at| percentile(&mut rates[at], 50));
            report.add(format!("{said}, without gate"), direct / f64::from(1 << 20), "MiB/s");
            report.require(
                format!("{said}, gate / without"),
                gated / direct,
                "times",
                Requirement::AtLeast(0.8),
            );
            // Shows the cost independent of how many CPUs are idle.
            let said = format!("{said}, CPU time of the gate / of client and server without it");
            report.add(said, spent[1] / spent[0], "times");
        }
    }

    fn parallel(&self, report: &mut Report) {
        let before = memory();
        let (most, over) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicBool::new(false)));
        let watching = std::thread::spawn({
            let (most, over) = (Arc::clone(&most), Arc::clone(&over));
            move || {
                while !over.load(Ordering::Relaxed) {
                    most.fetch_max(memory(), Ordering::Relaxed);
                    std::thread::sleep(Duration::from_millis(2));
                }
            }
        });
        let failed = self.inside(NAME, "parallel");
        over.store(true, Ordering::Relaxed);
        watching.join().unwrap();
        let more = most.load(Ordering::Relaxed).saturating_sub(before);
        report.require(format!("{MANY} connections at once, failed"), failed, "", Requirement::AtMost(0.0));
        report.require(
            "their memory in the broker",
            more as f64 / f64::from(1 << 20),
            "MiB",
            Requirement::AtMost(64.0),
        );
    }

    fn spawns(&self, report: &mut Report) {
        let warm = self.place.sandbox();
        warm.keep_warm(2).unwrap();
        let one = |sandbox: &Sandbox| {
            let mut spec = self.place.spec("empty", Tier::Full);
            spec.network = NetworkMode::Gated;
            let start = Instant::now();
            let gate = self.gate();
            spec.gate = Some(gate.clone());
            let outcome = sandbox.run(&spec, Input::Nothing, &mut |_, _| {}).unwrap();
            gate.close();
            assert_eq!(outcome.exit, Exit::Code(0));
            micros(start)
        };
        let closed = |sandbox: &Sandbox| confined(sandbox, &self.place.spec("empty", Tier::Full));
        let times = medians(
            SPAWNS,
            &mut [
                &mut || spawned(&mut Command::new("/bin/true")),
                &mut || one(&self.sandbox),
                &mut || one(&warm),
                &mut || closed(&self.sandbox),
                &mut || closed(&warm),
            ],
        );
        let [bare, cold, warm, closed_cold, closed_warm] = times[..] else { panic!("{times:?}") };
        report.add("bare posix_spawn of /bin/true, median", bare / 1e3, "ms");
        report.require(
            "sandbox with allow list, cold / bare",
            cold / bare,
            "times",
            Requirement::AtMost(4.5),
        );
        report.require(
            "sandbox with allow list, warm / bare",
            warm / bare,
            "times",
            Requirement::AtMost(2.0),
        );
        report.add("sandbox with allow list / without network, cold", cold / closed_cold, "times");
        report.add("sandbox with allow list / without network, warm", warm / closed_warm, "times");
    }
}

/// CPU time of a process, in seconds.
fn processor_time(process: u32) -> f64 {
    let text = std::fs::read_to_string(format!("/proc/{process}/stat")).unwrap();
    let fields: Vec<&str> = text.rsplit(')').next().unwrap().split_ascii_whitespace().collect();
    let ticks: u64 = [fields[11], fields[12]].iter().map(|field| field.parse::<u64>().unwrap()).sum();
    ticks as f64 / 100.0
}

/// CPU time of this process's children that have ended, in seconds.
fn children_time() -> f64 {
    let text = std::fs::read_to_string("/proc/self/stat").unwrap();
    let fields: Vec<&str> = text.rsplit(')').next().unwrap().split_ascii_whitespace().collect();
    let ticks: u64 = [fields[13], fields[14]].iter().map(|field| field.parse::<u64>().unwrap()).sum();
    ticks as f64 / 100.0
}

/// Resident memory of this process, in bytes.
fn memory() -> u64 {
    let text = std::fs::read_to_string("/proc/self/statm").unwrap();
    let pages: u64 = text.split_ascii_whitespace().nth(1).unwrap().parse().unwrap();
    pages * 4096
}

/// The client: connects to a host and port and prints one figure.
pub(crate) fn client() {
    let words: Vec<String> = std::env::args().skip(2).collect();
    let [host, port, what] = &words[..] else { panic!("{words:?}") };
    let there = std::net::ToSocketAddrs::to_socket_addrs(&(host.as_str(), port.parse::<u16>().unwrap()));
    let there: Vec<SocketAddr> = there.unwrap().collect();
    let connect = |word: &[u8]| {
        let mut stream = TcpStream::connect(&there[..]).unwrap();
        stream.set_nodelay(true).unwrap();
        stream.write_all(word).unwrap();
        stream
    };
    let figure = match what.as_str() {
        "latency" => {
            let mut times: Vec<f64> = (0..CONNECTIONS)
                .map(|_| {
                    let start = Instant::now();
                    connect(&[1]).read_exact(&mut [0]).unwrap();
                    micros(start)
                })
                .collect();
            percentile(&mut times, 50)
        }
        "download" => {
            let mut stream = connect(&[2]);
            let mut buffer = vec![0; 256 << 10];
            let start = Instant::now();
            let mut got = 0;
            while got < BYTES {
                got += stream.read(&mut buffer).unwrap() as u64;
            }
            got as f64 / start.elapsed().as_secs_f64()
        }
        "upload" => {
            let mut stream = connect(&[3]);
            let buffer = vec![0; 256 << 10];
            let start = Instant::now();
            for _ in 0..BYTES / buffer.len() as u64 {
                stream.write_all(&buffer).unwrap();
            }
            stream.read_exact(&mut [0]).unwrap();
            BYTES as f64 / start.elapsed().as_secs_f64()
        }
        "parallel" => {
            let mut open: Vec<TcpStream> = (0..MANY).map(|_| connect(&[4])).collect();
            let failed = open.iter_mut().filter_map(|stream| stream.read_exact(&mut [0]).err()).count();
            // All of them are open now: use each once more.
            let again = open
                .iter_mut()
                .filter_map(|stream| stream.write_all(&[4]).and_then(|()| stream.read_exact(&mut [0])).err());
            (failed + again.count()) as f64
        }
        other => panic!("{other}"),
    };
    println!("{figure}");
}

/// The server: the first byte of a connection selects what it does.
pub(crate) fn server() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let maximum = getrlimit(Resource::Nofile).maximum;
    setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum }).unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    println!("{}", listener.local_addr().unwrap().port());
    for stream in listener.incoming() {
        let mut stream = stream.unwrap();
        let serve = move || -> std::io::Result<()> {
            stream.set_nodelay(true)?;
            let mut first = [0];
            stream.read_exact(&mut first)?;
            let mut buffer = vec![0; if first[0] == 2 || first[0] == 3 { 256 << 10 } else { 1 }];
            match first[0] {
                2 => {
                    for _ in 0..BYTES / buffer.len() as u64 {
                        stream.write_all(&buffer)?;
                    }
                }
                3 => {
                    let mut got = 0;
                    while got < BYTES {
                        got += stream.read(&mut buffer)? as u64;
                    }
                    stream.write_all(&[1])?;
                }
                _ => loop {
                    stream.write_all(&first)?;
                    stream.read_exact(&mut first)?;
                },
            }
            Ok(())
        };
        std::thread::Builder::new().stack_size(64 << 10).spawn(serve).unwrap();
    }
}

struct Server {
    child: Child,
    port: u16,
}

impl Server {
    fn start() -> Self {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .arg(SERVER)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        Self { child, port: line.trim().parse().unwrap() }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
