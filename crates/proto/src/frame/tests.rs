mod accepted;
mod refused;
mod round_trip;
mod sent;

use super::*;

fn parse(text: &str) -> Result<ClientFrame, FrameError> {
    ClientFrame::parse(&Bytes::copy_from_slice(text.as_bytes()), &FrameLimits::default())
}

fn op(text: &str) -> ClientOp {
    parse(text).unwrap_or_else(|error| panic!("{text}: {error}")).op
}

fn written(frame: &ClientFrame) -> String {
    let mut out = Vec::new();
    frame.write(&mut out);
    String::from_utf8(out).unwrap()
}
