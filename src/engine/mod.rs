//! Floor 5: the workers between the store and the world, and the ports through which they see it.

pub mod ports;
