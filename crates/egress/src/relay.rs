//! Copies bytes in one direction: small amounts through a buffer on the stack, large ones by `splice`, so that they are never
//! copied to user space. An idle connection needs no buffer.
//!
//! EOF in one direction shuts down that direction only. Every chunk is charged to the caps of the run before the next one is
//! read.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use rustix::net::{Shutdown, sockopt};
use rustix::pipe::{PipeFlags, SpliceFlags};
use tokio::io::Interest;
use tokio::net::TcpStream;

use crate::decide::NetworkReason;

/// Bytes per read through the stack buffer.
const CHUNK_BYTES: usize = 16 << 10;
/// A direction switches to `splice` after this many bytes.
const SPLICE_THRESHOLD: u64 = 128 << 10;
/// Size of a large pipe in bytes: a quarter of the system calls of a smaller one, and a third less CPU time per byte.
const LARGE_PIPE_BYTES: usize = 1 << 20;
/// Maximum number of large pipes: a user has 64 MiB of pipe buffers for all programs together.
const MAX_LARGE_PIPES: usize = 16;
const SMALL_PIPE_BYTES: usize = 256 << 10;

/// Receive and send buffer of a connection that stays on this machine, in bytes: so small that the data is still in the CPU
/// cache when it is relayed, which raises the throughput by half. A connection over a network needs larger buffers.
const LOCAL_RECEIVE_BUFFER: usize = 144 << 10;
const LOCAL_SEND_BUFFER: usize = 288 << 10;

/// Network limits of one run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TrafficCaps {
    /// Concurrent connections.
    pub connections: usize,
    /// Bytes in both directions together.
    pub bytes: u64,
    /// Bytes per second, in both directions together.
    pub rate: Option<u64>,
}

impl Default for TrafficCaps {
    fn default() -> Self {
        Self { connections: 1024, bytes: 16 << 30, rate: None }
    }
}

/// Traffic of a run, counted against its caps.
#[derive(Debug)]
pub(crate) struct TrafficMeter {
    caps: TrafficCaps,
    moved: AtomicU64,
    /// When the rate allows the next chunk.
    next: Mutex<Instant>,
}

impl TrafficMeter {
    pub(crate) fn new(caps: TrafficCaps) -> Self {
        Self { caps, moved: AtomicU64::new(0), next: Mutex::new(Instant::now()) }
    }

    /// Counts relayed bytes, and sleeps as long as the rate requires.
    pub(crate) async fn charge(&self, bytes: u64) -> Result<(), NetworkReason> {
        if self.moved.fetch_add(bytes, Ordering::Relaxed).saturating_add(bytes) > self.caps.bytes {
            return Err(NetworkReason::Cap("bytes"));
        }
        if let Some(wait) = self.required_wait(bytes, Instant::now()) {
            tokio::time::sleep(wait).await;
        }
        Ok(())
    }

    fn required_wait(&self, bytes: u64, now: Instant) -> Option<Duration> {
        /// Waits shorter than this are skipped.
        const MIN_WAIT: Duration = Duration::from_millis(20);
        let rate = self.caps.rate?.max(1);
        let mut next = self.next.lock();
        let cost = Duration::from_secs_f64(bytes as f64 / rate as f64);
        *next = (*next).max(now) + cost;
        let ahead = next.saturating_duration_since(now);
        (ahead > MIN_WAIT).then_some(ahead)
    }
}

/// Why the relay of a direction ended early.
#[derive(Debug)]
pub(crate) enum RelayError {
    /// A cap was reached or the content was denied.
    Reason(NetworkReason),
    /// Reading failed: the sender is gone without an orderly close.
    SourceFailed,
    /// Writing failed: the receiver is gone; its own bytes may still be in flight.
    SinkClosed,
}

/// I/O errors are read errors; write errors are converted where they happen.
impl From<io::Error> for RelayError {
    fn from(_: io::Error) -> Self {
        Self::SourceFailed
    }
}

impl From<NetworkReason> for RelayError {
    fn from(reason: NetworkReason) -> Self {
        Self::Reason(reason)
    }
}

/// One direction of a connection.
pub(crate) struct Direction<'a> {
    pub(crate) from: &'a TcpStream,
    pub(crate) to: &'a TcpStream,
    pub(crate) meter: &'a TrafficMeter,
    pub(crate) count: &'a AtomicU64,
}

impl Direction<'_> {
    /// Relays everything up to EOF, then shuts down the receiver.
    pub(crate) async fn run(&self, watch: &mut (dyn FnMut(&[u8]) + Send)) -> Result<(), RelayError> {
        let mut moved = 0;
        while moved < SPLICE_THRESHOLD {
            let read = self.relay_chunk(CHUNK_BYTES, watch).await?;
            if read == 0 {
                return self.end();
            }
            moved += read as u64;
        }
        // Without a pipe it goes on through the buffer.
        if let Ok(pipe) = Pipe::new() {
            return self.splice(&pipe).await;
        }
        while self.relay_chunk(CHUNK_BYTES, watch).await? > 0 {}
        self.end()
    }

    /// Passes EOF on to the receiver.
    pub(crate) fn end(&self) -> Result<(), RelayError> {
        rustix::net::shutdown(self.to, Shutdown::Write).map_err(|_| RelayError::SinkClosed)
    }

    /// Relays exactly `left` bytes.
    pub(crate) async fn relay_exactly(&self, mut left: u64) -> Result<(), RelayError> {
        while left > 0 {
            let max = usize::try_from(left).unwrap_or(usize::MAX).min(CHUNK_BYTES);
            match self.relay_chunk(max, &mut |_| {}).await? {
                0 => return Err(RelayError::SourceFailed),
                read => left -= read as u64,
            }
        }
        Ok(())
    }

    /// Relays one chunk; 0 at EOF.
    async fn relay_chunk(
        &self,
        max: usize,
        watch: &mut (dyn FnMut(&[u8]) + Send),
    ) -> Result<usize, RelayError> {
        loop {
            self.from.readable().await?;
            // The stack buffer exists only between two awaits; bytes that cannot be written at once are kept on the heap.
            match self.try_relay_chunk(max, watch) {
                Ok((0, _)) => return Ok(0),
                Ok((read, rest)) => {
                    self.write(&rest).await?;
                    self.count.fetch_add(read as u64, Ordering::Relaxed);
                    self.meter.charge(read as u64).await?;
                    return Ok(read);
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    fn try_relay_chunk(
        &self,
        max: usize,
        watch: &mut (dyn FnMut(&[u8]) + Send),
    ) -> io::Result<(usize, Vec<u8>)> {
        let mut buffer = [0_u8; CHUNK_BYTES];
        let room = buffer.get_mut(..max.min(CHUNK_BYTES)).unwrap_or_default();
        let read = self.from.try_read(room)?;
        let bytes = room.get(..read).unwrap_or_default();
        if bytes.is_empty() {
            return Ok((0, Vec::new()));
        }
        watch(bytes);
        // An error here occurs again where the rest is written.
        let written = self.to.try_write(bytes).unwrap_or(0);
        Ok((read, bytes.get(written..).unwrap_or_default().to_vec()))
    }

    /// Writes bytes without counting them.
    pub(crate) async fn write(&self, mut bytes: &[u8]) -> Result<(), RelayError> {
        while !bytes.is_empty() {
            match self.to.try_write(bytes) {
                Ok(written) => bytes = bytes.get(written..).unwrap_or_default(),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.to.writable().await.map_err(|_| RelayError::SinkClosed)?;
                }
                Err(_) => return Err(RelayError::SinkClosed),
            }
        }
        Ok(())
    }

    /// Writes bytes that were held back for inspection, and counts them.
    pub(crate) async fn write_counted(&self, bytes: &[u8]) -> Result<(), RelayError> {
        self.write(bytes).await?;
        self.count.fetch_add(bytes.len() as u64, Ordering::Relaxed);
        self.meter.charge(bytes.len() as u64).await?;
        Ok(())
    }

    async fn splice(&self, pipe: &Pipe) -> Result<(), RelayError> {
        let Pipe { read_end, write_end, .. } = pipe;
        // Failure costs only speed.
        if is_local(self.from) {
            let _ = sockopt::set_socket_recv_buffer_size(self.from, LOCAL_RECEIVE_BUFFER);
        }
        if is_local(self.to) {
            let _ = sockopt::set_socket_send_buffer_size(self.to, LOCAL_SEND_BUFFER);
        }
        loop {
            let taken =
                when_ready(self.from, Interest::READABLE, || splice(self.from, write_end, LARGE_PIPE_BYTES))
                    .await?;
            if taken == 0 {
                return self.end();
            }
            let mut left = taken;
            while left > 0 {
                let given = when_ready(self.to, Interest::WRITABLE, || splice(read_end, self.to, left)).await;
                let given = given.map_err(|_| RelayError::SinkClosed)?;
                if given == 0 {
                    return Err(RelayError::SinkClosed);
                }
                left = left.saturating_sub(given);
            }
            self.count.fetch_add(taken as u64, Ordering::Relaxed);
            self.meter.charge(taken as u64).await?;
        }
    }
}

/// Whether both ends of a connection are on this machine: in a sandbox, where every address is local, or on loopback.
fn is_local(stream: &TcpStream) -> bool {
    let ends = stream
        .local_addr()
        .and_then(|own| Ok((own.ip().to_canonical(), stream.peer_addr()?.ip().to_canonical())));
    ends.is_ok_and(|(own, peer)| own == peer || peer.is_loopback())
}

async fn when_ready(
    socket: &TcpStream,
    interest: Interest,
    act: impl Fn() -> io::Result<usize>,
) -> io::Result<usize> {
    loop {
        socket.ready(interest).await?;
        match socket.try_io(interest, &act) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            done => return done,
        }
    }
}

fn splice(from: impl AsFd, to: impl AsFd, max: usize) -> io::Result<usize> {
    let flags = SpliceFlags::NONBLOCK | SpliceFlags::MOVE;
    Ok(rustix::pipe::splice(from, None, to, None, max, flags)?)
}

/// A pipe between two sockets.
struct Pipe {
    read_end: OwnedFd,
    write_end: OwnedFd,
    is_large: bool,
}

/// Number of large pipes in use.
static LARGE_PIPES_IN_USE: AtomicUsize = AtomicUsize::new(0);

impl Pipe {
    fn new() -> io::Result<Self> {
        let (read_end, write_end) = rustix::pipe::pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK)?;
        let is_large = LARGE_PIPES_IN_USE.fetch_add(1, Ordering::Relaxed) < MAX_LARGE_PIPES;
        if !is_large {
            LARGE_PIPES_IN_USE.fetch_sub(1, Ordering::Relaxed);
        }
        // A pipe of the default size works as well.
        let _ = rustix::pipe::fcntl_setpipe_size(
            &write_end,
            if is_large { LARGE_PIPE_BYTES } else { SMALL_PIPE_BYTES },
        );
        Ok(Self { read_end, write_end, is_large })
    }
}

impl Drop for Pipe {
    fn drop(&mut self) {
        if self.is_large {
            LARGE_PIPES_IN_USE.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

/// Makes the coming close a reset (RST), so that the peer sees that it is not an orderly end.
pub(crate) fn reset(stream: &TcpStream) {
    // On failure the connection is closed normally.
    let _ = sockopt::set_socket_linger(stream, Some(Duration::ZERO));
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::TcpListener;

    async fn pair() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let far = TcpStream::connect(listener.local_addr().unwrap());
        let (near, far) = tokio::join!(listener.accept(), far);
        (near.unwrap().0, far.unwrap())
    }

    async fn relay_bytes(amount: usize, caps: TrafficCaps) -> (Vec<u8>, Result<(), RelayError>, u64) {
        let ((from, mut writer), (to, mut reader)) = (pair().await, pair().await);
        let (meter, count) = (Arc::new(TrafficMeter::new(caps)), Arc::new(AtomicU64::new(0)));
        let (inner, counted) = (Arc::clone(&meter), Arc::clone(&count));
        let relay = tokio::spawn(async move {
            let way = Direction { from: &from, to: &to, meter: &inner, count: &counted };
            way.run(&mut |_| {}).await
        });
        let writing = tokio::spawn(async move {
            let bytes: Vec<u8> = (0..amount).map(|at| (at % 251) as u8).collect();
            let _ = writer.write_all(&bytes).await;
            let _ = writer.shutdown().await;
            writer
        });
        let mut got = Vec::new();
        let _ = reader.read_to_end(&mut got).await;
        let done = relay.await.unwrap();
        drop(writing.await);
        (got, done, count.load(Ordering::Relaxed))
    }

    #[tokio::test]
    async fn small_and_large_transfers_arrive_complete_with_eof() {
        for amount in
            [0, 1, CHUNK_BYTES, SPLICE_THRESHOLD as usize - 1, SPLICE_THRESHOLD as usize + 1, 5 << 20]
        {
            let (got, done, count) = relay_bytes(amount, TrafficCaps::default()).await;
            assert!(done.is_ok(), "{done:?}");
            assert!(got.len() == amount && count == amount as u64, "{} of {amount}", got.len());
            assert!(got.iter().enumerate().all(|(at, byte)| *byte == (at % 251) as u8));
        }
    }

    #[test]
    fn number_of_large_pipes_is_bounded_and_released() {
        let pipes: Vec<Pipe> = (0..MAX_LARGE_PIPES + 3).map(|_| Pipe::new().unwrap()).collect();
        // Other tests of this process may hold large pipes.
        assert!(pipes.iter().filter(|pipe| pipe.is_large).count() <= MAX_LARGE_PIPES);
        assert!(pipes.iter().any(|pipe| !pipe.is_large));
        drop(pipes);
        assert!(LARGE_PIPES_IN_USE.load(Ordering::Relaxed) <= MAX_LARGE_PIPES);
    }

    #[tokio::test]
    async fn byte_cap_ends_the_relay() {
        let (got, done, _) =
            relay_bytes(5 << 20, TrafficCaps { bytes: 1 << 20, ..TrafficCaps::default() }).await;
        assert!(matches!(done, Err(RelayError::Reason(NetworkReason::Cap("bytes")))), "{done:?}");
        assert!(got.len() < 2 << 20, "{}", got.len());
    }

    #[test]
    fn rate_limit_waits_as_long_as_the_bytes_take() {
        let meter = TrafficMeter::new(TrafficCaps { rate: Some(1000), ..TrafficCaps::default() });
        let now = Instant::now();
        assert_eq!(meter.required_wait(10, now), None);
        let wait = meter.required_wait(1000, now).unwrap();
        assert!(wait >= Duration::from_secs(1) && wait <= Duration::from_millis(1020), "{wait:?}");
        // An hour later no wait is left.
        assert_eq!(meter.required_wait(10, now + Duration::from_secs(3600)), None);
    }
}
