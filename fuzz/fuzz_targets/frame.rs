//! Parses arbitrary bytes as frames. No input may panic, and every accepted frame must round-trip.

#![no_main]

use bytes::Bytes;
use libfuzzer_sys::fuzz_target;
use prombus_proto::{ClientFrame, FrameLimits, ServerFrame};

fuzz_target!(|bytes: &[u8]| {
    let limits = FrameLimits::default();
    let text = Bytes::copy_from_slice(bytes);
    match ClientFrame::parse(&text, &limits) {
        Ok(frame) => {
            let mut written = Vec::new();
            frame.write(&mut written);
            assert_eq!(ClientFrame::parse(&written.into(), &limits), Ok(frame));
        }
        Err(error) => assert!(!error.msg.is_empty()),
    }
    if let Ok(frame) = ServerFrame::parse(&text) {
        let mut written = Vec::new();
        frame.write(&mut written);
        assert_eq!(ServerFrame::parse(&written.into()), Ok(frame));
    }
});
