//! The replacement for the internet in `postrider dev` (contract 8): a receiver on loopback that captures every
//! message, and the simulator's addresses with their outcomes. `serve` uses none of it.

pub mod capture;
pub mod filter;
pub mod receiver;
pub mod reporter;
pub mod routes;
mod silent;
mod simulator;
