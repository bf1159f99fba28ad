//! Passing bytes on, in one direction: small amounts through a buffer on the stack, large ones by `splice`, so that
//! they never enter this process. A connection that is open and silent costs no buffer.
//!
//! The end of one direction is passed on as the end of that direction only. The caps of the run are charged for every
//! piece before the next one is taken.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use rustix::net::{Shutdown, sockopt};
use rustix::pipe::{PipeFlags, SpliceFlags};
use tokio::io::Interest;
use tokio::net::TcpStream;

use crate::decide::Reason;

/// Taken at once through the stack.
const PIECE: usize = 16 << 10;
/// From so many bytes on a direction is worth a pipe.
const MANY: u64 = 128 << 10;
/// A quarter of the calls of a smaller one, and a third less processor time for the same bytes.
const PIPE: usize = 1 << 20;
/// A user has 64 MiB of pipes, for all programs together: so many are large, the others are not.
const LARGE: usize = 16;
const SMALLER: usize = 256 << 10;

/// What the kernel holds for us of a connection that stays in this machine: so little that it is still in the processor's
/// cache when it is passed on, which makes a transfer half as fast again. Over a network far more is under way.
const TAKEN: usize = 144 << 10;
const GIVEN: usize = 288 << 10;

/// What one run may use of the network.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Caps {
    /// Connections at the same time.
    pub connections: usize,
    /// Bytes in both directions together.
    pub bytes: u64,
    /// Bytes a second, in both directions together.
    pub rate: Option<u64>,
}

impl Default for Caps {
    fn default() -> Self {
        Self { connections: 1024, bytes: 16 << 30, rate: None }
    }
}

/// What a run has used.
#[derive(Debug)]
pub(crate) struct Meter {
    caps: Caps,
    moved: AtomicU64,
    /// When the rate allows the next piece.
    next: Mutex<Instant>,
}

impl Meter {
    pub(crate) fn new(caps: Caps) -> Self {
        Self { caps, moved: AtomicU64::new(0), next: Mutex::new(Instant::now()) }
    }

    /// Counts bytes that were moved, and waits as long as the rate wants.
    pub(crate) async fn charge(&self, bytes: u64) -> Result<(), Reason> {
        if self.moved.fetch_add(bytes, Ordering::Relaxed).saturating_add(bytes) > self.caps.bytes {
            return Err(Reason::Cap("bytes"));
        }
        if let Some(wait) = self.wait(bytes, Instant::now()) {
            tokio::time::sleep(wait).await;
        }
        Ok(())
    }

    fn wait(&self, bytes: u64, now: Instant) -> Option<Duration> {
        /// So far ahead nobody waits.
        const SLACK: Duration = Duration::from_millis(20);
        let rate = self.caps.rate?.max(1);
        let mut next = self.next.lock();
        let cost = Duration::from_secs_f64(bytes as f64 / rate as f64);
        *next = (*next).max(now) + cost;
        let ahead = next.saturating_duration_since(now);
        (ahead > SLACK).then_some(ahead)
    }
}

/// Why a direction ended early.
#[derive(Debug)]
pub(crate) enum Broken {
    /// A cap or a judgement.
    Reason(Reason),
    /// Who speaks is gone, without having come to an end.
    Source,
    /// Who listens is gone; what it said before may still be under way.
    Sink,
}

/// Reading failed; failures of writing are told apart where they happen.
impl From<io::Error> for Broken {
    fn from(_: io::Error) -> Self {
        Self::Source
    }
}

impl From<Reason> for Broken {
    fn from(reason: Reason) -> Self {
        Self::Reason(reason)
    }
}

/// One direction.
pub(crate) struct Way<'a> {
    pub(crate) from: &'a TcpStream,
    pub(crate) to: &'a TcpStream,
    pub(crate) meter: &'a Meter,
    pub(crate) count: &'a AtomicU64,
}

impl Way<'_> {
    /// Passes everything on to the end, then passes the end on.
    pub(crate) async fn run(&self, watch: &mut (dyn FnMut(&[u8]) + Send)) -> Result<(), Broken> {
        let mut moved = 0;
        while moved < MANY {
            let read = self.piece(PIECE, watch).await?;
            if read == 0 {
                return self.end();
            }
            moved += read as u64;
        }
        // Where no pipe can be had, it goes on as it began.
        if let Ok(pipe) = Pipe::new() {
            return self.splice(&pipe).await;
        }
        while self.piece(PIECE, watch).await? > 0 {}
        self.end()
    }

    /// Passes the end of the direction on.
    pub(crate) fn end(&self) -> Result<(), Broken> {
        rustix::net::shutdown(self.to, Shutdown::Write).map_err(|_| Broken::Sink)
    }

    /// Passes exactly so many bytes on.
    pub(crate) async fn exactly(&self, mut left: u64) -> Result<(), Broken> {
        while left > 0 {
            let most = usize::try_from(left).unwrap_or(usize::MAX).min(PIECE);
            match self.piece(most, &mut |_| {}).await? {
                0 => return Err(Broken::Source),
                read => left -= read as u64,
            }
        }
        Ok(())
    }

    /// Passes one piece on; 0 at the end.
    async fn piece(&self, most: usize, watch: &mut (dyn FnMut(&[u8]) + Send)) -> Result<usize, Broken> {
        loop {
            self.from.readable().await?;
            // The buffer lives on the stack and only between two waits; what cannot be written at once is kept.
            match self.try_piece(most, watch) {
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

    fn try_piece(&self, most: usize, watch: &mut (dyn FnMut(&[u8]) + Send)) -> io::Result<(usize, Vec<u8>)> {
        let mut buffer = [0_u8; PIECE];
        let room = buffer.get_mut(..most.min(PIECE)).unwrap_or_default();
        let read = self.from.try_read(room)?;
        let bytes = room.get(..read).unwrap_or_default();
        if bytes.is_empty() {
            return Ok((0, Vec::new()));
        }
        watch(bytes);
        // What fails here fails again where the rest is written.
        let written = self.to.try_write(bytes).unwrap_or(0);
        Ok((read, bytes.get(written..).unwrap_or_default().to_vec()))
    }

    /// Writes bytes that were read before; they are counted by who read them.
    pub(crate) async fn write(&self, mut bytes: &[u8]) -> Result<(), Broken> {
        while !bytes.is_empty() {
            match self.to.try_write(bytes) {
                Ok(written) => bytes = bytes.get(written..).unwrap_or_default(),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.to.writable().await.map_err(|_| Broken::Sink)?;
                }
                Err(_) => return Err(Broken::Sink),
            }
        }
        Ok(())
    }

    /// Writes bytes that were held back, and counts them.
    pub(crate) async fn release(&self, bytes: &[u8]) -> Result<(), Broken> {
        self.write(bytes).await?;
        self.count.fetch_add(bytes.len() as u64, Ordering::Relaxed);
        self.meter.charge(bytes.len() as u64).await?;
        Ok(())
    }

    async fn splice(&self, pipe: &Pipe) -> Result<(), Broken> {
        let Pipe { read_end, write_end, .. } = pipe;
        // Nothing but speed depends on them.
        if stays_here(self.from) {
            let _ = sockopt::set_socket_recv_buffer_size(self.from, TAKEN);
        }
        if stays_here(self.to) {
            let _ = sockopt::set_socket_send_buffer_size(self.to, GIVEN);
        }
        loop {
            let taken = moved(self.from, Interest::READABLE, || splice(self.from, write_end, PIPE)).await?;
            if taken == 0 {
                return self.end();
            }
            let mut left = taken;
            while left > 0 {
                let given = moved(self.to, Interest::WRITABLE, || splice(read_end, self.to, left)).await;
                let given = given.map_err(|_| Broken::Sink)?;
                if given == 0 {
                    return Err(Broken::Sink);
                }
                left = left.saturating_sub(given);
            }
            self.count.fetch_add(taken as u64, Ordering::Relaxed);
            self.meter.charge(taken as u64).await?;
        }
    }
}

/// Whether both ends of a connection are in this machine: in a sandbox, where every address is its own, or on a loopback.
fn stays_here(stream: &TcpStream) -> bool {
    let ends = stream
        .local_addr()
        .and_then(|own| Ok((own.ip().to_canonical(), stream.peer_addr()?.ip().to_canonical())));
    ends.is_ok_and(|(own, peer)| own == peer || peer.is_loopback())
}

async fn moved(
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

fn splice(from: impl AsFd, to: impl AsFd, most: usize) -> io::Result<usize> {
    let flags = SpliceFlags::NONBLOCK | SpliceFlags::MOVE;
    Ok(rustix::pipe::splice(from, None, to, None, most, flags)?)
}

/// A pipe between two sockets.
struct Pipe {
    read_end: OwnedFd,
    write_end: OwnedFd,
    is_large: bool,
}

/// Large pipes that are in use.
static IN_USE: AtomicUsize = AtomicUsize::new(0);

impl Pipe {
    fn new() -> io::Result<Self> {
        let (read_end, write_end) = rustix::pipe::pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK)?;
        let is_large = IN_USE.fetch_add(1, Ordering::Relaxed) < LARGE;
        if !is_large {
            IN_USE.fetch_sub(1, Ordering::Relaxed);
        }
        // One of the usual size works as well.
        let _ = rustix::pipe::fcntl_setpipe_size(&write_end, if is_large { PIPE } else { SMALLER });
        Ok(Self { read_end, write_end, is_large })
    }
}

impl Drop for Pipe {
    fn drop(&mut self) {
        if self.is_large {
            IN_USE.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

/// Closes a connection so that the other side sees that it was not the ordinary end.
pub(crate) fn reset(stream: &TcpStream) {
    // It is closed in any case.
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

    async fn carried(amount: usize, caps: Caps) -> (Vec<u8>, Result<(), Broken>, u64) {
        let ((from, mut writer), (to, mut reader)) = (pair().await, pair().await);
        let (meter, count) = (Arc::new(Meter::new(caps)), Arc::new(AtomicU64::new(0)));
        let (inner, counted) = (Arc::clone(&meter), Arc::clone(&count));
        let relay = tokio::spawn(async move {
            let way = Way { from: &from, to: &to, meter: &inner, count: &counted };
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
    async fn small_and_large_amounts_arrive_whole_with_their_end() {
        for amount in [0, 1, PIECE, MANY as usize - 1, MANY as usize + 1, 5 << 20] {
            let (got, done, count) = carried(amount, Caps::default()).await;
            assert!(done.is_ok(), "{done:?}");
            assert!(got.len() == amount && count == amount as u64, "{} of {amount}", got.len());
            assert!(got.iter().enumerate().all(|(at, byte)| *byte == (at % 251) as u8));
        }
    }

    #[test]
    fn large_pipes_are_few_and_come_back() {
        let pipes: Vec<Pipe> = (0..LARGE + 3).map(|_| Pipe::new().unwrap()).collect();
        // Other tests of this process may hold some.
        assert!(pipes.iter().filter(|pipe| pipe.is_large).count() <= LARGE);
        assert!(pipes.iter().any(|pipe| !pipe.is_large));
        drop(pipes);
        assert!(IN_USE.load(Ordering::Relaxed) <= LARGE);
    }

    #[tokio::test]
    async fn the_cap_of_bytes_ends_it() {
        let (got, done, _) = carried(5 << 20, Caps { bytes: 1 << 20, ..Caps::default() }).await;
        assert!(matches!(done, Err(Broken::Reason(Reason::Cap("bytes")))), "{done:?}");
        assert!(got.len() < 2 << 20, "{}", got.len());
    }

    #[test]
    fn the_rate_asks_for_as_long_as_the_bytes_take() {
        let meter = Meter::new(Caps { rate: Some(1000), ..Caps::default() });
        let now = Instant::now();
        assert_eq!(meter.wait(10, now), None);
        let wait = meter.wait(1000, now).unwrap();
        assert!(wait >= Duration::from_secs(1) && wait <= Duration::from_millis(1020), "{wait:?}");
        // An hour later nothing is owed.
        assert_eq!(meter.wait(10, now + Duration::from_secs(3600)), None);
    }
}
