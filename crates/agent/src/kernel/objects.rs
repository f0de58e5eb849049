//! The compiled programs that more than one module loads; that of a cure is named in its module. `bpf/build`
//! makes the objects; tests/agent/test_objects.py compares them with their sources.

use aya::include_bytes_aligned;

/// The walk over existing sockets.
pub static SOCKETS: &[u8] = include_bytes_aligned!("../../bpf/sockets.bpf.o");
/// The gate; its program also shows which hooks this kernel has on a device.
pub static GATE: &[u8] = include_bytes_aligned!("../../bpf/gate.bpf.o");
/// The laws on recorded streams, for tests.
pub static CONFORMANCE: &[u8] = include_bytes_aligned!("../../bpf/conformance.bpf.o");
