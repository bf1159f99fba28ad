//! A body that came packed although nobody asked for that, unpacked as it comes: what is looked through must be plain.

use std::io::Write;

use flate2::write::MultiGzDecoder;
use flate2::{Decompress, FlushDecompress, Status};
use vambrace_core::network::Reason;

use super::response::Packing;

/// Unpacked together, so that what a piece can grow to is bounded: packed a thousandfold it is four megabytes.
pub(super) const PIECE: usize = 4 << 10;
const BAD: Reason = Reason::NotUnderstood("an answer that cannot be unpacked");

/// Takes packed bytes and gives plain ones.
pub(super) enum Unpacker {
    Plain,
    Gzip(MultiGzDecoder<Vec<u8>>),
    /// And whether its end was seen, which the decoder does not ask for by itself.
    Zlib(Decompress, bool),
}

impl Unpacker {
    pub(super) fn new(packing: Option<Packing>) -> Self {
        match packing {
            None => Self::Plain,
            Some(Packing::Gzip) => Self::Gzip(MultiGzDecoder::new(Vec::new())),
            Some(Packing::Zlib) => Self::Zlib(Decompress::new(true), false),
        }
    }

    /// What a piece holds.
    pub(super) fn take(&mut self, piece: &[u8]) -> Result<Vec<u8>, Reason> {
        match self {
            Self::Plain => Ok(piece.to_vec()),
            Self::Gzip(decoder) => {
                decoder.write_all(piece).and_then(|()| decoder.flush()).map_err(|_| BAD)?;
                Ok(std::mem::take(decoder.get_mut()))
            }
            Self::Zlib(decoder, ended) => inflate(decoder, ended, piece),
        }
    }

    /// What is left at the end, which must be one.
    pub(super) fn finish(self) -> Result<Vec<u8>, Reason> {
        match self {
            Self::Plain | Self::Zlib(_, true) => Ok(Vec::new()),
            Self::Gzip(decoder) => decoder.finish().map_err(|_| BAD),
            Self::Zlib(_, false) => Err(BAD),
        }
    }
}

fn inflate(decoder: &mut Decompress, ended: &mut bool, mut piece: &[u8]) -> Result<Vec<u8>, Reason> {
    let mut out = Vec::new();
    while !*ended {
        out.reserve(8 * PIECE);
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
