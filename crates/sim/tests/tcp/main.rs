//! How the simulated TCP behaves, each clause on a path made for it.

#[path = "../made/mod.rs"]
mod made;

mod acks;
mod congestion;
mod ends;
mod host;
mod recovery;
mod window;
