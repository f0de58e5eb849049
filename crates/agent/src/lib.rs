//! Cures for bufferbloat on a live host.
//!
//! signal: what the kernel's sockets, devices and the modem tell · model: the laws of `algo`, made again in eBPF (`bpf/law.h`, bit
//! for bit) · action: windows, gates and congestion controls on stock kernels, each under a lease that undoes it when nobody
//! renews it.

pub mod acks;
pub mod commands;
pub mod config;
pub mod congestion;
pub mod control;
pub mod cure;
pub mod daemon;
pub mod gate;
pub mod hook;
pub mod journal;
pub mod kernel;
pub mod lease;
pub mod log;
pub mod metrics;
pub mod netlink;
pub mod notify;
pub mod objects;
pub mod paths;
pub mod plan;
pub mod receive;
pub mod run;
pub mod shaper;
pub mod shared;
pub mod sockets;
pub mod status;
pub mod supervisor;
pub mod telemetry;
pub mod trial;
pub mod undo;
pub mod uplink;
