//! Compression of responses, negotiated by `Accept-Encoding`.

use std::fmt::Display;
use std::io::{self, Write};

use axum::http::header::{ACCEPT_ENCODING, HeaderMap};
use flate2::Compression;
use flate2::write::GzEncoder;
use prombus_bus::Refusal;
use prombus_proto::ErrorCode;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ContentCoding {
    Identity,
    Gzip,
    Zstd,
}

pub(super) enum Compressor {
    Gzip(GzEncoder<Vec<u8>>),
    Zstd(zstd::stream::write::Encoder<'static, Vec<u8>>),
}

// Favors speed over size: the client waits for the export.
const GZIP_LEVEL: u32 = 3;
const ZSTD_LEVEL: i32 = 1;

impl ContentCoding {
    /// Picks the supported coding with the highest weight; zstd on a tie.
    pub(super) fn negotiate(headers: &HeaderMap) -> Self {
        let values =
            headers.get_all(ACCEPT_ENCODING).iter().filter_map(|value| value.to_str().ok());
        let choices: Vec<_> = values.flat_map(|value| value.split(',')).map(parse_choice).collect();
        let weight = |name: &str| {
            let named = |wanted: &str| choices.iter().find(|(choice, _)| choice == wanted);
            named(name).or_else(|| named("*")).map_or(0, |(_, weight)| *weight)
        };
        let (zstd, gzip) = (weight("zstd"), weight("gzip"));
        match (zstd, gzip) {
            (0, 0) => ContentCoding::Identity,
            (zstd, gzip) if zstd >= gzip => ContentCoding::Zstd,
            _ => ContentCoding::Gzip,
        }
    }

    pub(super) const fn name(self) -> Option<&'static str> {
        match self {
            ContentCoding::Identity => None,
            ContentCoding::Gzip => Some("gzip"),
            ContentCoding::Zstd => Some("zstd"),
        }
    }
}

/// Splits an element of `Accept-Encoding` into its name and its weight in thousandths. A weight
/// that cannot be parsed counts as 0.
fn parse_choice(element: &str) -> (String, u32) {
    let (name, parameter) = element.split_once(';').unwrap_or((element, "q=1"));
    let weight = parameter.trim().strip_prefix("q=").and_then(|text| text.parse::<f32>().ok());
    let weight = weight.filter(|weight| (0.0..=1.0).contains(weight)).unwrap_or(0.0);
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "0 to 1000")]
    let thousandths = (weight * 1000.0) as u32;
    (name.trim().to_ascii_lowercase(), thousandths)
}

impl Compressor {
    /// Returns `None` for `Identity`.
    pub(super) fn new(coding: ContentCoding) -> Option<Self> {
        match coding {
            ContentCoding::Identity => None,
            ContentCoding::Gzip => {
                Some(Self::Gzip(GzEncoder::new(Vec::new(), Compression::new(GZIP_LEVEL))))
            }
            // Fails only when out of memory.
            ContentCoding::Zstd => {
                zstd::stream::write::Encoder::new(Vec::new(), ZSTD_LEVEL).ok().map(Self::Zstd)
            }
        }
    }

    /// Compresses `text` and returns the output available so far, which may be empty.
    pub(super) fn write(&mut self, text: &[u8]) -> io::Result<Vec<u8>> {
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

    /// Returns everything that was written so far in a form that can be decompressed.
    pub(super) fn flush(&mut self) -> io::Result<Vec<u8>> {
        match self {
            Self::Gzip(encoder) => {
                encoder.flush()?;
                Ok(std::mem::take(encoder.get_mut()))
            }
            Self::Zstd(encoder) => {
                encoder.flush()?;
                Ok(std::mem::take(encoder.get_mut()))
            }
        }
    }

    /// Compresses `text` and returns the remaining output.
    pub(super) fn finish(mut self, text: &[u8]) -> io::Result<Vec<u8>> {
        let mut bytes = self.write(text)?;
        bytes.append(&mut match self {
            Self::Gzip(encoder) => encoder.finish()?,
            Self::Zstd(encoder) => encoder.finish()?,
        });
        Ok(bytes)
    }
}

pub(super) fn failed(error: &impl Display) -> Refusal {
    Refusal::new(ErrorCode::Internal, format!("cannot compress the export: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn negotiate(accept: &str) -> ContentCoding {
        let mut headers = HeaderMap::new();
        headers.insert(ACCEPT_ENCODING, accept.parse().unwrap());
        ContentCoding::negotiate(&headers)
    }

    #[test]
    fn picks_the_coding_with_the_highest_weight() {
        assert_eq!(ContentCoding::negotiate(&HeaderMap::new()), ContentCoding::Identity);
        for (accept, coding) in [
            ("", ContentCoding::Identity),
            ("br", ContentCoding::Identity),
            ("identity", ContentCoding::Identity),
            ("gzip", ContentCoding::Gzip),
            ("GZIP ; q=0.5, br", ContentCoding::Gzip),
            ("gzip, deflate, br, zstd", ContentCoding::Zstd),
            ("gzip;q=1.0, zstd;q=0.9", ContentCoding::Gzip),
            ("gzip;q=0", ContentCoding::Identity),
            ("gzip;q=0, *", ContentCoding::Zstd),
            ("gzip;q=nonsense", ContentCoding::Identity),
            ("zstd;q=7", ContentCoding::Identity),
        ] {
            assert_eq!(negotiate(accept), coding, "{accept:?}");
        }
    }
}
