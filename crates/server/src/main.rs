//! The binary `prombus`.

fn main() {}
