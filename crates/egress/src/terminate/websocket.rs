//! WebSocket inside ended TLS (RFC 6455): the request that asks for it is judged like any other, the server must prove
//! that it means it, and from then on both directions are followed frame by frame. So what looks like a request is none,
//! and known values are taken out of what the server says, message by message. What the program says is passed on as it is.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt as _};
use vambrace_core::network::Reason;
use vambrace_redact::{Redactor, Stream};

use super::session::{Done, Session, UNSCRUBBED, gone};

const CLOSE: u8 = 8;
/// The end, because of a policy.
const REFUSED: &[u8] = &[0x88, 2, 0x03, 0xf0];
const BAD: Reason = Reason::NotUnderstood("a frame of WebSocket that cannot be read");

/// What a server answers who understood the key.
pub(super) fn proof(key: &[u8]) -> String {
    const KNOWN: &[u8] = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11";
    let both = [key, KNOWN].concat();
    STANDARD.encode(ring::digest::digest(&ring::digest::SHA1_FOR_LEGACY_USE_ONLY, &both))
}

impl Session<'_> {
    /// Passes frames on until one side ends; `held` was read already, of the program and of the server.
    pub(super) async fn frames<P, Q, S, T>(
        &self,
        program: (&mut P, &mut Q),
        server: (&mut S, &mut T),
        held: (Vec<u8>, Vec<u8>),
    ) -> Done
    where
        P: AsyncRead + Unpin,
        Q: AsyncWrite + Unpin,
        S: AsyncRead + Unpin,
        T: AsyncWrite + Unpin,
    {
        let done = tokio::select! {
            done = self.follow_up(program.0, server.1, held.0) => done,
            done = self.follow_down(server.0, program.1, held.1) => done,
        };
        if done.is_err() {
            // Best effort: who does not read it sees the end.
            let _ = program.1.write_all(REFUSED).await;
        }
        done
    }

    async fn follow_up<P, T>(&self, program: &mut P, server: &mut T, mut held: Vec<u8>) -> Done
    where
        P: AsyncRead + Unpin,
        T: AsyncWrite + Unpin,
    {
        let mut frames = Frames::new(Side::Program);
        loop {
            let clear = frames.follow(&held, &mut |_| Ok(()))?;
            server.write_all(held.get(..clear).unwrap_or_default()).await.map_err(gone)?;
            server.flush().await.map_err(gone)?;
            held.drain(..clear);
            if !self.more(program, &mut held, &self.traffic.sent).await? {
                return Ok(());
            }
        }
    }

    async fn follow_down<S, Q>(&self, server: &mut S, program: &mut Q, mut held: Vec<u8>) -> Done
    where
        S: AsyncRead + Unpin,
        Q: AsyncWrite + Unpin,
    {
        let mut frames = Frames::new(Side::Server);
        let mut cleaner = self.termination.scrubber.as_ref().map(Cleaner::new);
        loop {
            let clean = match &mut cleaner {
                Some(cleaner) => {
                    let clear = frames.follow(&held, &mut |part| cleaner.take(part))?;
                    held.drain(..clear);
                    std::mem::take(&mut cleaner.out)
                }
                None => {
                    let clear = frames.follow(&held, &mut |_| Ok(()))?;
                    held.drain(..clear).collect()
                }
            };
            program.write_all(&clean).await.map_err(gone)?;
            program.flush().await.map_err(gone)?;
            if !self.more(server, &mut held, &self.traffic.received).await? {
                return Ok(());
            }
        }
    }
}

/// Whose frames they are: a program's are masked, a server's are not.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Side {
    Program,
    Server,
}

/// The head of a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Frame {
    last: bool,
    opcode: u8,
    length: u64,
}

impl Frame {
    fn is_control(self) -> bool {
        self.opcode >= CLOSE
    }
}

/// A piece of a frame.
enum Part<'a> {
    Begin(Frame),
    Content(&'a [u8]),
    End(Frame),
}

/// Follows the frames of one direction.
#[derive(Debug)]
struct Frames {
    side: Side,
    /// The frame that is under way, and how much of it is still to come.
    now: Option<(Frame, u64)>,
    in_message: bool,
}

impl Frames {
    fn new(side: Side) -> Self {
        Self { side, now: None, in_message: false }
    }

    /// Takes bytes, part by part; how many of them can go on. The rest is the beginning of a head.
    fn follow(
        &mut self,
        bytes: &[u8],
        each: &mut dyn FnMut(Part<'_>) -> Result<(), Reason>,
    ) -> Result<usize, Reason> {
        let mut at = 0;
        loop {
            let rest = bytes.get(at..).unwrap_or_default();
            let (frame, left) = match self.now {
                Some(now) => now,
                None => {
                    let Some((length, frame)) = head(rest, self.side)? else { return Ok(at) };
                    self.fits(frame)?;
                    at += length;
                    each(Part::Begin(frame))?;
                    self.now = Some((frame, frame.length));
                    continue;
                }
            };
            let here = usize::try_from(left).unwrap_or(usize::MAX).min(rest.len());
            each(Part::Content(rest.get(..here).unwrap_or_default()))?;
            at += here;
            let left = left - here as u64;
            self.now = (left > 0).then_some((frame, left));
            if left > 0 {
                return Ok(at);
            }
            each(Part::End(frame))?;
        }
    }

    /// A message is one frame, or several of which only the first says what it is.
    fn fits(&mut self, frame: Frame) -> Result<(), Reason> {
        if frame.is_control() {
            return if frame.last && frame.length <= 125 { Ok(()) } else { Err(BAD) };
        }
        if (frame.opcode == 0) != self.in_message {
            return Err(BAD);
        }
        self.in_message = !frame.last;
        Ok(())
    }
}

/// The head of a frame and how long it is; nothing while it is not all there. No extension was agreed on, so no bit of
/// one may be set.
fn head(bytes: &[u8], side: Side) -> Result<Option<(usize, Frame)>, Reason> {
    let [first, second, rest @ ..] = bytes else { return Ok(None) };
    let (opcode, is_masked) = (first & 15, second & 0x80 != 0);
    if first & 0x70 != 0 || !matches!(opcode, 0..=2 | CLOSE..=10) || is_masked != (side == Side::Program) {
        return Err(BAD);
    }
    let width = match second & 0x7f {
        126 => 2,
        127 => 8,
        _ => 0,
    };
    let Some(number) = rest.get(..width) else { return Ok(None) };
    let length = match width {
        0 => u64::from(second & 0x7f),
        _ => number.iter().fold(0, |sum, byte| sum << 8 | u64::from(*byte)),
    };
    if length >> 63 != 0 {
        return Err(BAD);
    }
    let whole = 2 + width + if is_masked { 4 } else { 0 };
    Ok((bytes.len() >= whole).then_some((whole, Frame { last: first & 0x80 != 0, opcode, length })))
}

/// Takes known values out of messages; what comes out is cut into frames anew.
struct Cleaner<'a> {
    redactor: &'a Redactor,
    /// The message that is under way, and what its next frame is called.
    message: Option<(Stream, u8)>,
    /// The content of a control frame, which may stand between two of a message.
    control: Option<Vec<u8>>,
    out: Vec<u8>,
}

impl<'a> Cleaner<'a> {
    fn new(redactor: &'a Redactor) -> Self {
        Self { redactor, message: None, control: None, out: Vec::new() }
    }

    fn take(&mut self, part: Part<'_>) -> Result<(), Reason> {
        match part {
            Part::Begin(frame) if frame.is_control() => self.control = Some(Vec::new()),
            Part::Begin(frame) if frame.opcode != 0 => {
                self.message = Some((self.redactor.stream(), frame.opcode));
            }
            Part::Begin(_) => {}
            Part::Content(bytes) => match (&mut self.control, &mut self.message) {
                (Some(control), _) => control.extend_from_slice(bytes),
                (None, Some((stream, _))) => {
                    let mut clean = Vec::new();
                    stream.push(bytes, &mut clean).map_err(|_| UNSCRUBBED)?;
                    if !clean.is_empty() {
                        self.say(false, &clean);
                    }
                }
                (None, None) => return Err(BAD),
            },
            Part::End(frame) if frame.is_control() => {
                let content = self.control.take().unwrap_or_default();
                let (_, found) = self.redactor.redact_bytes(&content).map_err(|_| UNSCRUBBED)?;
                // Of an end the number stays, which is no text.
                let kept = if found > 0 { usize::from(frame.opcode == CLOSE) * 2 } else { content.len() };
                self.write(0x80 | frame.opcode, content.get(..kept).unwrap_or_default());
            }
            Part::End(frame) if frame.last => {
                let mut clean = Vec::new();
                if let Some((stream, _)) = &mut self.message {
                    stream.finish(&mut clean).map_err(|_| UNSCRUBBED)?;
                }
                self.say(true, &clean);
                self.message = None;
            }
            Part::End(_) => {}
        }
        Ok(())
    }

    /// One frame of the message.
    fn say(&mut self, last: bool, content: &[u8]) {
        let Some((_, opcode)) = &mut self.message else { return };
        let first = (u8::from(last) << 7) | std::mem::take(opcode);
        self.write(first, content);
    }

    fn write(&mut self, first: u8, content: &[u8]) {
        self.out.push(first);
        match (u8::try_from(content.len()), u16::try_from(content.len())) {
            (Ok(length @ 0..126), _) => self.out.push(length),
            (_, Ok(length)) => {
                self.out.push(126);
                self.out.extend_from_slice(&length.to_be_bytes());
            }
            _ => {
                self.out.push(127);
                self.out.extend_from_slice(&(content.len() as u64).to_be_bytes());
            }
        }
        self.out.extend_from_slice(content);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_proof_is_that_of_the_standard() {
        assert_eq!(proof(b"dGhlIHNhbXBsZSBub25jZQ=="), "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=");
    }

    fn followed(bytes: &[u8], side: Side) -> Result<usize, Reason> {
        Frames::new(side).follow(bytes, &mut |_| Ok(()))
    }

    // P3: a request is no frame
    #[test]
    fn what_is_no_frame_is_refused() {
        for bad in [
            &b"GET /v2/admin HTTP/1.1\r\n"[..],
            b"POST",
            b"HEAD",
            b"\x83\x80",
            b"\xc1\x81",
            b"\x81\x01",
            b"\x09\x80\0\0\0\0",
            b"\x89\xfe\0\x7e",
            b"\x80\x80\0\0\0\0",
            b"\x01\x80\0\0\0\0\x81\x80\0\0\0\0",
            b"\x82\xff\x80\0\0\0\0\0\0\0\0\0\0\0",
        ] {
            let read = followed(bad, Side::Program);
            // What is no more than the beginning of a head waits.
            assert!(read == Err(BAD) || read == Ok(0) && bad.len() == 4, "{bad:?}: {read:?}");
        }
        assert_eq!(followed(b"\x81\x81\0\0\0\0x", Side::Server), Err(BAD));
        let good = b"\x01\x82\0\0\0\0ab\x89\x80\0\0\0\0\x80\x81\0\0\0\0c\x82\xfe\0\x03\0\0\0\0abc\x88";
        assert_eq!(followed(good, Side::Program), Ok(good.len() - 1));
    }

    proptest! {
        #[test]
        fn any_bytes_are_followed_without_harm(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            for side in [Side::Program, Side::Server] {
                if let Ok(clear) = followed(&bytes, side) {
                    prop_assert!(clear <= bytes.len() && bytes.len() - clear < 14);
                }
            }
        }
    }
}
