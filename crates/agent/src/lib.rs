//! Cures for bufferbloat on a live host.
//!
//! Windows, gates and congestion controls on stock kernels, each under a lease: the kernel undoes
//! it when nothing renews the lease. The laws are those of `algo`, again in eBPF (`bpf/law.h`, bit
//! for bit).
//!
//! Arrows between the modules go one way: `error`, `kernel` ← `undo` ← `telemetry`, `cures` ←
//! `uplink` ← `status`, `config` ← `daemon` ← `commands` ← `measure`, `plan`.

pub mod commands;
pub mod config;
pub mod cures;
pub mod daemon;
mod error;
pub mod kernel;
pub mod measure;
pub mod plan;
mod section;
pub mod status;
pub mod telemetry;
pub mod undo;
pub mod uplink;
