//! Tests of transfers: the real engine, store and dispatcher on virtual time, with scripted names and mail servers.

mod alerts;
mod clock;
mod failing;
mod housekeeping;
mod importing;
mod isolation;
mod last_check;
mod names;
mod net;
mod overflow;
mod pauses;
mod rates;
mod relays;
mod resets;
mod sites;
mod stalled;
mod stopping;
mod suspended;
mod turned_away;
mod why;
mod world;

use net::Behaviour;
use world::{World, mx, relay};
