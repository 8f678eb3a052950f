// parse-error: what follows is not Rust, and what cannot be read is not passed over in silence.
fn watch(bus: &Bus {
    bus.subscribe("cpu.high", "agents");
}
