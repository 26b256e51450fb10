//! Pieces of the log that lie close together are read in one go.

use std::io;

use bytes::Bytes;

use crate::disk::read::topic_view::WalPiece;

/// The most that is read in one go, unless one piece alone is larger.
const SPAN_BYTES: u64 = 256 << 10;
/// The most that may lie between two pieces that are read in one go.
const GAP_BYTES: u64 = 1 << 10;

/// Some pieces and the bytes they lie in.
pub(crate) struct WalSpan<'a> {
    pub(crate) pieces: &'a [WalPiece],
    bytes: Bytes,
}

impl WalSpan<'_> {
    /// The bytes of one of its pieces.
    pub(crate) fn bytes_of(&self, piece: &WalPiece) -> Bytes {
        let start = usize::try_from(piece.offset - self.pieces[0].offset).unwrap_or(usize::MAX);
        self.bytes.slice(start..start + piece.bytes as usize)
    }
}

/// Reads the first pieces of `rest`, which moves on behind them; nothing where there are none.
pub(crate) fn next_span<'a>(rest: &mut &'a [WalPiece]) -> io::Result<Option<WalSpan<'a>>> {
    let Some(first) = rest.first() else {
        return Ok(None);
    };
    let mut end = first.offset + u64::from(first.bytes);
    let mut count = 1;
    for piece in &rest[1..] {
        let piece_end = piece.offset + u64::from(piece.bytes);
        let close = piece.file.number == first.file.number
            && (end..=end + GAP_BYTES).contains(&piece.offset)
            && piece_end - first.offset <= SPAN_BYTES;
        if !close {
            break;
        }
        end = piece_end;
        count += 1;
    }
    let (pieces, later) = rest.split_at(count);
    let bytes = usize::try_from(end - first.offset).map_err(io::Error::other)?;
    let bytes = first.file.read_at(first.offset, bytes)?;
    *rest = later;
    Ok(Some(WalSpan { pieces, bytes }))
}
