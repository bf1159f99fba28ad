//! Streaming decompression of bodies that the server compressed although `identity` was requested: only plain content can be
//! redacted.

use std::io::Write;

use flate2::write::MultiGzDecoder;
use flate2::{Decompress, FlushDecompress, Status};
use vambrace_core::network::NetworkReason;

use super::response::ContentEncoding;

/// Compressed bytes per step; bounds the output of a step: at a ratio of 1,000 it is 4 MB.
pub(super) const STEP_BYTES: usize = 4 << 10;
const BAD: NetworkReason = NetworkReason::NotUnderstood("the response cannot be decompressed");

/// A streaming decompressor.
pub(super) enum Decompressor {
    Plain,
    Gzip(MultiGzDecoder<Vec<u8>>),
    /// With whether the end of the stream was seen, which the decoder does not check by itself.
    Zlib(Decompress, bool),
}

impl Decompressor {
    pub(super) fn new(encoding: Option<ContentEncoding>) -> Self {
        match encoding {
            None => Self::Plain,
            Some(ContentEncoding::Gzip) => Self::Gzip(MultiGzDecoder::new(Vec::new())),
            Some(ContentEncoding::Zlib) => Self::Zlib(Decompress::new(true), false),
        }
    }

    /// Decompresses one piece.
    pub(super) fn take(&mut self, piece: &[u8]) -> Result<Vec<u8>, NetworkReason> {
        match self {
            Self::Plain => Ok(piece.to_vec()),
            Self::Gzip(decoder) => {
                decoder.write_all(piece).and_then(|()| decoder.flush()).map_err(|_| BAD)?;
                Ok(std::mem::take(decoder.get_mut()))
            }
            Self::Zlib(decoder, ended) => inflate(decoder, ended, piece),
        }
    }

    /// The remaining output; an error when the stream is incomplete.
    pub(super) fn finish(self) -> Result<Vec<u8>, NetworkReason> {
        match self {
            Self::Plain | Self::Zlib(_, true) => Ok(Vec::new()),
            Self::Gzip(decoder) => decoder.finish().map_err(|_| BAD),
            Self::Zlib(_, false) => Err(BAD),
        }
    }
}

fn inflate(decoder: &mut Decompress, ended: &mut bool, mut piece: &[u8]) -> Result<Vec<u8>, NetworkReason> {
    let mut out = Vec::new();
    while !*ended {
        out.reserve(8 * STEP_BYTES);
        let (taken, given) = (decoder.total_in(), out.len());
        let status = decoder.decompress_vec(piece, &mut out, FlushDecompress::None).map_err(|_| BAD)?;
        let taken = usize::try_from(decoder.total_in() - taken).map_err(|_| BAD)?;
        piece = piece.get(taken..).unwrap_or_default();
        *ended = status == Status::StreamEnd;
        if taken == 0 && out.len() == given {
            break;
        }
    }
    Ok(out)
}
