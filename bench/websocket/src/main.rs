//! Compares WebSocket libraries on the work of Prombus. See `README.md`.

mod accept;
mod behaviour;
mod client;
mod gateway;
#[cfg(test)]
mod gateway_tests;
mod memory;
mod server;
mod speed;
mod with_axum;
mod with_fastwebsockets;
mod with_tokio_websockets;
mod with_tungstenite;
mod work;

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match arguments[..] {
        [] => {
            speed::run(1_000_000);
            memory::run();
            behaviour::run();
        }
        ["speed", frames] => speed::run(frames.parse().expect("a number of frames")),
        ["memory"] => memory::run(),
        ["behaviour"] => behaviour::run(),
        ["idle", name] => memory::idle(name),
        _ => panic!("usage: websocket-bench [speed FRAMES | memory | behaviour]"),
    }
}
