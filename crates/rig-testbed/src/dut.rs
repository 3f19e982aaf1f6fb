//! What stands between the client's node and the server's, on the paths that have three nodes.

/// What the device under test is to be, beside what the path says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Dut {
    /// CPUs of it that carry packets.
    pub workers: u32,
    /// Addresses that clients connect to.
    pub service_addresses: u32,
    /// Addresses that its packets to servers come from, where the path has such.
    pub local_addresses: u32,
    /// Whether its CPUs' stacks are sampled inside the window.
    pub profile: bool,
}
