//! What is known of the path to one address, or of what all paths of a device share.

/// Path state of one address, or of the whole device.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct PlacePath {
    /// Smallest round trip beyond the device, µs; 0: unknown.
    pub rtt_us: u64,
    /// When its queues were measured, ns; 0: never.
    pub at_ns: u64,
    /// Certain queueing towards the device, µs.
    pub towards_us: u32,
    /// Certain queueing away from the device, µs.
    pub away_us: u32,
}
