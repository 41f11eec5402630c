//! Stories of transfers: the real engine, store and pump on virtual time, with names and mail servers that the story
//! scripts.

mod housekeeping;
mod names;
mod pauses;
mod rates;
mod relays;
mod sites;
mod world;

use world::{Behaviour, World, mx, relay};
