//! A borrowed socket as a stream for TLS; bytes that were read from it already come first.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use rustix::net::Shutdown;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

pub(super) struct PrefixedStream<'a> {
    held: Vec<u8>,
    stream: &'a TcpStream,
}

impl<'a> PrefixedStream<'a> {
    pub(super) fn new(held: Vec<u8>, stream: &'a TcpStream) -> Self {
        Self { held, stream }
    }
}

impl AsyncRead for PrefixedStream<'_> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        out: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if !self.held.is_empty() {
            let taken = self.held.len().min(out.remaining());
            let bytes: Vec<u8> = self.held.drain(..taken).collect();
            out.put_slice(&bytes);
            return Poll::Ready(Ok(()));
        }
        loop {
            ready!(self.stream.poll_read_ready(cx))?;
            match self.stream.try_read(out.initialize_unfilled()) {
                Ok(read) => {
                    out.advance(read);
                    return Poll::Ready(Ok(()));
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Poll::Ready(Err(error)),
            }
        }
    }
}

impl AsyncWrite for PrefixedStream<'_> {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        loop {
            ready!(self.stream.poll_write_ready(cx))?;
            match self.stream.try_write(bytes) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                done => return Poll::Ready(done),
            }
        }
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        // Fails only when the peer is gone already.
        let _ = rustix::net::shutdown(self.stream, Shutdown::Write);
        Poll::Ready(Ok(()))
    }
}
