//! The compiled kernel side. `bpf/build` makes the objects; tests/agent/test_objects.py compares
//! them with their sources.

use aya::include_bytes_aligned;

/// DRWA on the sockets of the receiving host.
pub static RECEIVE: &[u8] = include_bytes_aligned!("../../bpf/receive.bpf.o");
/// The walk over existing sockets.
pub static SOCKETS: &[u8] = include_bytes_aligned!("../../bpf/sockets.bpf.o");
/// Congestion control of new connections.
pub static CONGESTION: &[u8] = include_bytes_aligned!("../../bpf/congestion.bpf.o");
/// The gate above the uplink's device.
pub static GATE: &[u8] = include_bytes_aligned!("../../bpf/gate.bpf.o");
/// ACK-window rewriting at a device.
pub static ACKS: &[u8] = include_bytes_aligned!("../../bpf/acks.bpf.o");
/// The same for kernels before 5.12.
pub static ACKS_OLDER: &[u8] = include_bytes_aligned!("../../bpf/acks_older.bpf.o");
/// The same for kernels without types of their own.
pub static ACKS_UNTYPED: &[u8] = include_bytes_aligned!("../../bpf/acks_untyped.bpf.o");
/// The laws on recorded streams, for tests.
pub static CONFORMANCE: &[u8] = include_bytes_aligned!("../../bpf/conformance.bpf.o");
