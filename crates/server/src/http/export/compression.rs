//! What is sent can be smaller, where the client says that it can read that.

use std::fmt::Display;
use std::io::{self, Write};

use axum::http::header::{ACCEPT_ENCODING, HeaderMap};
use flate2::Compression;
use flate2::write::GzEncoder;
use prombus_bus::Refusal;
use prombus_proto::ErrorCode;

/// How a body is coded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Coding {
    Identity,
    Gzip,
    Zstd,
}

/// Turns a stream of bytes into a smaller one.
pub(super) enum Compressor {
    Gzip(GzEncoder<Vec<u8>>),
    Zstd(zstd::stream::write::Encoder<'static, Vec<u8>>),
}

/// Fast rather than small: whoever exports waits for it.
const GZIP_LEVEL: u32 = 3;
const ZSTD_LEVEL: i32 = 1;

impl Coding {
    /// What the client likes best of what there is.
    pub(super) fn wanted(headers: &HeaderMap) -> Self {
        let values =
            headers.get_all(ACCEPT_ENCODING).iter().filter_map(|value| value.to_str().ok());
        let words: Vec<_> = values.flat_map(|value| value.split(',')).map(weighed).collect();
        let weight = |name: &str| {
            let named = |wanted: &str| words.iter().find(|(word, _)| word == wanted);
            named(name).or_else(|| named("*")).map_or(0, |(_, weight)| *weight)
        };
        let (zstd, gzip) = (weight("zstd"), weight("gzip"));
        match (zstd, gzip) {
            (0, 0) => Coding::Identity,
            (zstd, gzip) if zstd >= gzip => Coding::Zstd,
            _ => Coding::Gzip,
        }
    }

    pub(super) const fn name(self) -> Option<&'static str> {
        match self {
            Coding::Identity => None,
            Coding::Gzip => Some("gzip"),
            Coding::Zstd => Some("zstd"),
        }
    }
}

/// A word of `Accept-Encoding`, and how much it is liked, in thousandths. What cannot be read is
/// not liked.
fn weighed(word: &str) -> (String, u32) {
    let (name, parameter) = word.split_once(';').unwrap_or((word, "q=1"));
    let weight = parameter.trim().strip_prefix("q=").and_then(|text| text.parse::<f32>().ok());
    let weight = weight.filter(|weight| (0.0..=1.0).contains(weight)).unwrap_or(0.0);
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "0 to 1000")]
    let thousandths = (weight * 1000.0) as u32;
    (name.trim().to_ascii_lowercase(), thousandths)
}

impl Compressor {
    /// Nothing where nothing is compressed.
    pub(super) fn new(coding: Coding) -> Option<Self> {
        match coding {
            Coding::Identity => None,
            Coding::Gzip => {
                Some(Self::Gzip(GzEncoder::new(Vec::new(), Compression::new(GZIP_LEVEL))))
            }
            // It fails only without memory, and then nothing is compressed.
            Coding::Zstd => {
                zstd::stream::write::Encoder::new(Vec::new(), ZSTD_LEVEL).ok().map(Self::Zstd)
            }
        }
    }

    /// Takes `text`, and gives what is ready. That may be nothing yet.
    pub(super) fn some(&mut self, text: &[u8]) -> io::Result<Vec<u8>> {
        match self {
            Self::Gzip(encoder) => {
                encoder.write_all(text)?;
                Ok(std::mem::take(encoder.get_mut()))
            }
            Self::Zstd(encoder) => {
                encoder.write_all(text)?;
                Ok(std::mem::take(encoder.get_mut()))
            }
        }
    }

    /// Takes `text`, and gives all that is left.
    pub(super) fn last(mut self, text: &[u8]) -> io::Result<Vec<u8>> {
        let mut bytes = self.some(text)?;
        bytes.append(&mut match self {
            Self::Gzip(encoder) => encoder.finish()?,
            Self::Zstd(encoder) => encoder.finish()?,
        });
        Ok(bytes)
    }
}

pub(super) fn failed(error: &impl Display) -> Refusal {
    Refusal::new(ErrorCode::Internal, format!("cannot compress: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wanted(accept: &str) -> Coding {
        let mut headers = HeaderMap::new();
        headers.insert(ACCEPT_ENCODING, accept.parse().unwrap());
        Coding::wanted(&headers)
    }

    #[test]
    fn the_client_decides() {
        assert_eq!(Coding::wanted(&HeaderMap::new()), Coding::Identity);
        for (accept, coding) in [
            ("", Coding::Identity),
            ("br", Coding::Identity),
            ("identity", Coding::Identity),
            ("gzip", Coding::Gzip),
            ("GZIP ; q=0.5, br", Coding::Gzip),
            ("gzip, deflate, br, zstd", Coding::Zstd),
            ("gzip;q=1.0, zstd;q=0.9", Coding::Gzip),
            ("gzip;q=0", Coding::Identity),
            ("gzip;q=0, *", Coding::Zstd),
            ("gzip;q=nonsense", Coding::Identity),
            ("zstd;q=7", Coding::Identity),
        ] {
            assert_eq!(wanted(accept), coding, "{accept:?}");
        }
    }
}
