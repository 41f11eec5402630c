//! Canaries.
