//! WebSocket inside terminated TLS (RFC 6455): the upgrade request is checked like any other, the server must answer with the
//! right `Sec-WebSocket-Accept`, and then both directions are parsed frame by frame. So no HTTP request can follow, and known
//! values are redacted from the server's messages. The program's frames are forwarded unchanged.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt as _};
use vambrace_core::network::NetworkReason;
use vambrace_redact::{RedactStream, Redactor};

use super::session::{NOT_REDACTED, SessionResult, TerminatedSession, connection_broke};

const CLOSE: u8 = 8;
/// A close frame with status 1008, policy violation.
const POLICY_VIOLATION_CLOSE: &[u8] = &[0x88, 2, 0x03, 0xf0];
const MALFORMED_FRAME: NetworkReason = NetworkReason::NotUnderstood("the WebSocket frame cannot be parsed");

/// The `Sec-WebSocket-Accept` for a key.
pub(super) fn accept_for_key(key: &[u8]) -> String {
    const WEBSOCKET_GUID: &[u8] = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11";
    let both = [key, WEBSOCKET_GUID].concat();
    STANDARD.encode(ring::digest::digest(&ring::digest::SHA1_FOR_LEGACY_USE_ONLY, &both))
}

impl TerminatedSession<'_> {
    /// Relays frames until one side closes; `held` are the bytes already read from the program and from the server.
    pub(super) async fn relay_frames<P, Q, S, T>(
        &self,
        program: (&mut P, &mut Q),
        server: (&mut S, &mut T),
        held: (Vec<u8>, Vec<u8>),
    ) -> SessionResult
    where
        P: AsyncRead + Unpin,
        Q: AsyncWrite + Unpin,
        S: AsyncRead + Unpin,
        T: AsyncWrite + Unpin,
    {
        let done = tokio::select! {
            done = self.relay_from_program(program.0, server.1, held.0) => done,
            done = self.relay_from_server(server.0, program.1, held.1) => done,
        };
        if done.is_err() {
            // Best effort: a program that does not read it sees the connection close.
            let _ = program.1.write_all(POLICY_VIOLATION_CLOSE).await;
        }
        done
    }

    async fn relay_from_program<P, T>(
        &self,
        program: &mut P,
        server: &mut T,
        mut held: Vec<u8>,
    ) -> SessionResult
    where
        P: AsyncRead + Unpin,
        T: AsyncWrite + Unpin,
    {
        let mut frames = FrameParser::new(FrameSender::Program);
        loop {
            let clear = frames.parse(&held, &mut |_| Ok(()))?;
            server.write_all(held.get(..clear).unwrap_or_default()).await.map_err(connection_broke)?;
            server.flush().await.map_err(connection_broke)?;
            held.drain(..clear);
            if !self.read_more(program, &mut held, &self.traffic.sent).await? {
                return Ok(());
            }
        }
    }

    async fn relay_from_server<S, Q>(
        &self,
        server: &mut S,
        program: &mut Q,
        mut held: Vec<u8>,
    ) -> SessionResult
    where
        S: AsyncRead + Unpin,
        Q: AsyncWrite + Unpin,
    {
        let mut frames = FrameParser::new(FrameSender::Server);
        let mut cleaner = self.termination.redactor.as_ref().map(MessageRedactor::new);
        loop {
            let clean = match &mut cleaner {
                Some(cleaner) => {
                    let clear = frames.parse(&held, &mut |part| cleaner.redact_part(part))?;
                    held.drain(..clear);
                    std::mem::take(&mut cleaner.out)
                }
                None => {
                    let clear = frames.parse(&held, &mut |_| Ok(()))?;
                    held.drain(..clear).collect()
                }
            };
            program.write_all(&clean).await.map_err(connection_broke)?;
            program.flush().await.map_err(connection_broke)?;
            if !self.read_more(server, &mut held, &self.traffic.received).await? {
                return Ok(());
            }
        }
    }
}

/// The sender of frames: a program's are masked, a server's are not.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum FrameSender {
    Program,
    Server,
}

/// The head of a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct FrameHead {
    last: bool,
    opcode: u8,
    length: u64,
}

impl FrameHead {
    fn is_control(self) -> bool {
        self.opcode >= CLOSE
    }
}

/// A piece of a frame.
enum FramePart<'a> {
    Begin(FrameHead),
    Content(&'a [u8]),
    End(FrameHead),
}

/// Parses the frames of one direction.
#[derive(Debug)]
struct FrameParser {
    side: FrameSender,
    /// The current frame and how many bytes of it are left.
    now: Option<(FrameHead, u64)>,
    in_message: bool,
}

impl FrameParser {
    fn new(side: FrameSender) -> Self {
        Self { side, now: None, in_message: false }
    }

    /// Parses bytes part by part; returns how many can be forwarded. The rest is an incomplete frame head.
    fn parse(
        &mut self,
        bytes: &[u8],
        each: &mut dyn FnMut(FramePart<'_>) -> Result<(), NetworkReason>,
    ) -> Result<usize, NetworkReason> {
        let mut at = 0;
        loop {
            let rest = bytes.get(at..).unwrap_or_default();
            let (frame, left) = match self.now {
                Some(now) => now,
                None => {
                    let Some((length, frame)) = parse_head(rest, self.side)? else { return Ok(at) };
                    self.check_sequence(frame)?;
                    at += length;
                    each(FramePart::Begin(frame))?;
                    self.now = Some((frame, frame.length));
                    continue;
                }
            };
            let here = usize::try_from(left).unwrap_or(usize::MAX).min(rest.len());
            each(FramePart::Content(rest.get(..here).unwrap_or_default()))?;
            at += here;
            let left = left - here as u64;
            self.now = (left > 0).then_some((frame, left));
            if left > 0 {
                return Ok(at);
            }
            each(FramePart::End(frame))?;
        }
    }

    /// Checks the frame sequence: a message is one frame, or several of which only the first has an opcode.
    fn check_sequence(&mut self, frame: FrameHead) -> Result<(), NetworkReason> {
        if frame.is_control() {
            return if frame.last && frame.length <= 125 { Ok(()) } else { Err(MALFORMED_FRAME) };
        }
        if (frame.opcode == 0) != self.in_message {
            return Err(MALFORMED_FRAME);
        }
        self.in_message = !frame.last;
        Ok(())
    }
}

/// Parses a frame head and its length; `None` while it is incomplete. No extension was negotiated, so no reserved bit may be
/// set.
fn parse_head(bytes: &[u8], side: FrameSender) -> Result<Option<(usize, FrameHead)>, NetworkReason> {
    let [first, second, rest @ ..] = bytes else { return Ok(None) };
    let (opcode, is_masked) = (first & 15, second & 0x80 != 0);
    if first & 0x70 != 0
        || !matches!(opcode, 0..=2 | CLOSE..=10)
        || is_masked != (side == FrameSender::Program)
    {
        return Err(MALFORMED_FRAME);
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
        return Err(MALFORMED_FRAME);
    }
    let whole = 2 + width + if is_masked { 4 } else { 0 };
    Ok((bytes.len() >= whole).then_some((whole, FrameHead { last: first & 0x80 != 0, opcode, length })))
}

/// Redacts known values from messages; the output is split into new frames.
struct MessageRedactor<'a> {
    redactor: &'a Redactor,
    /// The current message, and the opcode of its next frame.
    message: Option<(RedactStream, u8)>,
    /// The content of a control frame, which may stand between two frames of a message.
    control: Option<Vec<u8>>,
    out: Vec<u8>,
}

impl<'a> MessageRedactor<'a> {
    fn new(redactor: &'a Redactor) -> Self {
        Self { redactor, message: None, control: None, out: Vec::new() }
    }

    fn redact_part(&mut self, part: FramePart<'_>) -> Result<(), NetworkReason> {
        match part {
            FramePart::Begin(frame) if frame.is_control() => self.control = Some(Vec::new()),
            FramePart::Begin(frame) if frame.opcode != 0 => {
                self.message = Some((self.redactor.stream(), frame.opcode));
            }
            FramePart::Begin(_) => {}
            FramePart::Content(bytes) => match (&mut self.control, &mut self.message) {
                (Some(control), _) => control.extend_from_slice(bytes),
                (None, Some((stream, _))) => {
                    let mut clean = Vec::new();
                    stream.push(bytes, &mut clean).map_err(|_| NOT_REDACTED)?;
                    if !clean.is_empty() {
                        self.write_message_frame(false, &clean);
                    }
                }
                (None, None) => return Err(MALFORMED_FRAME),
            },
            FramePart::End(frame) if frame.is_control() => {
                let content = self.control.take().unwrap_or_default();
                let (_, found) = self.redactor.redact_bytes(&content).map_err(|_| NOT_REDACTED)?;
                // A close frame keeps its status code, which is not text.
                let kept = if found > 0 { usize::from(frame.opcode == CLOSE) * 2 } else { content.len() };
                self.write_frame(0x80 | frame.opcode, content.get(..kept).unwrap_or_default());
            }
            FramePart::End(frame) if frame.last => {
                let mut clean = Vec::new();
                if let Some((stream, _)) = &mut self.message {
                    stream.finish(&mut clean).map_err(|_| NOT_REDACTED)?;
                }
                self.write_message_frame(true, &clean);
                self.message = None;
            }
            FramePart::End(_) => {}
        }
        Ok(())
    }

    /// Writes one frame of the message.
    fn write_message_frame(&mut self, last: bool, content: &[u8]) {
        let Some((_, opcode)) = &mut self.message else { return };
        let first = (u8::from(last) << 7) | std::mem::take(opcode);
        self.write_frame(first, content);
    }

    fn write_frame(&mut self, first: u8, content: &[u8]) {
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
    fn accept_header_matches_the_example_of_rfc_6455() {
        assert_eq!(accept_for_key(b"dGhlIHNhbXBsZSBub25jZQ=="), "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=");
    }

    fn followed(bytes: &[u8], side: FrameSender) -> Result<usize, NetworkReason> {
        FrameParser::new(side).parse(bytes, &mut |_| Ok(()))
    }

    // P3: an HTTP request is not a frame
    #[test]
    fn bytes_that_are_not_a_frame_are_rejected() {
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
            let read = followed(bad, FrameSender::Program);
            // An incomplete head waits for more bytes.
            assert!(read == Err(MALFORMED_FRAME) || read == Ok(0) && bad.len() == 4, "{bad:?}: {read:?}");
        }
        assert_eq!(followed(b"\x81\x81\0\0\0\0x", FrameSender::Server), Err(MALFORMED_FRAME));
        let good = b"\x01\x82\0\0\0\0ab\x89\x80\0\0\0\0\x80\x81\0\0\0\0c\x82\xfe\0\x03\0\0\0\0abc\x88";
        assert_eq!(followed(good, FrameSender::Program), Ok(good.len() - 1));
    }

    proptest! {
        #[test]
        fn arbitrary_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            for side in [FrameSender::Program, FrameSender::Server] {
                if let Ok(clear) = followed(&bytes, side) {
                    prop_assert!(clear <= bytes.len() && bytes.len() - clear < 14);
                }
            }
        }
    }
}
