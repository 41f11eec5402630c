//! Stories over the real program: `postrider dev` on a temporary directory, spoken to over HTTP as an application
//! would. Time is virtual; nothing here sleeps to wait.

mod accepting;
mod delivering;
mod support;
mod suppressing;
mod telling;
mod time;
