//! Cures for bufferbloat on a live host.
//!
//! signal: what the kernel's sockets, devices and the modem tell · model: the laws of `algo`, made again in eBPF (`bpf/law.h`, bit
//! for bit) · action: windows, gates and congestion controls on stock kernels, each under a lease that undoes it when nobody
//! renews it.

pub mod cures;
pub mod measure;

pub mod commands;
pub mod config;
pub mod daemon;
pub mod kernel;
pub mod plan;
pub mod status;
pub mod telemetry;
pub mod undo;
pub mod uplink;
