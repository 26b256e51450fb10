//! The core of the bus: publish, groups, leases, limits. No sockets, no JSON frames.
//!
//! Nothing is here yet; the engine underneath is.
